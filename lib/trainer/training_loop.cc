#include "trainer/training_loop.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace trainctl::trainer {

TrainingLoop::TrainingLoop(const WorkerDeps& deps, const device::Device& device, const PlannedRun& planned,
                           StartedRun& run)
    : deps_(deps),
      recipe_(*deps.recipe),
      device_(device),
      planned_(planned),
      run_(run),
      counters_(run.counters),
      batches_(*run.batches),
      log_(*run.log),
      saver_(*run.saver),
      phases_(*deps.control, device, counters_),
      step_runner_(deps, device, planned, *run.executor, counters_),
      updates_(deps, *run.state, *run.world, saver_, counters_),
      votes_(deps, planned.plan.layout.mesh, *run.executor, *run.world, saver_, counters_),
      data_files_(run.data_stamps, *run.world, saver_, counters_),
      evaluation_(deps, planned, run.data.eval, batches_, *run.executor, data_files_, votes_) {}

absl::StatusOr<RunOutcome> TrainingLoop::Run() {
  saver_.StartTimer();
  TRAINCTL_RETURN_IF_ERROR(EvaluateBeforeFirstStep());
  if (votes_.stop_asked()) return Close(RunOutcome::kStoppedOnRequest);  // there is nothing new to save
  bool stop = false;
  while (counters_.step < recipe_.train.steps && !stop) {
    TRAINCTL_ASSIGN_OR_RETURN(TrainedStep trained, TrainStep());
    ReadNextBatch(trained);
    TRAINCTL_ASSIGN_OR_RETURN(const Agreement agreed,
                              votes_.AfterStep(trained.hash, !batches_.status().ok()));
    TRAINCTL_RETURN_IF_ERROR(FinishStep(trained, agreed));
    stop = agreed.stop || votes_.stop_asked();
    if (agreed.lacks_data && !stop) return data_files_.EndForLackOfData(batches_.status());
  }
  return Finish();
}

// ---- before the first step ------------------------------------------------------------------

// Evaluates the initial weights, or the step after which a run was stopped or killed before it was evaluated.
absl::Status TrainingLoop::EvaluateBeforeFirstStep() {
  TRAINCTL_ASSIGN_OR_RETURN(const bool completes_log, votes_.BeforeFirstStep(log_.lacks_line()));
  if (votes_.stop_asked()) return absl::OkStatus();
  if (completes_log) {
    TRAINCTL_RETURN_IF_ERROR(EvaluateRestoredStep());
  } else if (counters_.step == 0) {
    TRAINCTL_RETURN_IF_ERROR(EvaluateInitialWeights());
  }
  counters_.unlogged_json.clear();
  if (completes_log) votes_.ApplyStopAfter();
  return absl::OkStatus();
}

absl::Status TrainingLoop::EvaluateRestoredStep() {
  deps_.control->Report({.step = -1, .phase = "evaluate"});
  TRAINCTL_ASSIGN_OR_RETURN(const std::optional<EvalLosses> losses, evaluation_.Run());
  if (!deps_.is_first_rank()) return absl::OkStatus();
  if (losses.has_value()) saver_.NoteLosses(*losses);
  return log_.AppendMissingLine(losses);
}

absl::Status TrainingLoop::EvaluateInitialWeights() {
  if (run_.data.eval.empty()) return absl::OkStatus();
  phases_.Report("evaluate");
  TRAINCTL_ASSIGN_OR_RETURN(const std::optional<EvalLosses> losses, evaluation_.Run());
  if (!losses.has_value() || !deps_.is_first_rank()) return absl::OkStatus();
  return log_.AppendInitialLosses(*losses);
}

// ---- a step ---------------------------------------------------------------------------------

