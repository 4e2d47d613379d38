#include "report/explain_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/units.h"
#include "plan/utilization.h"

namespace trainctl::report {
namespace {

// The largest term of memory and what lowers it.
std::string MemoryBinding(const plan::Plan& plan) {
  const auto& at_peak = plan.predicted.at_peak;
  const auto largest = std::max_element(at_peak.begin(), at_peak.end());
  const auto category = static_cast<schedule::Category>(largest - at_peak.begin());
  const char* lowers = "";
  switch (category) {
    case schedule::Category::kActivations:
      lowers =
          plan.layout.recompute == layout::Recompute::kNone
              ? "parallel.recompute = \"selective\" or \"full\", or a smaller train.micro_batch, reduces them"
          : plan.layout.recompute != layout::Recompute::kFull
              ? "parallel.recompute = \"full\" or a smaller train.micro_batch reduces them"
          : !plan.layout.recomputed_layers.empty()
              ? "more parallel.recomputed_layers or a smaller train.micro_batch reduces them"
              : "a smaller train.micro_batch or data.seq_len reduces them";
      break;
    case schedule::Category::kOptimizer:
    case schedule::Category::kGradients:
    case schedule::Category::kParameters:
      lowers = plan.layout.zero_stage < 3 ? "a higher parallel.zero_stage shards more of them"
                                          : "more workers in dp_shard reduce each worker's share";
      break;
    case schedule::Category::kBuffers:
      lowers = "parallel.prefetch = false keeps one block's parameters and gradients instead of two";
      break;
  }
  return absl::StrCat("memory: ", schedule::CategoryName(category), ", ", FormatBytes(*largest), " of ",
                      FormatBytes(plan.predicted.peak_bytes), " at the peak (", plan.predicted.peak_where,
                      "); ", lowers);
}

}  // namespace

PlanExplanation ExplainPlan(const plan::Plan& plan, const model::Architecture& spec) {
  PlanExplanation explanation;
  const plan::PlannedStep planned = plan::BuildStep(plan, spec);
  explanation.memory = simulate::LiveAtPeak(
      planned.step.programs[static_cast<size_t>(simulate::ClassWithMost(planned.step))], plan.predicted);
  explanation.axes = simulate::VolumesOf(planned.step, planned.ledger, planned.options);
  double sum = 0;
  for (const auto& [name, work] : simulate::WorkOfStep(planned.step, planned.ledger, planned.options)) {
    const double seconds = plan.rates.Seconds(work);
    if (seconds <= 0) continue;
    explanation.time.push_back({name, seconds});
    sum += seconds;
  }
  // Of a pipeline these are the first stage's.
  const double waits = plan::Chosen(plan).step_seconds - sum;
  if (plan.layout.mesh.pp > 1 && waits > 0) {
    explanation.time.push_back({"waiting for other stages", waits});
    sum += waits;
  }
  std::stable_sort(explanation.time.begin(), explanation.time.end(),
                   [](const TimeTerm& a, const TimeTerm& b) { return a.seconds > b.seconds; });
  explanation.step_seconds = plan::Chosen(plan).step_seconds;
  const double hidden = sum - explanation.step_seconds;
  explanation.overlapped_seconds = hidden > 1e-6 * sum ? hidden : 0;  // less is rounding
  explanation.bindings.push_back(MemoryBinding(plan));
  const TimeTerm& longest = explanation.time.front();
  explanation.bindings.push_back(
      absl::StrFormat("time: %s, %.1f %% of all work", longest.name, longest.seconds / sum * 100));
  explanation.trust.push_back(
      plan.device == "cpu" ? "memory: computed instruction by instruction from the step that will run; on a "
                             "CPU, accurate to within 3 %"
                           : "memory: computed from the step that will run, including the temporaries of the "
                             "device's kernels; on one H100, accurate to within 1 %. NCCL's buffers are not "
                             "included; cluster.memory_limit = auto reserves a tenth for them");
  explanation.trust.push_back(absl::StrCat("time: ", TrustInTime(plan)));
  return explanation;
}

std::string TrustInTime(const plan::Plan& plan) {
  if (plan.rates.measured) {
    return absl::StrCat("based on rates that `trainctl calibrate` measured on this ",
                        plan.device == "cpu"                 ? "machine"
                        : plan.layout.mesh.world_size() == 1 ? "device"
                        : plan.rates.machine == nullptr      ? "device; communication rates are guesses"
                                                             : "device; communication uses published rates");
  }
  if (plan.device == "cpu") {
    return "order-of-magnitude estimates, good for comparing layouts; run `trainctl calibrate --device cpu` "
           "to measure this machine";
  }
  if (!plan::HasTimes(plan)) return "not for any particular device; only the order of layouts is meaningful";
  return absl::StrCat("based on published rates for ", plan.hardware,
                      ", good for comparing layouts; three runs on one H100 were within 4 %");
}

}  // namespace trainctl::report
