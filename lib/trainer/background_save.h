// Saves checkpoints while training continues. Training waits only for a copy of the state in host memory; a
// background thread writes the copy. A crash at any time leaves the previous checkpoint intact
// (docs/reference/checkpoint-format.md).
//
//   saver.Start(options, counters);  // after a step
//   ...                              // train the next step
//   const bool busy = !saver.IsDone();
//   // The ranks agree on whether any of them is busy or has failed. If none is:
//   const bool is_committed = saver.Advance();
//
// A save has three phases: rank 0 creates the folder, each rank writes its file, and rank 0 commits. All
// ranks go to the next phase together, at the end of a step, when IsDone is true on every rank. They need no
// other communication, and the launcher takes no part.
//
// One thread calls the methods. The saver runs each phase on its own thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "parallel/optimizer_copy.h"
#include "trainer/checkpointing.h"

namespace trainctl::trainer {

class BackgroundSaver {
 public:
  // `state`, and everything that the callbacks in Start's options use, must outlive the saver. On a rank that
  // writes, allocates host memory for a copy of the rank's masters and optimizer state.
  explicit BackgroundSaver(const parallel::ShardedState& state);
  // Cancels the save in progress and waits for its thread. While a file is written, waits for the current
  // disk operation: one write, or the sync of the file. While rank 0 creates the folder or commits, waits for
  // the whole phase. Blocks for as long as the disk hangs.
  ~BackgroundSaver();

  bool idle() const { return save_ == nullptr || save_->phase() == SavePhase::kDone; }
  // Step of the last save. Requires an earlier Start and no Abandon since.
  int64_t step() const { return save_->step(); }
  // What this rank wrote in the last save. Valid when the save is committed.
  const Written& written() const { return save_->written(); }

  // Copies the state and begins to save the copy. Requires idle().
  void Start(const SaveOptions& options, const RunCounters& counters);
  // Whether this rank's part of the current phase has ended. result() is then its status. Does not block.
  bool IsDone();
  const absl::Status& result() const { return result_; }
  // Begins the next phase. Call this on all ranks when every rank's part is done and none has failed. Returns
  // whether the checkpoint is committed.
  bool Advance();
  // Collective. Waits until the save in progress is committed, including the disks of all ranks. Returns OK
  // if there is none. If a phase fails, returns this rank's error, or WorkerError if only another rank
  // failed; the saver is then not idle until Abandon.
  absl::Status Drain(comm::Group& world);
  // Discards a save after a failed phase that all ranks have finished. The saver is idle afterwards.
  void Abandon() { save_.reset(); }
  // Cancels the writing of files, in this save and in all later ones. Does not wait. A write that is
  // cancelled returns a Cancelled status.
  void GiveUp() { cancelled_ = true; }

 private:
  void DoPhase();

  const parallel::ShardedState& state_;
  std::optional<parallel::OptimizerCopy> copy_;  // only on ranks that write
  std::unique_ptr<RankSave> save_;
  std::atomic<bool> cancelled_ = false;
  std::future<absl::Status> work_;  // valid until its result is taken
  absl::Status result_;
};

}  // namespace trainctl::trainer