absl::StatusOr<TrainingLoop::TrainedStep> TrainingLoop::TrainStep() {
  TrainedStep trained;
  trained.begin = deps_.clock->Monotonic();
  const int64_t step = counters_.step;
  const int64_t peak_bytes = device_.memory().peak;
  deps_.control->Report({step + 1, "data", peak_bytes});
  TRAINCTL_ASSIGN_OR_RETURN(const data::Batch batch, batches_.Take(step));
  batches_.ReadAhead(step + 1);
  const double data_seconds = absl::ToDoubleSeconds(deps_.clock->Monotonic() - trained.begin);
  deps_.control->Report({step + 1, "step", peak_bytes});

  TRAINCTL_ASSIGN_OR_RETURN(trained.computed, step_runner_.Run(batch));
  TRAINCTL_RETURN_IF_ERROR(updates_.CheckFinite(trained.computed));
  updates_.Count(trained.computed.result);
  trained.hash = batches_.Hash(batch);
  ++counters_.step;
  counters_.tokens += recipe_.train.batch_sequences * recipe_.data.seq_len;

  trained.phases = {{"data", data_seconds}};
  for (const auto& [phase, seconds] : run_.executor->phase_seconds())
    trained.phases.emplace_back(phase, seconds);
  const std::map<std::string, double> operators = run_.executor->operator_seconds();
  trained.operators.assign(operators.begin(), operators.end());
  return trained;
}

void TrainingLoop::ReadNextBatch(TrainedStep& trained) {
  if (IsLastStep()) return;
  const absl::Duration begin = deps_.clock->Monotonic();
  phases_.Report("data");
  batches_.ReadNext(counters_.step);
  phases_.Report("step");
  trained.phases.front().second += absl::ToDoubleSeconds(deps_.clock->Monotonic() - begin);
}

// Logs, saves and evaluates a step. The save comes before the evaluation, so that a run that is killed while
// it evaluates has lost nothing. The log gets one line per step, which includes the evaluation. Until then
// the checkpoint keeps the record, and a resumed run evaluates and completes the log.
absl::Status TrainingLoop::FinishStep(const TrainedStep& trained, const Agreement& agreed) {
  const double step_seconds = absl::ToDoubleSeconds(deps_.clock->Monotonic() - trained.begin);
  telemetry::StepRecord record = RecordOf(trained.computed, agreed.batch_hash);
  TRAINCTL_RETURN_IF_ERROR(log_.AppendTiming(record.step, step_seconds, trained.phases, trained.operators));
  const bool evaluates = IsEvaluationDue() && !run_.data.eval.empty();
  const bool logs_now = !evaluates || votes_.stop_asked();
  if (logs_now) TRAINCTL_RETURN_IF_ERROR(log_.AppendStep(record, evaluates));
  TRAINCTL_RETURN_IF_ERROR(CheckUpdates(trained.computed, record, logs_now));
  if (evaluates) counters_.unlogged_json = absl::StrCat("{", telemetry::FormatFields(record), "}");
  SaveKind save = agreed.save;
  if (agreed.stop || (IsLastStep() && recipe_.checkpoint.at_end)) save = SaveKind::kWanted;
  const absl::Status saved = save != SaveKind::kNone ? Save(save) : absl::OkStatus();
  if (!saved.ok()) {
    if (!logs_now) TRAINCTL_RETURN_IF_ERROR(log_.AppendStep(record, /*always=*/true));
    return saved;
  }
  if (!evaluates) return IsLastStep() ? data_files_.Run() : absl::OkStatus();
  if (!votes_.stop_asked()) TRAINCTL_RETURN_IF_ERROR(EvaluateStep(record));
  evaluation_left_ = !counters_.unlogged_json.empty();
  if (evaluation_left_ && deps_.is_first_rank()) {
    PrintLine(absl::StrCat("stopped during the evaluation of step ", counters_.step, "; resume repeats it"));
  }
  return absl::OkStatus();
}

absl::Status TrainingLoop::EvaluateStep(telemetry::StepRecord& record) {
  phases_.Report("evaluate");
  TRAINCTL_ASSIGN_OR_RETURN(const std::optional<EvalLosses> losses, evaluation_.Run());
  if (losses.has_value()) {
    record.eval = *losses;
    counters_.unlogged_json.clear();
    saver_.NoteLosses(*losses);
  }
  TRAINCTL_RETURN_IF_ERROR(log_.AppendStep(record, /*always=*/true));
  if (!votes_.stop_asked()) return absl::OkStatus();
  TRAINCTL_RETURN_IF_ERROR(saver_.Finish());
  return saver_.saved_step() != counters_.step ? Save(SaveKind::kWanted) : absl::OkStatus();
}

