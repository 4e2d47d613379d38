// State of a run to and from a checkpoint: which slices this rank holds, and its counters. The
// slices come from the ledger, so any layout reads what any other wrote.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "checkpoint/checkpoint_io.h"
#include "checkpoint/model_folder.h"
#include "comm/communicator.h"
#include "parallel/sharded_state.h"
#include "recipe/recipe.h"

namespace trainctl::trainer {

// Everything that is not a tensor.
struct RunCounters {
  int64_t step = 0;     // steps done
  int64_t updates = 0;  // steps that changed the weights
  int64_t tokens = 0;
  int64_t skipped = 0;  // steps without an update because their loss or gradient was not finite
  // The record of `step`, if it is saved before the step is evaluated: metrics.jsonl may lack its line, or
  // the line's evaluation. A JSON object (telemetry::ParseStepRecord); empty if the log is complete.
  std::string unlogged_json = {};
  bool operator==(const RunCounters&) const = default;
};

struct SaveOptions {
  std::string root;  // "<run>/checkpoints"
  std::string tag;   // of checkpoint::CheckpointWriter
  checkpoint::Retention retention;
  std::string description_json;  // layout, threads, build: for people and for the resume warning
  // Both on rank 0, by the thread that commits; may be empty. The first makes the run's logs durable
  // before the commit; the second hears what went wrong without harm to the checkpoint.
  std::function<absl::Status()> sync_logs;
  // Before each phase, on every rank, by the thread that saves; may be empty. An error ends the save: the
  // folder of the run is another one, say.
  std::function<absl::Status()> check_folder;
  std::function<void(const std::string&)> warn;
};

// Where this rank's part of a bucket lies: in the state, or in a copy of it.
using PartsOf = std::function<const optim::Parts&(int bucket)>;

// What a rank has written of a checkpoint, and how long that took, the sync of its file included.
struct Written {
  int64_t bytes = 0;
  absl::Duration time;
};

// A save has three phases; every rank must have done one before any begins the next. Only rank 0 has
// something to do in the first and the last.
enum class SavePhase : uint8_t { kBegin, kWrite, kCommit, kDone };

// What one rank does for a save. Host memory: one buffer.
class RankSave {
 public:
  // Of the ledger, rank and optimizer of `state`, but from `parts`, which name memory of `device`; all of
  // them must outlive it.
  RankSave(const SaveOptions& options, const device::Device& device, const parallel::ShardedState& state,
           PartsOf parts, const RunCounters& counters);

  SavePhase phase() const { return phase_; }
  // This rank's part of phase(), which is not kDone. `cancelled`: null, or true: ends soon, with kCancelled.
  // Failures are those of checkpoint::CheckpointWriter; one to remove older checkpoints is a warning.
  absl::Status Do(const std::atomic<bool>* cancelled);
  // Every rank has done phase().
  void Advance() { phase_ = static_cast<SavePhase>(static_cast<uint8_t>(phase_) + 1); }
  // Collective: Advance when no rank's part, `own` here, has failed.
  absl::Status AdvanceTogether(comm::Group& world, const absl::Status& own);
  int64_t step() const { return counters_.step; }
  const Written& written() const { return written_; }  // once kWrite is done

 private:
  absl::Status Write(const std::atomic<bool>* cancelled);
  absl::Status Commit();  // and retention

  const SaveOptions options_;
  const device::Device& device_;
  const parallel::ShardedState& state_;
  const PartsOf parts_;
  const RunCounters counters_;
  std::optional<checkpoint::CheckpointWriter> writer_;  // of ranks that write
  SavePhase phase_ = SavePhase::kBegin;
  Written written_;
};

// Collective: a rank that failed tells the others, so that all of them stop here with one voice.
absl::Status AllSucceeded(comm::Group& world, absl::string_view name, const absl::Status& own);

// Collective over `world`. Returns when the checkpoint is committed.
absl::StatusOr<Written> SaveCheckpoint(const SaveOptions& options, const parallel::ShardedState& state,
                                       const RunCounters& counters, comm::Group& world);

// A committed checkpoint that is to be loaded by this rank.
class StoredState {
 public:
  // Its manifest alone is read. BadDataError: it is of another model, or of another optimizer (unless
  // weights_only), or its manifest is damaged.
  static absl::StatusOr<StoredState> Open(const std::string& path, const parallel::ShardedState& state,
                                          bool weights_only);
  // Fills the masters, and the optimizer's state unless weights_only. What it reads is verified: BadDataError
  // where it is not what was written or, which is put into `non_finite`, weights are not finite. The state is
  // then filled in part.
  absl::Status Read(parallel::ShardedState& state, bool* non_finite = nullptr) const;
  const RunCounters& counters() const { return counters_; }
  const std::string& description_json() const { return description_json_; }  // "": it has none

 private:
  StoredState(std::string path, checkpoint::CheckpointReader reader, bool weights_only)
      : path_(std::move(path)), reader_(std::move(reader)), weights_only_(weights_only) {}
  std::string path_;
  checkpoint::CheckpointReader reader_;
  bool weights_only_;
  RunCounters counters_;
  std::string description_json_;
};

// Local. Opens and reads.
absl::StatusOr<RunCounters> LoadCheckpoint(const std::string& path, parallel::ShardedState& state,
                                           bool weights_only);

// Elements of a type that can be loaded, as floats: exact.
void ConvertToFloat(DType dtype, const std::byte* raw, absl::Span<float> values);
// Local. Elements of a tensor of a Hugging Face folder from the `begin`-th on, as floats.
absl::Status ReadFloats(const checkpoint::ModelFolder& folder, const checkpoint::ModelTensor& tensor,
                        int64_t begin, absl::Span<float> values);
// Local. Fills the masters from such a folder.
absl::Status LoadModelFolder(const std::string& path, parallel::ShardedState& state);

}  // namespace trainctl::trainer
