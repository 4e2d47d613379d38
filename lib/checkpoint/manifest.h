// What a checkpoint's manifest.json says, and the index that each rank leaves beside its file until
// rank 0 has merged it. Parsing takes bytes that may be damaged or hostile. Pure; thread safe.
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

struct Piece {  // a box of a tensor, row-major in one file
  layout::Box box;
  int file = 0;
  int64_t offset_bytes = 0;  // from the start of the file's data area
};

struct FileEntry {
  std::string name;
  int64_t size_bytes = 0;
  int64_t data_offset = 0;
  int64_t chunk_bytes = 0;
  std::vector<uint64_t> chunk_xxh3;  // of the whole file, header included
};

struct Manifest {
  CheckpointMeta meta;
  int world_size = 0;
  std::vector<FileEntry> files;
  std::vector<Slice> tensors;              // whole logical tensors
  std::vector<std::vector<Piece>> pieces;  // of tensors[i], each element exactly once
};

// One rank's file and the slices in it, in the order of the caller.
struct RankIndex {
  int rank = 0;
  FileEntry file;
  std::vector<Slice> slices;
  std::vector<int64_t> offset_bytes;  // of slices[i], from the start of the data area
};

std::string RankFileName(int rank);   // "rank-00003.safetensors"
std::string RankIndexName(int rank);  // "rank-00003.index.json"

// Indices of two pieces of a tensor that share an element.
std::optional<std::pair<size_t, size_t>> FindOverlap(const std::vector<Piece>& pieces);

// InternalError naming tensor and ranks unless the slices of all ranks agree in dtype and shape and
// hold every element of every tensor exactly once. `indexes[i].rank` must be i.
absl::StatusOr<Manifest> MergeIndexes(const CheckpointMeta& meta, absl::Span<const RankIndex> indexes);

// BadDataError unless state_json is a JSON object and names are UTF-8.
absl::StatusOr<std::string> FormatManifest(const Manifest& manifest);
// Reads every format so far. BadDataError for any damage (the text carries its own checksum),
// EnvironmentError for an intact manifest of a newer format. `what` begins the messages.
absl::StatusOr<Manifest> ParseManifest(absl::string_view text, absl::string_view what);

absl::StatusOr<std::string> FormatRankIndex(const RankIndex& index);
absl::StatusOr<RankIndex> ParseRankIndex(absl::string_view text, absl::string_view what);

}  // namespace trainctl::checkpoint
