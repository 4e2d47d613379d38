#include "trainer/training_log.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "base/units.h"
#include "plan/utilization.h"
#include "telemetry/log_reader.h"
#include "trainer/progress.h"

namespace trainctl::trainer {
namespace {

std::string FormatLoss(const std::optional<double>& loss) {
  return loss.has_value() ? absl::StrFormat("%.4f", *loss) : "-";
}

std::string FormatLosses(const EvalLosses& losses) {
  std::string text;
  for (const auto& [name, loss] : losses) absl::StrAppend(&text, " ", name, " ", FormatLoss(loss));
  return text;
}

}  // namespace

TrainingLog::TrainingLog(const WorkerDeps& deps, const device::Device& device, const plan::Plan& plan)
    : deps_(deps), recipe_(*deps.recipe), device_(device), plan_(plan) {}

absl::Status TrainingLog::Open(int64_t saved_step, const std::string& unlogged_json) {
  TRAINCTL_RETURN_IF_ERROR(deps_.CheckRunFolder());
  telemetry::TensorboardOptions events;
  events.folder = deps_.tensorboard_path;
  events.metrics_path = deps_.metrics_path;
  events.timings_path = deps_.timings_path;
  events.recipe_text = deps_.recipe_text;
  events.now_s = NowSeconds();
  events.takes_folder = true;
  if (!unlogged_json.empty() && !telemetry::HasEvaluation(deps_.metrics_path, saved_step)) {
    TRAINCTL_ASSIGN_OR_RETURN(unlogged_, telemetry::ParseStepRecord(unlogged_json, "the checkpoint"));
    unlogged_->step = saved_step;
  }
  absl::StatusOr<telemetry::RunLog> log =
      telemetry::RunLog::Open(events, recipe_.metrics.tensorboard, saved_step, unlogged_.has_value());
  TRAINCTL_RETURN_IF_ERROR(log.status());
  log_.emplace(*std::move(log));
  SortChanges(saved_step);
  log_->set_peak_tokens_per_second(plan::PeakTokensPerSecond(plan_));
  return absl::OkStatus();
}

// Changes that take effect after the restored step are not part of its missing line.
void TrainingLog::SortChanges(int64_t saved_step) {
  std::vector<telemetry::RunChange> changes;
  for (const telemetry::RunChange& change : deps_.changes) {
    if (unlogged_.has_value() && change.after_step >= saved_step) {
      later_changes_.push_back(change);
    } else {
      changes.push_back(change);
    }
  }
  log_->NoteChanges(changes);
}

absl::Status TrainingLog::AppendMissingLine(const std::optional<EvalLosses>& losses) {
  if (losses.has_value()) unlogged_->eval = *losses;
  TRAINCTL_RETURN_IF_ERROR(log_->Append(*unlogged_, NowSeconds()));
  log_->NoteChanges(later_changes_);
  if (losses.has_value()) {
    PrintLine(absl::StrCat("after step ", unlogged_->step, ":", FormatLosses(*losses)));
  }
  return absl::OkStatus();
}

absl::Status TrainingLog::AppendInitialLosses(const EvalLosses& losses) {
  telemetry::StepRecord record;
  record.loss = record.grad_norm = record.lr = std::nullopt;  // nothing was trained
  record.eval = losses;
  TRAINCTL_RETURN_IF_ERROR(log_->Append(record, NowSeconds()));
  PrintLine("before training:" + FormatLosses(losses));
  return absl::OkStatus();
}

absl::Status TrainingLog::AppendTiming(int64_t step, double step_seconds, const StepTimes::Named& phases,
                                       const StepTimes::Named& operators) {
  times_.Add(step_seconds, phases, operators);
  tokens_per_second_ =
      static_cast<double>(recipe_.train.batch_sequences * recipe_.data.seq_len) / step_seconds;
  if (!deps_.is_first_rank()) return absl::OkStatus();
  TRAINCTL_RETURN_IF_ERROR(deps_.CheckRunFolder());
  const device::MemoryUse memory = device_.memory();
  TRAINCTL_RETURN_IF_ERROR(
      log_->Append(telemetry::TimingRecord{step,
                                           step_seconds,
                                           tokens_per_second_,
                                           phases,
                                           operators,
                                           {{"tensor_peak", memory.peak}, {"tensor_live", memory.live}},
                                           NowSeconds()}));
  return absl::OkStatus();
}

absl::Status TrainingLog::AppendStep(const telemetry::StepRecord& record, bool always) {
  if (!deps_.is_first_rank()) return absl::OkStatus();
  TRAINCTL_RETURN_IF_ERROR(deps_.CheckRunFolder());
  always = always || record.step == recipe_.train.steps;
  const bool is_notable = record.skipped || !record.loss.has_value();
  if (always || is_notable || record.step % recipe_.metrics.every_steps == 0) {
    TRAINCTL_RETURN_IF_ERROR(log_->Append(record, NowSeconds()));
  }
  WarnOfTrouble();
  const absl::Duration now = deps_.clock->Monotonic();
  if (!always && now - last_line_ < absl::Seconds(1)) return absl::OkStatus();
  last_line_ = now;
  PrintStep(record);
  return absl::OkStatus();
}

void TrainingLog::PrintStep(const telemetry::StepRecord& record) const {
  const double peak = plan::PeakTokensPerSecond(plan_);
  const std::string mfu = peak > 0 ? absl::StrFormat(" mfu %.1f%%", 100 * tokens_per_second_ / peak) : "";
  PrintLine(absl::StrFormat("step %d/%d loss %s grad_norm %.3f lr %.3g %.0f tokens/s%s mem %s%s", record.step,
                            recipe_.train.steps, FormatLoss(record.loss), *record.grad_norm, *record.lr,
                            tokens_per_second_, mfu, FormatBytes(device_.memory().peak),
                            FormatLosses(record.eval)));
}

// Reports when the logs cannot be written, and when they can be again.
void TrainingLog::WarnOfTrouble() {
  const bool had_trouble = std::exchange(has_trouble_, !log_->trouble().ok());
  if (has_trouble_ == had_trouble) return;
  if (had_trouble) {
    PrintLine("the logs can be written again; no lines were lost");
  } else {
    PrintLine(absl::StrCat("warning: ", log_->trouble().message(),
                           "; training continues, and unwritten lines will be written later"));
  }
}

double TrainingLog::NowSeconds() const {
  return absl::ToDoubleSeconds(deps_.clock->Now() - absl::UnixEpoch());
}

}  // namespace trainctl::trainer
