#include "report/plan_page.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/units.h"
#include "plan/precision_text.h"
#include "plan/utilization.h"
#include "report/explain_plan.h"
#include "report/machine_constants.h"
#include "simulate/timeline.h"

namespace trainctl::report {
namespace {

using schedule::Op;

SpanKind KindOf(Op op) {
  switch (op) {
    case Op::kForward:
    case Op::kRecompute:
    case Op::kLoss:
      return SpanKind::kForward;
    case Op::kLossAndGradient:
    case Op::kBackward:
      return SpanKind::kBackward;
    case Op::kBackwardInput:
      return SpanKind::kBackwardInput;
    case Op::kBackwardWeight:
      return SpanKind::kBackwardWeight;
    case Op::kSend:
      return SpanKind::kSendActivation;
    case Op::kReceive:
      return SpanKind::kWait;
    case Op::kGather:
    case Op::kGatherUpdated:
      return SpanKind::kGather;
    case Op::kReduceGradient:
    case Op::kSumCopies:
    case Op::kCountLossTokens:
    case Op::kReduceLoss:
      return SpanKind::kReduce;
    case Op::kGradNorm:
    case Op::kOptimizerStep:
      return SpanKind::kOptimizer;
  }
  return SpanKind::kForward;
}

double Sum(const std::array<int64_t, schedule::kNumCategories>& bytes) {
  double sum = 0;
  for (const int64_t b : bytes) sum += static_cast<double>(b);
  return sum;
}

// Parts of memory as the page names them: our buffers are its "work".
PeakMemory PeakOf(const simulate::MemoryReport& report) {
  const auto bytes = [&report](schedule::Category category) {
    return static_cast<double>(report.at_peak[static_cast<size_t>(category)]);
  };
  const double peak = static_cast<double>(report.peak_bytes);
  return {.parameter_bytes = bytes(schedule::Category::kParameters),
          .gradient_bytes = bytes(schedule::Category::kGradients),
          .optimizer_bytes = bytes(schedule::Category::kOptimizer),
          .activation_bytes = bytes(schedule::Category::kActivations),
          .work_bytes = bytes(schedule::Category::kBuffers),
          .device_bytes = peak,
          .upper_bytes = peak};
}

RankPicture RankOf(const schedule::Program& program, const simulate::Timeline& played) {
  RankPicture rank;
  for (const schedule::Stream& stream : program.streams) {
    const StreamKind kind = rank.streams.empty() ? StreamKind::kCompute
                            : stream.peer < 0    ? StreamKind::kData
                                                 : StreamKind::kSend;
    rank.streams.push_back({kind, stream.name, {}});
  }
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const schedule::Instruction& instruction = program.instructions[i];
    const simulate::InstructionTime& time = played.times[i];
    const bool is_pass = RunsBlock(instruction.op);
    rank.streams[static_cast<size_t>(instruction.stream)].spans.push_back(
        {time.begin_s, time.end_s(), KindOf(instruction.op), is_pass ? instruction.block : -1,
         is_pass ? instruction.micro_batch : -1});
  }
  rank.peak = PeakOf(simulate::SimulateMemory(program));
  const auto& held = played.memory.front().bytes;
  const size_t activations = static_cast<size_t>(schedule::Category::kActivations);
  rank.state_bytes = Sum(held) - static_cast<double>(held[activations]);
  for (const simulate::MemorySample& sample : played.memory) {
    rank.samples.push_back(
        {.time_s = sample.time_s, .activation_bytes = static_cast<double>(sample.bytes[activations])});
  }
  return rank;
}

// Of the first class of ranks.
StepTerms TermsOf(const schedule::Program& program, const simulate::Timeline& played) {
  StepTerms terms;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const schedule::Op op = program.instructions[i].op;
    const double seconds = played.times[i].seconds;
    if (op == Op::kRecompute) {
      terms.recompute_s += seconds;
    } else if (RunsBlock(op)) {
      terms.compute_s += seconds;
    } else if (KindOf(op) == SpanKind::kOptimizer) {
      terms.optimizer_s += seconds;
    }
  }
  // What nothing covers of the collectives, and of the waits of a pipeline.
  terms.data_s = std::max(0.0, played.step_seconds - terms.compute_s - terms.recompute_s - terms.optimizer_s);
  return terms;
}

StepPicture PictureOf(const plan::Plan& plan, const model::Architecture& spec,
                      const plan::PlannedStep& step) {
  const size_t num_blocks = static_cast<size_t>(step.ledger.num_blocks());
  StepPicture picture;
  picture.num_stages = static_cast<int64_t>(num_blocks);
  picture.num_micro_batches = plan.layout.num_micro_batches;
  picture.stages.resize(num_blocks);
  for (size_t c = 0; c < step.step.programs.size(); ++c) {
    const simulate::Timeline played =
        simulate::PlayStep(step.step, step.ledger, step.options, plan.rates, static_cast<int>(c));
    picture.end_s = picture.step_s = std::max(picture.step_s, played.step_seconds);
    if (c == 0) picture.terms = TermsOf(step.step.programs[c], played);
    picture.ranks.push_back(RankOf(step.step.programs[c], played));
  }
  return picture;
}

