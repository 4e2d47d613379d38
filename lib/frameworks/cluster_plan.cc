#include "frameworks/cluster_plan.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/units.h"
#include "frameworks/cluster_space.h"
#include "frameworks/sharding_name.h"

namespace trainctl::frameworks {
namespace {

double PeakFlops(const cluster::Device& device, Precision precision) {
  switch (precision) {
    case Precision::kFp32:
      return device.single_flops.value;
    case Precision::kFp8:
    case Precision::kMxfp8:
      return device.fp8_flops.value > 0 ? device.fp8_flops.value : device.half_flops.value;
    case Precision::kNvfp4:
      return device.fp4_flops.value > 0 ? device.fp4_flops.value : device.half_flops.value;
    case Precision::kFp16:
    case Precision::kBf16:
      return device.half_flops.value;
  }
  return device.half_flops.value;
}

// A misfit in words, largest terms first.
std::string Shortage(const Choice& choice, double limit) {
  std::vector<std::pair<double, std::string>> parts;
  for (int i = 0; i < kNumMemoryParts; ++i) {
    const double bytes = choice.memory.parts[static_cast<size_t>(i)];
    if (bytes <= 0) continue;
    parts.emplace_back(-bytes, absl::StrCat(MemoryPartName(static_cast<MemoryPart>(i)), " ",
                                            FormatBytes(static_cast<int64_t>(bytes))));
  }
  std::sort(parts.begin(), parts.end());
  std::vector<std::string> words;
  for (const auto& [order, text] : parts) words.push_back(text);
  return absl::StrCat("needs up to ", FormatBytes(static_cast<int64_t>(choice.memory.upper_bytes)), " of ",
                      FormatBytes(static_cast<int64_t>(limit)), ": ", absl::StrJoin(words, ", "));
}

// Layouts that differ in more than how states are sharded, the best of each kind; `best` is sorted.
std::vector<Choice> Different(const std::vector<Choice>& best, size_t keep) {
  const auto kind = [](const Choice& choice) {
    const Workload& w = choice.workload;
    return std::make_tuple(w.mesh.tp, w.mesh.pp, w.mesh.cp, w.mesh.ep, w.mesh.etp, w.mesh.world_size(),
                           w.recompute, w.precision, w.optimizer_on_host, w.activations_on_host);
  };
  std::vector<Choice> different;
  for (size_t i = 1; i < best.size() && different.size() + 1 < keep; ++i) {
    const bool is_new = std::none_of(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(i),
                                     [&](const Choice& other) { return kind(other) == kind(best[i]); });
    if (is_new) different.push_back(best[i]);
  }
  return different;
}

constexpr int kSearchedPerShown = 12;

absl::StatusOr<SearchResult> Search(const ClusterPlan& plan, const ClusterPlanOptions& options) {
  ExploreOptions search;
  search.keep = std::max(1, options.keep) * kSearchedPerShown;
  if (options.pareto) search.pareto_step = 0.05;
  return Explore(plan.space, plan.goal, search);
}

absl::Status NothingFits(const recipe::LoadedRecipe& loaded, const ClusterPlan& plan,
                         const SearchResult& found) {
  if (found.nearest.has_value() && found.nearest->fits) {
    const double seconds = EffectiveTimeOf(plan.goal, *found.nearest).step_seconds *
                           static_cast<double>(loaded.recipe.train.steps);
    return InfeasibleError(absl::StrCat("nothing meets plan.deadline: the fastest layout that fits, ",
                                        DescribeLayout(found.nearest->workload), ", takes ",
                                        absl::FormatDuration(absl::Seconds(std::round(seconds))), " of ",
                                        absl::FormatDuration(absl::Seconds(plan.goal.deadline_seconds)), "; ",
                                        NearestChange(loaded, plan)));
  }
  if (found.nearest.has_value() && found.nearest->memory.upper_bytes <= plan.memory_limit_bytes) {
    const Choice& choice = *found.nearest;
    const cluster::Node& node = *choice.workload.node;
    return InfeasibleError(
        absl::StrCat("no layout fits: ", DescribeLayout(choice.workload), " keeps ",
                     FormatBytes(static_cast<int64_t>(choice.memory.host_bytes * node.gpus)),
                     " in the host memory of a node, which has ", FormatBytes(node.cpu_memory_bytes),
                     "; use more nodes, or set cluster.host_memory if it has more"));
  }
  const std::string smallest =
      found.nearest.has_value() ? absl::StrCat("The smallest, ", DescribeLayout(found.nearest->workload),
                                               ", ", Shortage(*found.nearest, plan.memory_limit_bytes), "; ")
                                : "";
  return InfeasibleError(absl::StrCat("no layout fits. ", smallest, NearestChange(loaded, plan)));
}

}  // namespace

Figures FiguresOf(const ClusterPlan& plan, const Choice& choice) {
  const Workload& w = choice.workload;
  const double gpus = static_cast<double>(choice.num_gpus());
  const double step = choice.time.step_seconds;
  const double tokens = static_cast<double>(w.global_batch) * static_cast<double>(w.seq_len);
  Figures figures;
  figures.tokens_per_second_per_gpu = tokens / step / gpus;
  figures.model_flops_per_token = model::FlopsPerToken(w.model, w.seq_len);
  figures.mfu = figures.model_flops_per_token * figures.tokens_per_second_per_gpu /
                PeakFlops(*plan.machine->device, w.precision);
  figures.bubble_share = choice.time.pipeline_seconds / step;
  const simulate::EffectiveTime effective = EffectiveTimeOf(plan.goal, choice);
  figures.effective_share = effective.share_of_time;
  if (plan.goal.failures.has_value()) figures.save_every_seconds = effective.checkpoint_interval_seconds;
  figures.gpu_hours_per_billion_tokens =
      1e9 / figures.tokens_per_second_per_gpu / 3600 / figures.effective_share;
  figures.dollars_per_billion_tokens = figures.gpu_hours_per_billion_tokens * plan.goal.price_per_gpu_hour;
  figures.run_seconds = static_cast<double>(plan.run_tokens) / tokens * step / figures.effective_share;
  figures.run_dollars = figures.run_seconds / 3600 * gpus * plan.goal.price_per_gpu_hour;
  return figures;
}

std::string DescribeLayout(const Workload& w) {
  std::vector<std::string> words;
  if (w.mesh.tp > 1)
    words.push_back(absl::StrCat("tp ", w.mesh.tp, w.SequenceParallel() ? "" : " without sequence parallel"));
  if (w.mesh.pp > 1) {
    const std::string stages =
        w.virtual_stages > 1 ? absl::StrCat(", ", w.virtual_stages, " stages a rank") : "";
    words.push_back(
        absl::StrCat("pp ", w.mesh.pp, " (", schedule::PipelineKindName(w.Pipeline()), stages, ")"));
  }
  if (w.mesh.cp > 1) words.push_back(absl::StrCat("cp ", w.mesh.cp, " (", ContextName(w.context), ")"));
  if (w.mesh.ep > 1 || w.mesh.etp > 1)
    words.push_back(
        absl::StrCat("ep ", w.mesh.ep, w.mesh.etp > 1 ? absl::StrCat(" x etp ", w.mesh.etp) : ""));
  const std::string zero = w.zero_stage == 0 ? "replicated" : ShardingName(w);
  words.push_back(
      absl::StrCat("dp ", w.mesh.data_degree(),
                   w.mesh.data_degree() > 1 || w.zero_stage > 0 ? absl::StrCat(" (", zero, ")") : ""));
  words.push_back(absl::StrCat("micro-batch ", w.micro_batch));
  words.push_back(absl::StrCat("recompute ", RecomputeName(w.recompute)));
  if (w.optimizer_on_host) words.push_back("optimizer in host memory");
  if (w.activations_on_host) words.push_back("activations in host memory");
  return absl::StrJoin(words, ", ");
}

absl::string_view RecomputeName(RecomputeKind kind) {
  constexpr absl::string_view kNames[] = {"none", "selective", "full"};
  return kNames[static_cast<size_t>(kind)];
}

absl::string_view ContextName(ContextKind kind) {
  constexpr absl::string_view kNames[] = {"ring", "all-gather", "all-to-all"};
  return kNames[static_cast<size_t>(kind)];
}

absl::string_view PrecisionName(Precision precision) {
  constexpr absl::string_view kNames[] = {"fp32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4"};
  return kNames[static_cast<size_t>(precision)];
}

const std::array<TimeTerm, kNumTimeTerms>& TimeTerms() {
  static constexpr std::array<TimeTerm, kNumTimeTerms> kTerms = {
      {{"compute", &TimePrice::compute_seconds},
       {"recompute", &TimePrice::recompute_seconds},
       {"tensor", &TimePrice::tensor_seconds},
       {"expert", &TimePrice::expert_seconds},
       {"context", &TimePrice::context_seconds},
       {"pipeline", &TimePrice::pipeline_seconds},
       {"data", &TimePrice::data_seconds},
       {"optimizer", &TimePrice::optimizer_seconds},
       {"offload", &TimePrice::offload_seconds}}};
  return kTerms;
}

absl::string_view MemoryPartName(MemoryPart part) {
  constexpr absl::string_view kNames[] = {"parameters", "gradients", "optimizer", "activations",
                                          "work",       "logits",    "outside"};
  static_assert(std::size(kNames) == kNumMemoryParts);
  return kNames[static_cast<size_t>(part)];
}

namespace {

// The plan's machine with the rates that a calibration found.
void UseProfile(const HardwareProfile& profile, ClusterPlan& plan) {
  const cluster::Device& device = *plan.machine->device;
  plan.tuned = std::make_shared<TunedMachine>(profile.tuning, device, *plan.machine->node);
  plan.tuned->Apply(plan.space.base);
  plan.notes.push_back(absl::StrCat("rates as fitted by ", profile.made_by, " to ", profile.rows, " runs on ",
                                    absl::StrJoin(profile.devices, ", ")));
  if (std::find(profile.devices.begin(), profile.devices.end(), device.name) == profile.devices.end()) {
    plan.notes.push_back(absl::StrCat("none of those runs was on ", device.name));
  }
}

}  // namespace

absl::StatusOr<ClusterPlan> MakeClusterPlan(const recipe::LoadedRecipe& loaded,
                                            const ClusterPlanOptions& options) {
  ClusterPlan plan;
  plan.run_name = loaded.recipe.run.name;
  plan.model = ModelOf(loaded);
  TRAINCTL_ASSIGN_OR_RETURN(plan.machine, recipe::MachineOf(loaded.recipe.cluster));
  plan.notes = plan.machine->notes;
  plan.notes.insert(plan.notes.end(), plan.model.notes.begin(), plan.model.notes.end());
  TRAINCTL_ASSIGN_OR_RETURN(plan.space, SpaceOf(loaded, plan.model, *plan.machine, plan.notes));
  if (options.profile.has_value()) UseProfile(*options.profile, plan);
  TRAINCTL_ASSIGN_OR_RETURN(plan.goal, GoalOf(loaded));
  plan.goal.failures = FailuresOf(loaded);
  const recipe::Recipe& recipe = loaded.recipe;
  plan.run_tokens = recipe.train.steps * recipe.train.batch_sequences * recipe.data.seq_len;
  plan.memory_limit_bytes = plan.space.memory_limit_bytes > 0 ? plan.space.memory_limit_bytes
                                                              : plan.machine->device->memory_bytes.value;
  TRAINCTL_ASSIGN_OR_RETURN(plan.space.base.stage_layers, StageLayersOf(loaded, plan.space));
  TRAINCTL_ASSIGN_OR_RETURN(SearchResult found, Search(plan, options));
  plan.counts = found.counts;
  if (found.best.empty()) return NothingFits(loaded, plan, found);
  plan.chosen = found.best[0];
  plan.alternatives = Different(found.best, static_cast<size_t>(std::max(1, options.keep)));
  plan.pareto = std::move(found.pareto);
  return plan;
}

}  // namespace trainctl::frameworks
