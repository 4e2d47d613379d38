// Checkpoints that are written while training goes on. The step pays for one copy in memory; a thread
// writes the copy, and rank 0's thread commits once every rank has written. A crash at any moment leaves
// the checkpoint before it, as the format promises (docs/checkpoint-format.md).
//
// Each rank writes its file, then rank 0 publishes. All ranks go from one phase to the next together, at the
// end of a step: each says whether its part IsDone, and all call Advance where every one is.
//
// One thread calls; a second one, of the saver, works.
#pragma once

#include <atomic>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/key_value_store.h"
#include "parallel/optimizer_copy.h"
#include "trainer/checkpointing.h"

namespace trainctl::trainer {

class BackgroundSaver {
 public:
  // `sync_paths`: logs that rank 0 makes durable before it commits. `store` is the job's: rank 0 tells the
  // others through it that they may write. All must outlive the saver.
  BackgroundSaver(const parallel::ShardedState& state, KeyValueStore& store,
                  std::vector<std::string> sync_paths);
  // Gives up what is under way, soon.
  ~BackgroundSaver();

  bool idle() const { return phase_ == Phase::kIdle; }
  int64_t step() const { return save_->step(); }  // that is being saved; not idle

  // Copies the state and begins to write the copy. Idle.
  void Start(const SaveOptions& options, const RunCounters& counters);
  // This rank's part of the phase has ended; result() says how.
  bool IsDone();
  const absl::Status& result() const { return result_; }
  // Every rank is done and none has failed: the next phase. True when the checkpoint is committed.
  bool Advance();
  // Collective: waits until the save under way is committed. Idle: nothing.
  absl::Status Drain(comm::Group& world);

 private:
  enum class Phase : uint8_t { kIdle, kWriting, kCommitting };

  absl::Status BeginAndWrite();
  absl::Status WaitForBegin(const std::string& key);
  absl::Status SyncAndCommit();

  const parallel::ShardedState& state_;
  KeyValueStore& store_;
  const std::vector<std::string> sync_paths_;
  std::optional<parallel::OptimizerCopy> copy_;  // of ranks that write
  Phase phase_ = Phase::kIdle;
  std::unique_ptr<RankSave> save_;
  std::atomic<bool> cancelled_ = false;
  std::future<absl::Status> work_;  // valid until its result is taken
  absl::Status result_;
};

}  // namespace trainctl::trainer
