// A priced step as pages and traces show it.

#include <algorithm>
#include <utility>

#include "frameworks/timeline.h"

namespace trainctl::frameworks {
namespace {

report::PeakMemory PeakOf(const MemoryPrice& price) {
  const auto part = [&price](MemoryPart which) { return price.parts[static_cast<size_t>(which)]; };
  return {.parameter_bytes = part(MemoryPart::kParameters),
          .gradient_bytes = part(MemoryPart::kGradients),
          .optimizer_bytes = part(MemoryPart::kOptimizer),
          .activation_bytes = part(MemoryPart::kActivations),
          .work_bytes = part(MemoryPart::kWork),
          .logit_bytes = part(MemoryPart::kLogits),
          .outside_bytes = part(MemoryPart::kOutside),
          .lost_bytes = price.device_bytes - price.allocated_bytes - part(MemoryPart::kOutside),
          .device_bytes = price.device_bytes,
          .upper_bytes = price.upper_bytes};
}

// What the forward does not wait for, the backward does.
report::StagePicture StageOf(const StageSeconds& s, double forward_s) {
  const double exchanges = s.tensor + s.expert + s.context;
  const double waited = forward_s - s.forward;
  const double f = exchanges > 0 ? std::clamp(waited / exchanges, 0.0, 1.0) : 0;
  const double b = 1 - f;
  return {.forward_s = s.forward,
          .backward_s = s.backward,
          .recompute_s = s.recompute,
          .in_forward = {.tensor = f * s.tensor, .expert = f * s.expert, .context = f * s.context},
          .in_backward = {.tensor = b * s.tensor, .expert = b * s.expert, .context = b * s.context}};
}

void Add(const report::ExchangeSeconds& more, report::ExchangeSeconds& sum) {
  sum.tensor += more.tensor;
  sum.expert += more.expert;
  sum.context += more.context;
}

std::vector<report::StagePicture> StagesOf(const Timeline& timeline) {
  const StepParts& parts = timeline.parts;
  std::vector<report::StagePicture> stages;
  for (size_t i = 0; i < parts.stages.size(); ++i) {
    stages.push_back(StageOf(parts.stages[i], parts.pipeline.stages[i].forward_s));
  }
  // Without a pipeline all stages are one.
  if (static_cast<int64_t>(stages.size()) != timeline.num_stages && !stages.empty()) {
    for (size_t i = 1; i < stages.size(); ++i) {
      stages[0].forward_s += stages[i].forward_s;
      stages[0].backward_s += stages[i].backward_s;
      stages[0].recompute_s += stages[i].recompute_s;
      Add(stages[i].in_forward, stages[0].in_forward);
      Add(stages[i].in_backward, stages[0].in_backward);
    }
    stages.resize(1);
  }
  for (report::StagePicture& stage : stages) {
    stage.in_forward.data = timeline.data_per_forward_s;
    stage.in_backward.data = timeline.data_per_backward_s;
  }
  return stages;
}

report::StepTerms TermsOf(const TimePrice& price) {
  return {.compute_s = price.compute_seconds,
          .recompute_s = price.recompute_seconds,
          .tensor_s = price.tensor_seconds,
          .expert_s = price.expert_seconds,
          .context_s = price.context_seconds,
          .pipeline_s = price.pipeline_seconds,
          .data_s = price.data_seconds,
          .optimizer_s = price.optimizer_seconds,
          .offload_s = price.offload_seconds};
}

}  // namespace

report::StepPicture PictureOf(Timeline timeline) {
  report::StepPicture step;
  step.stages = StagesOf(timeline);
  step.num_stages = timeline.num_stages;
  step.num_micro_batches = timeline.num_micro_batches;
  step.left_out_micro_batches = timeline.left_out_micro_batches;
  step.left_out_s = timeline.left_out_s;
  step.end_s = timeline.end_s;
  step.step_s = timeline.parts.price.step_seconds;
  step.terms = TermsOf(timeline.parts.price);
  for (RankTimeline& rank : timeline.ranks) {
    step.ranks.push_back({.streams = std::move(rank.streams),
                          .samples = std::move(rank.samples),
                          .state_bytes = rank.state_bytes,
                          .outside_bytes = rank.outside_bytes,
                          .peak = PeakOf(rank.memory)});
  }
  return step;
}

}  // namespace trainctl::frameworks
