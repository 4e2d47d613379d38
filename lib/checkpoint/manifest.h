// The content of a checkpoint's manifest.json, and of the index that each rank writes next to its file for
// rank 0 to merge. The parsers tolerate corrupt or hostile input. Pure functions; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "checkpoint/checkpoint_io.h"

namespace trainctl::checkpoint {

constexpr char kManifestName[] = "manifest.json";

struct Piece {  // one box of a tensor, stored row-major in one file
  layout::Box box;
  int file = 0;
  int64_t offset_bytes = 0;  // offset from the start of the file's data area
};

struct FileEntry {
  std::string name;
  int64_t size_bytes = 0;
  int64_t data_offset = 0;
  int64_t chunk_bytes = 0;
  std::vector<uint64_t> chunk_xxh3;  // hash of each chunk of the file, including its header
};

struct Manifest {
  CheckpointMeta meta;
  int world_size = 0;
  std::vector<FileEntry> files;
  std::vector<Slice> tensors;              // whole logical tensors
  std::vector<std::vector<Piece>> pieces;  // pieces of tensors[i], which contain each element exactly once
};

// One rank's file and its slices, in the order in which the caller passed them.
struct RankIndex {
  int rank = 0;
  FileEntry file;
  std::vector<Slice> slices;
  std::vector<int64_t> offset_bytes;  // offset of slices[i] from the start of the data area
};

std::string RankFileName(int rank);   // "rank-00003.safetensors"
std::string RankIndexName(int rank);  // "rank-00003.index.json"

// Returns the indices of two pieces that have an element in common, or nullopt if no two pieces overlap.
std::optional<std::pair<size_t, size_t>> FindOverlap(const std::vector<Piece>& pieces);

// Merges the indexes of all ranks. `indexes[i].rank` must be i. Returns an InternalError that names the
// tensor and ranks unless all slices of a tensor agree in dtype and shape and together contain each element
// exactly once.
absl::StatusOr<Manifest> MergeIndexes(const CheckpointMeta& meta, absl::Span<const RankIndex> indexes);

// Returns BadDataError unless state_json is a JSON object and all names are valid UTF-8.
absl::StatusOr<std::string> FormatManifest(const Manifest& manifest);
// Parses a manifest of this or any earlier format. Returns BadDataError if it is damaged in any way, which
// its own checksum reveals, and EnvironmentError if it is intact but has a newer format. Messages begin with
// `what`.
absl::StatusOr<Manifest> ParseManifest(absl::string_view text, absl::string_view what);

absl::StatusOr<std::string> FormatRankIndex(const RankIndex& index);
absl::StatusOr<RankIndex> ParseRankIndex(absl::string_view text, absl::string_view what);

}  // namespace trainctl::checkpoint