std::vector<Alternative> OthersOf(const plan::Plan& plan) {
  std::vector<Alternative> others;
  for (const plan::Candidate& candidate : plan.candidates) {
    if (candidate.chosen) continue;
    Alternative other;
    other.name = candidate.layout.ToString();
    other.fits = candidate.fits;
    other.device_bytes = static_cast<double>(candidate.memory.peak_bytes);
    other.step_seconds = candidate.step_seconds;
    other.reason = candidate.reason;
    others.push_back(std::move(other));
  }
  // What fits by speed, then the nearest that does not.
  std::stable_sort(others.begin(), others.end(), [](const Alternative& a, const Alternative& b) {
    if (a.fits != b.fits) return a.fits;
    return a.fits ? a.step_seconds < b.step_seconds : a.device_bytes < b.device_bytes;
  });
  return others;
}

ParetoChart ChartOf(const plan::Plan& plan) {
  ParetoChart chart = {"memory, MiB", "step, s", {}};
  for (const plan::Candidate& a : plan.candidates) {
    const bool is_beaten =
        std::any_of(plan.candidates.begin(), plan.candidates.end(), [&](const plan::Candidate& b) {
          return b.memory.peak_bytes <= a.memory.peak_bytes && b.step_seconds <= a.step_seconds &&
                 (b.memory.peak_bytes < a.memory.peak_bytes || b.step_seconds < a.step_seconds);
        });
    chart.points.push_back({a.layout.ToString(), static_cast<double>(a.memory.peak_bytes) / (1 << 20),
                            a.step_seconds, !is_beaten, a.chosen});
  }
  return chart;
}

}  // namespace

std::vector<PageConstant> RatesOf(const plan::Plan& plan) {
  const char* const calibrated = "trainctl calibrate, on this machine";
  if (plan.rates.machine != nullptr) {
    std::vector<PageConstant> constants = ConstantsOf(*plan.rates.machine->device, *plan.rates.machine->node);
    if (!plan.rates.measured) return constants;
    const auto add = [&](const char* name, double value) {
      constants.push_back({name, absl::StrFormat("%.3g", value), calibrated, "measured"});
    };
    add("products, measured/catalogue", plan.rates.scales.products);
    add("attention, measured/catalogue", plan.rates.scales.attention);
    add("attention backward, measured/catalogue", plan.rates.scales.attention_backward);
    add("seconds per byte of memory traffic", plan.rates[simulate::Resource::kMovedBytes]);
    add("seconds per launch", plan.rates[simulate::Resource::kOperators]);
    return constants;
  }
  std::vector<PageConstant> constants;
  const char* origin = plan.rates.measured ? "measured" : "inferred";
  const char* source = plan.rates.measured    ? calibrated
                       : plan.device == "cpu" ? "order-of-magnitude rates for a CPU (lib/simulate/cost.h)"
                                              : "not for any particular device (lib/simulate/cost.h)";
  for (int i = 0; i < simulate::kNumResources; ++i) {
    const auto resource = static_cast<simulate::Resource>(i);
    if (plan.rates[resource] <= 0) continue;
    constants.push_back({absl::StrCat("seconds per unit of ", simulate::ResourceName(resource)),
                         absl::StrFormat("%.3g", plan.rates[resource]), source, origin});
  }
  return constants;
}

PageInput PageOfPlan(const plan::Plan& plan, const recipe::Recipe& recipe) {
  const model::Architecture& spec = recipe.model.spec;
  const plan::PlannedStep step = plan::BuildStep(plan, spec);
  PageInput page;
  page.title = recipe.run.name;
  page.tokens_per_step = recipe.train.batch_sequences * recipe.data.seq_len;
  page.devices = plan.layout.mesh.world_size();
  page.memory_limit_bytes = static_cast<double>(plan.memory_limit_bytes);
  page.step = PictureOf(plan, spec, step);
  page.what_if = OthersOf(plan);
  page.pareto = ChartOf(plan);
  page.constants = RatesOf(plan);
  page.facts = {
      {"Model", absl::StrCat(FormatCount(plan.num_parameters), " parameters, ", NumLayers(spec),
                             " layers of ", spec.hidden)},
      {"Workers",
       absl::StrCat(page.devices, " \u00d7 ", plan.hardware.empty() ? plan.device : plan.hardware)},
      {"Layout", plan.layout.ToString()},
      {"Batch", absl::StrCat(recipe.train.batch_sequences, " sequences of ", recipe.data.seq_len, ": ",
                             plan.layout.num_micro_batches,
                             plan.layout.num_micro_batches == 1 ? " micro-batch of " : " micro-batches of ",
                             plan.layout.micro_batch)},
      {"Precision", plan::PrecisionText(plan.setting.types)},
      {"Step", plan.step_hash},
      {"Run as", "trainctl: this is the step that `trainctl launch` runs"},
  };
  const double peak = plan::PeakTokensPerSecond(plan);
  if (peak > 0) {
    page.facts.push_back({"MFU", absl::StrFormat("%.1f %%", static_cast<double>(page.tokens_per_step) /
                                                                page.step.step_s / peak * 100)});
  }
  page.notes = plan.notes;
  page.notes.push_back(
      "Each stage in the drawing is a block: the embedding, a layer, or the head. Recomputation is drawn as "
      "a forward pass.");
  for (const std::string& text : ExplainPlan(plan, spec).trust) page.notes.push_back(text);
  return page;
}

}  // namespace trainctl::report
