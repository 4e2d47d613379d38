// Layout-independent checkpoints: logical tensors under their names, cut into boxes that any layout
// can write and read. Bytes only, no LibTorch; the trainer lends host memory. Format:
// docs/reference/checkpoint-format.md.
//
// Folder `<run>/checkpoints/step-00000042/`: one `rank-00000.safetensors` per writing rank plus
// `manifest.json`. It is written under a temporary name, synced, and committed by one rename; a
// half-written one is never loaded and never blocks.
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
  std::vector<int64_t> shape;  // of the whole logical tensor
  layout::Box box;
  int64_t count() const { return box.Count(); }
};

// All other tensors are weights.
bool IsOptimizerState(const Slice& tensor);

// Fills `bytes` with the elements of slices[slice] from its `begin`-th on, in the row-major order of its
// box / consumes them. Called once or more per slice, with at most 1 MiB (writing) or 8 MiB (reading).
// The order is that of the file (wide element types first), which need not be the caller's, and when
// reading not that of the box. An error ends the operation and is returned.
using SliceReader = std::function<absl::Status(size_t slice, int64_t begin, absl::Span<std::byte> bytes)>;
using SliceWriter =
    std::function<absl::Status(size_t slice, int64_t begin, absl::Span<const std::byte> bytes)>;

// What rank 0 puts beside the tensors: small JSON (step, data position, RNG, schedule counters,
// fingerprints, recipe, layout, threads, build).
struct CheckpointMeta {
  int64_t step = 0;
  std::string state_json = "{}";  // one JSON object, at most 64 levels deep; read back as the same value
};

// One thread per writer. Failures of the operating system (full disk, failed sync, ...) are
// EnvironmentErrors that name path and reason; they leave a temporary folder that nothing reads and
// every earlier checkpoint untouched.
class CheckpointWriter {
 public:
  // `root` is "<run>/checkpoints", in a folder that is there. Every rank makes one for the same step, world
  // size and tag, which is a part of the temporary folder's name: of digits and '-', another one for each
  // start of the ranks. `ops` is for tests; it must outlive the writer.
  CheckpointWriter(std::string root, int64_t step, int rank, int world_size, const std::string& tag = "",
                   FileOps* ops = nullptr);

  // Rank 0 first, before the others start (the caller's barrier): removes what an earlier attempt with this
  // tag left of this step, and makes the temporary folder.
  absl::Status Begin();
  // Every rank, once per Begin: writes its slices with checksums and syncs the file. A rank without
  // slices calls it too. An empty slice only declares its tensor. Host memory: one buffer.
  absl::Status Write(absl::Span<const Slice> slices, const SliceReader& read);
  // Rank 0, after the caller's barrier: checks that every element of every tensor was written
  // exactly once (InternalError if not), writes the manifest, syncs, renames, syncs the parent. A
  // committed checkpoint of the same step is replaced without a moment in which neither is there.
  // Calling it again after success changes nothing; after a failure it fails again (a sync that
  // failed once proves nothing when it succeeds later): start anew with Begin.
  absl::Status Commit(const CheckpointMeta& meta);

 private:
  absl::Status TryCommit(const CheckpointMeta& meta);
  absl::Status Publish();  // temporary folder -> committed folder

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

// Folders with the name of a committed checkpoint, oldest first, unopened: examine.h says what they are
// worth. A missing root is an empty list.
absl::StatusOr<std::vector<CheckpointInfo>> ListCheckpoints(const std::string& root);

// Safe to use from several threads. What is read is always verified: BadDataError names file and
// tensor, for missing, truncated and changed files and for a medium that fails to read.
class CheckpointReader {
 public:
  // Opens a committed folder and checks manifest version, its own checksum, and the files' sizes.
  // EnvironmentError when the manifest is intact but of a newer format.
  static absl::StatusOr<CheckpointReader> Open(const std::string& path);
  const CheckpointMeta& meta() const;
  int world_size() const;  // ranks that wrote it
  // Whole logical tensors, in the order of rank 0, then of the others.
  const std::vector<Slice>& tensors() const;
  // Null when there is no such tensor.
  const Slice* Find(const std::string& name) const;
  // Reads what the slices cover, reading only the needed byte ranges; every checksummed chunk that
  // is touched is verified before its bytes are handed out. BadDataError names file and tensor.
  // `dtype` and `shape` of a slice must match.
  absl::Status Read(absl::Span<const Slice> slices, const SliceWriter& write) const;
  // Verifies every byte of every file. `non_finite` gets the weights (tensors that are not of the optimizer)
  // with a value that is NaN or infinite.
  absl::Status Verify(std::vector<std::string>* non_finite = nullptr) const;

 private:
  CheckpointReader() = default;
  std::string path_;
  std::shared_ptr<const Manifest> manifest_;
};

// Takes what is being written under `root` out of its writers' hands: none of them can commit it afterwards.
// For who has just become the one that may write, before it looks for the newest checkpoint. What cannot be
// removed at once is left to ApplyRetention.
absl::Status RevokeUnfinished(const std::string& root, FileOps* ops = nullptr);

// The checkpoints to keep, in addition to the newest good one.
struct Retention {
  int64_t keep = 3;                       // the newest so many, >= 1
  int64_t keep_every_steps = 0;           // and those whose step is a multiple of this; 0: off
  std::map<int64_t, double> losses = {};  // and of these steps the one with the lowest loss; empty: off
};

// Removes all but those that `retention` keeps. Never removes the newest good one; removes leftovers of
// unfinished saves, so no save may be under way. Those that are not good do not count towards `keep`. One
// that cannot be removed is the error, after the others are gone; it is tried again by the next call.
// `trusted_step` is a step that this process has just committed, good without being read again. `may_remove`
// is asked before each removal; its error ends them, and is returned. May be empty.
absl::Status ApplyRetention(const std::string& root, const Retention& retention, int64_t trusted_step = -1,
                            FileOps* ops = nullptr, const std::function<absl::Status()>& may_remove = {});

}  // namespace trainctl::checkpoint
