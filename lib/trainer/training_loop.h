// The loop of training steps. Each step is trained (batch_reader.h, step_runner.h), counted (update_watch.h)
// and voted on by all ranks (votes.h). It is then logged (training_log.h), saved if due (checkpoint_saver.h,
// data_files_check.h) and evaluated if due (evaluation.h). start.h creates the objects that the loop needs.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "device/device.h"
#include "telemetry/metrics_log.h"
#include "trainer/batch_reader.h"
#include "trainer/data_files_check.h"
#include "trainer/evaluation.h"
#include "trainer/planned_run.h"
#include "trainer/progress.h"
#include "trainer/run_report.h"
#include "trainer/run_worker.h"
#include "trainer/start.h"
#include "trainer/step_runner.h"
#include "trainer/update_watch.h"
#include "trainer/votes.h"

namespace trainctl::trainer {

class TrainingLoop {
 public:
  // Borrows all arguments, which must outlive it.
  TrainingLoop(const WorkerDeps& deps, const device::Device& device, const PlannedRun& planned,
               StartedRun& run);

  // Collective. Trains until train.steps, a request to stop, or a failure. Call once.
  absl::StatusOr<RunOutcome> Run();

 private:
  struct TrainedStep {
    absl::Duration begin;
    ComputedStep computed;
    BatchHash hash;  // hash of this rank's part of the batch
    StepTimes::Named phases, operators;
  };

  absl::Status EvaluateBeforeFirstStep();
  absl::Status EvaluateRestoredStep();
  absl::Status EvaluateInitialWeights();

  absl::StatusOr<TrainedStep> TrainStep();
  void ReadNextBatch(TrainedStep& trained);
  absl::Status FinishStep(const TrainedStep& trained, const Agreement& agreed);
  absl::Status EvaluateStep(telemetry::StepRecord& record);
  absl::Status CheckUpdates(const ComputedStep& computed, const telemetry::StepRecord& record,
                            bool is_logged);
  telemetry::StepRecord RecordOf(const ComputedStep& computed, uint64_t batch_hash) const;
  absl::Status Save(SaveKind kind);
  bool IsLastStep() const;
  bool IsEvaluationDue() const;

  absl::StatusOr<RunOutcome> Finish();
  absl::Status Report();
  absl::StatusOr<RunOutcome> Close(RunOutcome outcome);

  const WorkerDeps& deps_;
  const recipe::Recipe& recipe_;
  const device::Device& device_;
  const PlannedRun& planned_;
  StartedRun& run_;
  RunCounters& counters_;
  BatchReader& batches_;
  TrainingLog& log_;
  CheckpointSaver& saver_;
  const PhaseReporter phases_;
  StepRunner step_runner_;
  UpdateWatch updates_;
  Votes votes_;
  DataFilesCheck data_files_;
  Evaluation evaluation_;
  bool evaluation_left_ = false;  // whether the last step is saved but not evaluated; a resumed run does so
};

}  // namespace trainctl::trainer
