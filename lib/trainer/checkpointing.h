// Writes the state of a run to a checkpoint and reads it back: this rank's slices of the tensors, and the
// run's counters. The slices come from the ledger, so a checkpoint can be read under a different layout than
// it was written with.
//
//   TRAINCTL_ASSIGN_OR_RETURN(const Written written, SaveCheckpoint(options, state, counters, world));
//   TRAINCTL_ASSIGN_OR_RETURN(counters, LoadCheckpoint(path, state, /*weights_only=*/false));
//
// A function marked "Local" does not communicate with other ranks. Not thread-safe.
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
#include "checkpoint/odd_weights.h"
#include "comm/communicator.h"
#include "parallel/sharded_state.h"
#include "recipe/recipe.h"

namespace trainctl::trainer {

// The part of a run's state that is not in tensors.
struct RunCounters {
  int64_t step = 0;     // completed steps
  int64_t updates = 0;  // steps that changed the weights
  int64_t tokens = 0;   // tokens of all completed steps
  int64_t skipped = 0;  // steps without an update because their loss or gradient was not finite
  // The record of `step` as a JSON object (telemetry::ParseStepRecord), if the step is saved before it is
  // evaluated. metrics.jsonl may then lack the step's line, or the evaluation in it. Empty if the log is
  // complete.
  std::string unlogged_json = {};
  bool operator==(const RunCounters&) const = default;
};

struct SaveOptions {
  std::string root;  // "<run>/checkpoints"
  std::string tag;   // see checkpoint::CheckpointWriter
  checkpoint::Retention retention;
  // Describes the conditions on which the run's exact bits depend, as JSON (DescribeNumerics in numerics.h).
  // A resume under other conditions prints the differences.
  std::string description_json;
  // Makes the run's logs durable. Called on rank 0 before the commit, on the thread that saves; may be empty.
  // An error fails the save.
  std::function<absl::Status()> sync_logs;
  // Checks that the run folder is still the same one. Called on every rank before each phase, on the thread
  // that saves; may be empty. An error ends the save.
  std::function<absl::Status()> check_folder;
  // Receives problems that do not affect the checkpoint. Called on rank 0, on the thread that saves; may be
  // empty.
  std::function<void(const std::string&)> warn;
};

// Returns the memory of this rank's part of a bucket, either in the state or in a copy of it.
using PartsOf = std::function<const optim::Parts&(int bucket)>;

// The number of bytes that a rank has written for a checkpoint, and the time to write and sync its file.
struct Written {
  int64_t bytes = 0;
  absl::Duration time;
};

// The phases of a save. All ranks must complete a phase before any rank begins the next. Only rank 0 has work
// in kBegin and kCommit.
enum class SavePhase : uint8_t { kBegin, kWrite, kCommit, kDone };

// One rank's part of a save. Allocates one buffer of host memory while it writes.
class RankSave {
 public:
  // Takes the ledger, rank and optimizer from `state`, and the values from `parts`, which is in the memory of
  // `device`. `device`, `state` and the memory of `parts` must outlive this object.
  RankSave(const SaveOptions& options, const device::Device& device, const parallel::ShardedState& state,
           PartsOf parts, const RunCounters& counters);

  SavePhase phase() const { return phase_; }
  // Does this rank's part of phase(), which must not be kDone. `cancelled` may be null; if it becomes true
  // during kWrite, the call soon returns a Cancelled status. Returns CheckFailedError if a weight is not
  // finite. Also returns the errors of checkpoint::CheckpointWriter and of the callbacks in the options. A
  // failure to remove older checkpoints is only a warning.
  absl::Status Do(const std::atomic<bool>* cancelled);
  // Goes to the next phase. Call this when every rank has completed phase().
  void Advance() { phase_ = static_cast<SavePhase>(static_cast<uint8_t>(phase_) + 1); }
  // Collective. Calls Advance if no rank has failed; `own` is the status of this rank's part. Otherwise
  // returns an error, as AllSucceeded.
  absl::Status AdvanceTogether(comm::Group& world, const absl::Status& own);
  int64_t step() const { return counters_.step; }
  const Written& written() const { return written_; }  // valid when kWrite is done

