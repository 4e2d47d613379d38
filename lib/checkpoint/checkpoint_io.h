// Layout-independent checkpoints: logical tensors under their names, cut into byte ranges that any
// layout can write and read. Bytes only, no LibTorch; the trainer lends host memory. Format:
// docs/checkpoint-format.md.
//
// Folder `<run>/checkpoints/step-00000042/`: one `rank-00000.safetensors` per writing rank plus
// `manifest.json`. It is written under a temporary name, synced, and committed by one rename; a
// half-written one is never loaded and never blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/dtype.h"

namespace trainctl::checkpoint {

// Elements [begin, begin + count) of the row-major flattened logical tensor.
struct Slice {
  std::string name;  // "model.embed_tokens.weight", "optimizer.exp_avg/<param>"
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // of the whole logical tensor
  int64_t begin = 0;
  int64_t count = 0;
};

// Fills `bytes` (count * DTypeBytes) with the slice's data / consumes them. Called once or more per
// slice, in order, with sub-slices no larger than the writer's buffer.
using SliceReader = std::function<absl::Status(const Slice&, absl::Span<std::byte>)>;
using SliceWriter = std::function<absl::Status(const Slice&, absl::Span<const std::byte>)>;

// What rank 0 puts beside the tensors: small JSON (step, data position, RNG, schedule counters,
// fingerprints, recipe, layout, threads, build).
struct CheckpointMeta {
  int64_t step = 0;
  std::string state_json = "{}";
};

class CheckpointWriter {
 public:
  // `root` is "<run>/checkpoints". Every rank makes one for the same step and world size.
  CheckpointWriter(std::string root, int64_t step, int rank, int world_size);

  // Rank 0 first, before the others start (the caller's barrier): removes leftovers of earlier
  // attempts at this step and makes the temporary folder.
  absl::Status Begin();
  // Every rank: writes its slices with checksums and syncs the file. Host memory: one buffer.
  absl::Status Write(absl::Span<const Slice> slices, const SliceReader& read);
  // Rank 0, after the caller's barrier: checks that every element of every tensor was written
  // exactly once, writes the manifest, syncs, renames, syncs the parent. Idempotent.
  absl::Status Commit(const CheckpointMeta& meta);

 private:
  std::string root_;
  int64_t step_;
  int rank_;
  int world_size_;
};

struct CheckpointInfo {
  std::string path;
  int64_t step = 0;
  int64_t bytes = 0;
};

// Committed checkpoints, oldest first. A missing root is an empty list.
absl::StatusOr<std::vector<CheckpointInfo>> ListCheckpoints(const std::string& root);

class CheckpointReader {
 public:
  // Opens a committed folder and checks manifest version, its own checksum, and the files' sizes.
  static absl::StatusOr<CheckpointReader> Open(const std::string& path);
  const CheckpointMeta& meta() const { return meta_; }
  // Whole logical tensors, in the manifest's order.
  const std::vector<Slice>& tensors() const { return tensors_; }
  // Reads what the slices cover, reading only the needed byte ranges; every checksummed chunk that
  // is touched is verified. BadDataError names file and tensor. `dtype` of a slice must match.
  absl::Status Read(absl::Span<const Slice> slices, const SliceWriter& write) const;
  // Verifies every byte.
  absl::Status Verify() const;

 private:
  struct Piece {  // a contiguous run of a tensor's elements in one file
    int64_t begin = 0;
    int64_t count = 0;
    int file = 0;
    int64_t offset_bytes = 0;  // within the file's data area
  };
  struct FileEntry {
    std::string name;
    int64_t size_bytes = 0;
    int64_t data_offset = 0;
    int64_t chunk_bytes = 0;
    std::vector<uint64_t> chunk_xxh3;
  };
  CheckpointReader() = default;
  std::string path_;
  CheckpointMeta meta_;
  std::vector<Slice> tensors_;
  std::vector<std::vector<Piece>> pieces_;
  std::vector<FileEntry> files_;
};

// The newest committed checkpoint that opens and verifies; for each newer one that does not, a line
// in `warnings`. NotFound when there is none at all, BadDataError when all are damaged.
absl::StatusOr<CheckpointInfo> FindNewestGood(const std::string& root, std::vector<std::string>* warnings);

// Removes all but the newest `keep` (>= 1) and those whose step is a multiple of keep_every_steps
// (> 0). Never removes the newest good one; removes leftovers of unfinished saves.
absl::Status ApplyRetention(const std::string& root, int64_t keep, int64_t keep_every_steps);

}  // namespace trainctl::checkpoint
