#include "monitor/run_metrics.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace trainctl::monitor {
namespace {

using Labels = std::vector<std::pair<std::string, std::string>>;

constexpr char kStateName[] = "trainctl_state";

class FamilyBuilder {
 public:
  explicit FamilyBuilder(const RunMetrics& run) : run_(run) {}

  std::vector<MetricFamily> Build() {
    AddRun();
    AddProgress();
    AddSpeed();
    AddCheckpoint();
    return std::move(families_);
  }

 private:
  MetricFamily& Add(MetricType type, const char* name, const char* unit, const char* help) {
    return families_.emplace_back(MetricFamily{name, type, unit, help, {}});
  }

  Labels LabelsWith(Labels labels) const {
    labels.insert(labels.begin(), {"run", run_.run_name});
    return labels;
  }

  void Put(MetricFamily& family, double value, Labels labels = {}) const {
    family.samples.push_back({LabelsWith(std::move(labels)), value});
  }

  void AddGauge(const char* name, const char* unit, const char* help, const std::optional<double>& value) {
    if (value.has_value()) Put(Add(MetricType::kGauge, name, unit, help), *value);
  }

  void AddTime(const char* name, const char* help, absl::Time time) {
    if (time == absl::InfinitePast()) return;
    AddGauge(name, "seconds", help, absl::ToDoubleSeconds(time - absl::UnixEpoch()));
  }

  void AddRun() {
    Put(Add(MetricType::kInfo, "trainctl_run", "", "The run and its folder."), 1,
        {{"run_dir", run_.run_dir}});
    MetricFamily& state = Add(MetricType::kStateSet, kStateName, "", "How the run is: one of these is 1.");
    for (const run::RunStatus status :
         {run::RunStatus::kRunning, run::RunStatus::kFinished, run::RunStatus::kStopped,
          run::RunStatus::kStoppedUnsaved, run::RunStatus::kFailed}) {
      Put(state, run_.state.status == status ? 1 : 0,
          {{kStateName, std::string(run::RunStatusName(status))}});
    }
    AddTime("trainctl_start_time_seconds", "When this launch began, in Unix time.", run_.state.started);
    Put(Add(MetricType::kCounter, "trainctl_restarts", "", "Restarts of the workers in this launch."),
        static_cast<double>(run_.state.num_restarts));
  }

  void AddProgress() {
    const telemetry::RunNumbers& numbers = run_.numbers;
    if (numbers.step >= 0) {
      AddGauge("trainctl_step", "", "The last logged step; 0 is before training.",
               static_cast<double>(numbers.step));
    }
    AddGauge("trainctl_steps_target", "", "Steps after which the run is finished.",
             static_cast<double>(run_.total_steps));
    AddGauge("trainctl_loss", "", "Training loss of the last logged step, in nats per token.", numbers.loss);
    MetricFamily& evaluation = Add(MetricType::kGauge, "trainctl_evaluation_loss", "",
                                   "Last loss of each evaluation set, in nats per token.");
    for (const auto& [set, losses] : numbers.evaluation) Put(evaluation, losses.last.loss, {{"set", set}});
    AddGauge("trainctl_learning_rate", "", "Learning rate of the last logged step.", numbers.lr);
    AddGauge("trainctl_gradient_norm", "", "Norm of the gradient before clipping, of the last logged step.",
             numbers.grad_norm);
    if (numbers.tokens.has_value()) {
      Put(Add(MetricType::kCounter, "trainctl_tokens", "tokens",
              "Tokens trained since the start of the run."),
          static_cast<double>(*numbers.tokens));
    }
  }

  void AddSpeed() {
    const telemetry::RunNumbers& numbers = run_.numbers;
    AddGauge("trainctl_tokens_per_second", "", "Speed of the last step, all workers together.",
             numbers.tokens_per_second);
    AddGauge("trainctl_mfu_ratio", "ratio",
             "Share of the devices' peak that the model used in the last step.", numbers.mfu);
    AddGauge("trainctl_last_step_time_seconds", "seconds", "When the last step was done, in Unix time.",
             numbers.done_s);
    std::optional<double> predicted;
    if (run_.predicted_peak_bytes.has_value()) predicted = static_cast<double>(*run_.predicted_peak_bytes);
    AddGauge("trainctl_memory_peak_predicted_bytes", "bytes",
             "Predicted peak of the tensors of the fullest worker.", predicted);
    MetricFamily& measured = Add(MetricType::kGauge, "trainctl_memory_peak_bytes", "bytes",
                                 "Measured peak of the tensors of each worker.");
    std::map<int, int64_t> peaks = run_.peak_bytes;
    if (numbers.peak_bytes.has_value()) peaks[0] = std::max(peaks[0], *numbers.peak_bytes);
    for (const auto& [rank, bytes] : peaks) {
      Put(measured, static_cast<double>(bytes), {{"rank", absl::StrCat(rank)}});
    }
  }

  void AddCheckpoint() {
    if (run_.state.last_checkpoint_step < 0) return;
    AddGauge("trainctl_last_checkpoint_step", "", "Step of the last checkpoint.",
             static_cast<double>(run_.state.last_checkpoint_step));
    AddTime("trainctl_last_checkpoint_time_seconds", "When the last checkpoint was complete, in Unix time.",
            run_.state.last_checkpoint);
  }

  const RunMetrics& run_;
  std::vector<MetricFamily> families_;
};

}  // namespace

std::vector<MetricFamily> FamiliesOf(const RunMetrics& run) { return FamilyBuilder(run).Build(); }

}  // namespace trainctl::monitor