 private:
  absl::Status Write(const std::atomic<bool>* cancelled);
  absl::Status Commit();  // commits and removes older checkpoints

  const SaveOptions options_;
  const device::Device& device_;
  const parallel::ShardedState& state_;
  const PartsOf parts_;
  const RunCounters counters_;
  std::optional<checkpoint::CheckpointWriter> writer_;  // only on ranks that write
  SavePhase phase_ = SavePhase::kBegin;
  Written written_;
};

// Collective over `world`. Returns OK if `own` is OK on every rank. Otherwise returns `own` on the ranks that
// failed, and a WorkerError that contains `name` on the others, so that all ranks stop together.
absl::Status AllSucceeded(comm::Group& world, absl::string_view name, const absl::Status& own);

// Collective over `world`. Saves a checkpoint, and returns when it is committed. Returns the errors of
// RankSave::Do, or WorkerError if only another rank failed.
absl::StatusOr<Written> SaveCheckpoint(const SaveOptions& options, const parallel::ShardedState& state,
                                       const RunCounters& counters, comm::Group& world);

// A committed checkpoint from which this rank loads its state. Local.
class StoredState {
 public:
  // Opens the checkpoint and reads only its manifest. Returns BadDataError if the manifest is damaged or the
  // checkpoint is of another model. Unless weights_only, also returns BadDataError if it does not have
  // exactly the state of this optimizer. Returns EnvironmentError if its format is newer than this program.
  static absl::StatusOr<StoredState> Open(const std::string& path, const parallel::ShardedState& state,
                                          bool weights_only);
  // Fills the masters and, unless weights_only, the optimizer's state. Verifies all data that it reads.
  // Returns BadDataError if they are damaged or if a weight is not finite; in the second case also sets
  // `non_finite`, unless it is null. After an error, the state may be partly overwritten.
  absl::Status Read(parallel::ShardedState& state, bool* non_finite = nullptr) const;
  const RunCounters& counters() const { return counters_; }
  const std::string& description_json() const { return description_json_; }  // empty if it has none

 private:
  StoredState(std::string path, checkpoint::CheckpointReader reader, bool weights_only)
      : path_(std::move(path)), reader_(std::move(reader)), weights_only_(weights_only) {}
  std::string path_;
  checkpoint::CheckpointReader reader_;
  bool weights_only_;
  RunCounters counters_;
  std::string description_json_;
};

// Local. Opens a checkpoint, reads it into `state` and returns its counters. Returns the errors of
// StoredState.
absl::StatusOr<RunCounters> LoadCheckpoint(const std::string& path, parallel::ShardedState& state,
                                           bool weights_only);

// Like checkpoint::ConvertToFloat, but uses the vectorized kernels for F32 and BF16. `raw` holds
// values.size() elements.
void ConvertToFloat(DType dtype, const std::byte* raw, absl::Span<float> values);
// Local. Reads elements of a parameter from a Hugging Face folder, starting at element `begin`, and converts
// them to floats. Returns BadDataError if the data are damaged or not finite.
absl::Status ReadFloats(const checkpoint::ModelFolder& folder, const model::Parameter& parameter,
                        int64_t begin, absl::Span<float> values);
// Local. Fills the masters from a Hugging Face folder. Passes all weights that it reads to `odd`, unless it
// is null. Returns BadDataError if the folder does not fit the model, is damaged, or has weights that are not
// finite.
absl::Status LoadModelFolder(const std::string& path, parallel::ShardedState& state,
                             checkpoint::OddWeights* odd = nullptr);
// Collective over `world`. Warns of loaded weights that are finite but unlikely in a trained model. `odd` has
// seen the weights that this rank loaded from `path`. A rank with `holds_first_copy` warns of huge values in
// its part. Rank 0 warns of matrices that contain only zeros on all ranks.
absl::Status WarnOfOddWeights(const std::string& path, const checkpoint::OddWeights& odd,
                              const parallel::ShardedState& state, bool holds_first_copy, comm::Group& world,
                              const std::function<void(const std::string&)>& warn);

}  // namespace trainctl::trainer
