// Evaluates a run's weights during training, with the layout of the run. RunEval does the same for `trainctl
// eval`, in one process.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/batch_source.h"
#include "parallel/executor.h"
#include "trainer/batch_reader.h"
#include "trainer/data_files_check.h"
#include "trainer/planned_run.h"
#include "trainer/run_worker.h"
#include "trainer/training_log.h"
#include "trainer/votes.h"

namespace trainctl::trainer {

class Evaluation {
 public:
  // Borrows all arguments, which must outlive it.
  Evaluation(const WorkerDeps& deps, const PlannedRun& planned, const std::vector<data::EvalSet>& sets,
             const BatchReader& batches, parallel::Executor& executor, DataFilesCheck& data_files,
             Votes& votes);

  // Collective. Returns the loss of each set: the mean over all of its tokens that count toward the loss. It
  // is the same for every layout. The loss of a set without such tokens is nullopt. Returns nullopt instead
  // of the losses if a rank is asked to stop before the evaluation is complete; the ranks agree on that
  // before each batch. Returns an error if a data file has changed or a batch cannot be read
  // (data_files_check.h).
  absl::StatusOr<std::optional<EvalLosses>> Run();

 private:
  const WorkerDeps& deps_;
  const PlannedRun& planned_;
  const std::vector<data::EvalSet>& sets_;
  const BatchReader& batches_;
  parallel::Executor& executor_;
  DataFilesCheck& data_files_;
  Votes& votes_;
  std::set<std::string> without_targets_;  // sets for which the warning was printed
};

}  // namespace trainctl::trainer