// Ends a run that makes no updates any more. The step is logged first, but not saved.
absl::Status TrainingLoop::CheckUpdates(const ComputedStep& computed, const telemetry::StepRecord& record,
                                        bool is_logged) {
  if (!updates_.HasStalled()) return absl::OkStatus();
  if (!is_logged) TRAINCTL_RETURN_IF_ERROR(log_.AppendStep(record, /*always=*/true));
  return updates_.StallError(computed);
}

telemetry::StepRecord TrainingLoop::RecordOf(const ComputedStep& computed, uint64_t batch_hash) const {
  const parallel::StepResult& result = computed.result;
  telemetry::StepRecord record;
  record.step = counters_.step;
  record.loss = result.loss_tokens > 0 ? std::optional<double>(result.loss) : std::nullopt;
  record.grad_norm = result.grad_norm;
  record.lr = computed.lr;
  record.tokens = counters_.tokens;
  record.batch_hash = batch_hash;
  record.skipped = !result.finite;
  record.skipped_steps = counters_.skipped;
  return record;
}

absl::Status TrainingLoop::Save(SaveKind kind) {
  if (saver_.Skips(kind)) return absl::OkStatus();
  TRAINCTL_RETURN_IF_ERROR(data_files_.Run());
  return saver_.Write(kind);
}

bool TrainingLoop::IsLastStep() const { return counters_.step == recipe_.train.steps; }

bool TrainingLoop::IsEvaluationDue() const {
  return IsLastStep() || (recipe_.train.eval_every > 0 && counters_.step % recipe_.train.eval_every == 0);
}

// ---- the end --------------------------------------------------------------------------------

absl::StatusOr<RunOutcome> TrainingLoop::Finish() {
  if (saver_.saved_step() != counters_.step && recipe_.checkpoint.at_end)
    TRAINCTL_RETURN_IF_ERROR(Save(SaveKind::kWanted));
  TRAINCTL_RETURN_IF_ERROR(saver_.Finish());
  if (deps_.is_first_rank()) {
    TRAINCTL_RETURN_IF_ERROR(log_.Sync());
    updates_.PrintSummary();
  }
  // A start that only completes an evaluation has measured no step.
  if (!run_.executor->executed_hash().empty()) TRAINCTL_RETURN_IF_ERROR(Report());
  const bool is_done = counters_.step >= recipe_.train.steps && !evaluation_left_;
  return Close(is_done ? RunOutcome::kFinished : RunOutcome::kStoppedOnRequest);
}

// Compares the run with the plan's prediction.
absl::Status TrainingLoop::Report() {
  phases_.Report("report");
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<MeasuredMemory> by_rank, GatherMemory(device_, *run_.world));
  if (!deps_.is_first_rank()) return absl::OkStatus();
  TRAINCTL_RETURN_IF_ERROR(deps_.CheckRunFolder());
  TRAINCTL_ASSIGN_OR_RETURN(
      const std::vector<std::string> lines,
      WriteReport(deps_.report_path, planned_.plan, recipe_.model.spec, planned_.training,
                  run_.executor->executed_hash(), by_rank, log_.times()));
  for (const std::string& line : lines) PrintLine(line);
  return absl::OkStatus();
}

// Everything is saved, so a failure from here on must not cause any step to be repeated.
absl::StatusOr<RunOutcome> TrainingLoop::Close(RunOutcome outcome) {
  if (deps_.announce_end) TRAINCTL_RETURN_IF_ERROR(deps_.announce_end(outcome));
  if (const absl::Status closed = run_.groups.Close(); !closed.ok()) {
    PrintLine(absl::StrCat("warning: ", closed.message()));
  }
  return outcome;
}

}  // namespace trainctl::trainer
