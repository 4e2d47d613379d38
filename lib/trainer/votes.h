// Makes the decisions that all ranks must share: whether to stop, whether to save, and whether the save in
// progress goes to its next phase. Directives, clocks and disks differ between ranks, so each rank votes and
// the votes are summed over all ranks. Not thread-safe.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "comm/group.h"
#include "layout/mesh.h"
#include "parallel/executor.h"
#include "trainer/batch_reader.h"
#include "trainer/checkpoint_saver.h"
#include "trainer/checkpointing.h"
#include "trainer/run_worker.h"

namespace trainctl::trainer {

// The ranks' decisions after a step.
struct Agreement {
  bool stop = false;
  SaveKind save = SaveKind::kNone;
  uint64_t batch_hash = 0;  // hash of the step's batch
  bool lacks_data = false;  // whether a rank could not read the next batch
};

// The ranks' decisions between two batches of an evaluation.
struct EvaluationVote {
  bool stop = false;        // the same as stop_asked()
  bool lacks_data = false;  // whether a rank could not read its next batch; false if `stop` is set
};

class Votes {
 public:
  // Borrows all arguments, which must outlive it.
  Votes(const WorkerDeps& deps, const layout::Mesh& mesh, parallel::Executor& executor, comm::Group& world,
        CheckpointSaver& saver, const RunCounters& counters);

  // Whether a user or a signal has requested a stop, according to the last vote.
  bool stop_asked() const { return stop_asked_; }

  // Collective, as are DuringEvaluation and AfterStep. Returns whether the log of any rank lacks the line of
  // the restored step, and sets stop_asked().
  absl::StatusOr<bool> BeforeFirstStep(bool lacks_line);
  // Votes between two batches of an evaluation. `lacks_data` is whether this rank could not read the next
  // batch. Also advances the save in progress. Returns WorkerError if the launcher has told this rank to
  // abort.
  absl::StatusOr<EvaluationVote> DuringEvaluation(bool lacks_data);
  // Votes after a step. `hash` covers this rank's part of the step's batch, and `lacks_data` is whether this
  // rank could not read the next batch. Also advances the save in progress. Returns WorkerError if the
  // launcher has told this rank to abort.
  absl::StatusOr<Agreement> AfterStep(const BatchHash& hash, bool lacks_data);

  // Sets stop_asked() if the step of --stop-after is already done. Local.
  void ApplyStopAfter() { stop_asked_ = stop_asked_ || StopsAfterThisStep(); }

 private:
  bool StopsAfterThisStep() const;
  bool CountsBatch() const;

  const WorkerDeps& deps_;
  const recipe::Recipe& recipe_;
  const layout::Mesh& mesh_;
  parallel::Executor& executor_;
  comm::Group& world_;
  CheckpointSaver& saver_;
  const RunCounters& counters_;
  bool stop_asked_ = false;
  int64_t saves_made_ = 0;  // number of saves made at a user's request
};

}  // namespace trainctl::trainer
