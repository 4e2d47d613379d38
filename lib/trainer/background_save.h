// Checkpoints that are written while training goes on. The step pays for one copy in memory; a thread
// writes the copy, and rank 0's thread commits once every rank has written. A crash at any moment leaves
// the checkpoint before it, as the format promises (docs/reference/checkpoint-format.md).
//
// Rank 0 makes the folder, each rank writes its file, then rank 0 publishes. All ranks go from one phase to
// the next together, at the end of a step: each says whether its part IsDone, and all call Advance where
// every one is. Nothing else is needed of the other ranks or of the launcher.
//
// One thread calls; a second one, of the saver, works.
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
  // `state` must outlive the saver, and what the options of Start call too.
  explicit BackgroundSaver(const parallel::ShardedState& state);
  // Gives up what is under way and waits for it: for the call to the disk that this rank is in (one write, or
  // the sync of its file), for all of rank 0's beginning or commit. A disk that hangs is waited for.
  ~BackgroundSaver();

  bool idle() const { return save_ == nullptr || save_->phase() == SavePhase::kDone; }
  int64_t step() const { return save_->step(); }               // of the last Start
  const Written& written() const { return save_->written(); }  // of the last Start, once it is idle

  // Copies the state and begins to save the copy. Idle.
  void Start(const SaveOptions& options, const RunCounters& counters);
  // This rank's part of the phase has ended; result() says how.
  bool IsDone();
  const absl::Status& result() const { return result_; }
  // Every rank is done and none has failed: the next phase. True when the checkpoint is committed.
  bool Advance();
  // Collective: waits until the save under way is committed, for the disks of all ranks. Idle: nothing.
  absl::Status Drain(comm::Group& world);
  // Gives up the save after a failed phase that all ranks have finished. The saver is idle afterwards.
  void Abandon() { save_.reset(); }
  // Does not wait. The writing of this rank's file, if it goes on, ends with kCancelled. For good.
  void GiveUp() { cancelled_ = true; }

 private:
  void DoPhase();

  const parallel::ShardedState& state_;
  std::optional<parallel::OptimizerCopy> copy_;  // of ranks that write
  std::unique_ptr<RankSave> save_;
  std::atomic<bool> cancelled_ = false;
  std::future<absl::Status> work_;  // valid until its result is taken
  absl::Status result_;
};

}  // namespace trainctl::trainer
