// Layout-independent checkpoints. Each logical tensor is stored under its name and cut into boxes, which any
// parallel layout can write and read. This code handles only bytes and does not use LibTorch; the trainer
// provides host memory. docs/reference/checkpoint-format.md describes the format.
//
// A checkpoint is a folder `<run>/checkpoints/step-00000042/` with one `rank-00000.safetensors` per writing
// rank and a `manifest.json`. It is written under a temporary name, synced, and committed by a single rename.
// An incomplete checkpoint is never loaded and does not block later saves.
//
//   CheckpointWriter writer(root, step, rank, world_size, tag);
//   if (rank == 0) writer.Begin();          // then a barrier
//   writer.Write(slices, read);             // then a barrier
//   if (rank == 0) writer.Commit(meta);
//   if (rank == 0) ApplyRetention(root, retention, step);
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "layout/box.h"

namespace trainctl::checkpoint {

class FileOps;
struct Manifest;

// A box of a logical tensor.
struct Slice {
  std::string name;  // "model.embed_tokens.weight", "optimizer.exp_avg/<param>"
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // the whole logical tensor's shape
  layout::Box box;
  int64_t count() const { return box.Count(); }
};

// Whether the tensor is optimizer state. Every other tensor is a weight.
bool IsOptimizerState(const Slice& tensor);

// A SliceReader fills `bytes` with the elements of slices[slice] that start at element `begin`, in the
// row-major order of the slice's box. A SliceWriter consumes them. Each is called at least once per slice,
// with at most 1 MiB when writing a checkpoint and 8 MiB when reading one. The slices are visited in file
// order (wide element types first), which may differ from the caller's; when reading, the parts of one box
// may also arrive out of order. If the function returns an error, the operation stops and returns it.
using SliceReader = std::function<absl::Status(size_t slice, int64_t begin, absl::Span<std::byte> bytes)>;
using SliceWriter =
    std::function<absl::Status(size_t slice, int64_t begin, absl::Span<const std::byte> bytes)>;

// A small amount of JSON that rank 0 stores with the tensors: step, data position, RNG state, schedule
// counters, fingerprints, recipe, layout, threads and build.
struct CheckpointMeta {
  int64_t step = 0;
  // A JSON object, at most 64 levels deep. A reader gets back the same value, but not necessarily the same
  // text.
  std::string state_json = "{}";
};

// Writes one checkpoint. Each writer may be used by only one thread. A failure of the operating system (full
// disk, failed sync, ...) is an EnvironmentError with the path and reason. It leaves behind a temporary
// folder that is never read, and does not affect earlier checkpoints.
class CheckpointWriter {
 public:
  // `root` is "<run>/checkpoints", whose parent must exist. Every rank creates a writer with the same step,
  // world size and tag. The tag consists of digits and '-'; it becomes part of the temporary folder's name
  // and must be different each time the ranks are started. `ops` is for tests and must outlive the writer.
  CheckpointWriter(std::string root, int64_t step, int rank, int world_size, const std::string& tag = "",
                   FileOps* ops = nullptr);

  // Creates the temporary folder, after removing any leftovers of an earlier attempt with this tag at this
  // step. Rank 0 calls this before any rank writes; the caller provides the barrier in between.
  absl::Status Begin();
  // Writes this rank's slices with checksums and syncs the file. Every rank calls this once per Begin, even
  // if it has no slices. An empty slice only declares its tensor. Allocates one buffer of host memory.
  absl::Status Write(absl::Span<const Slice> slices, const SliceReader& read);
  // Checks that every element of every tensor was written exactly once (returns InternalError if not), writes
  // the manifest, syncs, renames the folder, and syncs its parent. Rank 0 calls this after all ranks have
  // written; the caller provides the barrier in between. If a committed checkpoint of the same step exists,
  // it is replaced in such a way that one of the two exists at all times. After a success, another call is a
  // no-op. After a failure, another call fails too, because a sync that succeeds later proves nothing about
  // the one that failed; start over with Begin.
  absl::Status Commit(const CheckpointMeta& meta);

 private:
  absl::Status TryCommit(const CheckpointMeta& meta);
  absl::Status Publish();  // renames the temporary folder to its committed name

  std::string root_;
  int64_t step_;
  int rank_;
  int world_size_;
  FileOps* ops_;
  std::string temporary_;
  std::string committed_;
  bool is_committed_ = false;
  absl::Status commit_failure_;
};

struct CheckpointInfo {
  std::string path;
  int64_t step = 0;
  int64_t bytes = 0;
};

// Lists the folders named like a committed checkpoint, oldest first, without opening them. Use examine.h to
// find out whether they are good. Returns an empty list if `root` does not exist.
absl::StatusOr<std::vector<CheckpointInfo>> ListCheckpoints(const std::string& root);

// Reads a committed checkpoint, and verifies all data that it reads. If a file is missing, truncated,
// modified or unreadable, returns a BadDataError that names the file and tensor. Thread-safe.
class CheckpointReader {
 public:
  // Opens a committed folder. Checks the manifest's version and checksum and the size of every file. Returns
  // EnvironmentError if the manifest is intact but its format is newer than this program.
  static absl::StatusOr<CheckpointReader> Open(const std::string& path);
  const CheckpointMeta& meta() const;
  int world_size() const;  // number of ranks that wrote the checkpoint
  // All logical tensors: first those of rank 0, in the order it wrote them, then those of the other ranks.
  const std::vector<Slice>& tensors() const;
  // Returns null if there is no such tensor.
  const Slice* Find(const std::string& name) const;
  // Reads the elements that the slices cover. Reads only the necessary byte ranges, and verifies each
  // checksummed chunk before passing on any of its bytes. Each slice's `dtype` and `shape` must match the
  // stored tensor. Returns a BadDataError that names the file and tensor on damage.
  absl::Status Read(absl::Span<const Slice> slices, const SliceWriter& write) const;
  // Verifies every byte of every file. Adds to `non_finite` the name of each weight (any tensor other than
  // optimizer state) that contains a NaN or infinity.
  absl::Status Verify(std::vector<std::string>* non_finite = nullptr) const;

 private:
  CheckpointReader() = default;
  std::string path_;
  std::shared_ptr<const Manifest> manifest_;
};

// Prevents the unfinished checkpoints under `root` from ever being committed by their writers. Call this
// after becoming the only process that may write and before looking for the newest checkpoint. Folders that
// cannot be removed immediately are left to ApplyRetention.
absl::Status RevokeUnfinished(const std::string& root, FileOps* ops = nullptr);

// The checkpoints to keep, in addition to the newest good one.
struct Retention {
  // Number of newest checkpoints to keep; at least 1.
  int64_t keep = 3;
  // Keep every step that is a multiple of this; 0 for none.
  int64_t keep_every_steps = 0;
  // Loss by step. Keeps the checkpoint with the lowest loss; empty for none.
  std::map<int64_t, double> losses = {};
};

// Removes all checkpoints except those that `retention` keeps. Never removes the newest good one, an
// unreadable one, or a damaged one that is newer than every good one. Also removes the leftovers of
// unfinished saves, so no save may be in progress. A checkpoint that is not good does not count toward
// `keep`. If a checkpoint cannot be removed, still removes the others and returns the first error; the next
// call tries again. `trusted_step` was just committed by this process and counts as good without being read
// again. `may_remove`, unless null, is called before each removal; if it returns an error, stops and returns
// that error.
absl::Status ApplyRetention(const std::string& root, const Retention& retention, int64_t trusted_step = -1,
                            FileOps* ops = nullptr, const std::function<absl::Status()>& may_remove = {});

}  // namespace trainctl::checkpoint
