#include "frameworks/cluster_space.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/names.h"
#include "base/status.h"
#include "base/units.h"
#include "frameworks/framework_ways.h"
#include "layout/layout.h"

namespace trainctl::frameworks {
namespace {

using recipe::LoadedRecipe;

constexpr int64_t kMostDoublings = 6;

template <typename T>
std::vector<T> Fixed(const std::optional<T>& value) {
  return value.has_value() ? std::vector<T>{*value} : std::vector<T>();
}

absl::StatusOr<const FrameworkProfile*> FrameworkOf(const LoadedRecipe& loaded) {
  const std::string& name = loaded.recipe.plan.framework;
  if (const FrameworkProfile* framework = FindFramework(name)) return framework;
  const std::string names = absl::StrJoin(
      Frameworks(), ", ", [](std::string* out, const FrameworkProfile& f) { out->append(f.name); });
  return UsageError(
      AtField(loaded, "plan.framework",
              absl::StrCat("plan.framework = ", QuotedName(name), " has no profile; there are ", names)));
}

std::vector<Precision> PrecisionsOf(const LoadedRecipe& loaded, const cluster::Device& device,
                                    std::vector<std::string>& notes) {
  const std::string& name = loaded.recipe.train.precision;
  if (name == "auto") {
    std::vector<Precision> precisions = {device.has_bf16 ? Precision::kBf16 : Precision::kFp16};
    if (device.fp8_flops.value > 0) precisions.push_back(Precision::kFp8);
    notes.push_back(
        absl::StrCat("train.precision = auto: the better of ",
                     absl::StrJoin(precisions, " and ", [](std::string* out, Precision precision) {
                       absl::StrAppend(out, PrecisionName(precision));
                     })));
    return precisions;
  }
  for (const Precision precision : {Precision::kFp32, Precision::kFp16, Precision::kBf16, Precision::kFp8,
                                    Precision::kMxfp8, Precision::kNvfp4}) {
    if (name == PrecisionName(precision)) return {precision};
  }
  return {Precision::kBf16};
}

absl::Status CheckPrecision(const LoadedRecipe& loaded, Precision precision, const cluster::Device& device) {
  const auto missing = [&](const char* what, const char* instead) {
    return UsageError(AtField(loaded, "train.precision",
                              absl::StrCat("train.precision = \"", PrecisionName(precision),
                                           "\": ", device.name, " has no ", what, "; use ", instead)));
  };
  if (precision == Precision::kBf16 && !device.has_bf16) return missing("bf16", "\"fp16\"");
  if ((precision == Precision::kFp8 || precision == Precision::kMxfp8) && device.fp8_flops.value <= 0) {
    return missing("fp8", device.has_bf16 ? "\"bf16\"" : "\"fp16\"");
  }
  if (precision == Precision::kNvfp4 && device.fp4_flops.value <= 0)
    return missing("fp4", "\"fp8\" or \"bf16\"");
  return absl::OkStatus();
}

// dp_replicate x dp_shard as the degree and the group that shares one copy.
absl::Status FixDataParallel(const LoadedRecipe& loaded, SearchSpace& space) {
  const recipe::ParallelConfig& p = loaded.recipe.parallel;
  if (p.dp_shard.has_value()) space.shard_group = {*p.dp_shard};
  if (!p.dp_replicate.has_value()) return absl::OkStatus();
  const int64_t replicas = *p.dp_replicate;
  if (p.dp_shard.has_value()) {
    space.dp = {replicas * *p.dp_shard};
    return absl::OkStatus();
  }
  if (p.zero_stage == 0) {
    space.dp = {replicas};
    return absl::OkStatus();
  }
  if (!p.tp.has_value() || !p.pp.has_value() || !p.cp.has_value()) {
    return UsageError(
        AtField(loaded, "parallel.dp_replicate",
                absl::StrCat("parallel.dp_replicate = ", replicas,
                             " says nothing while tp, pp or cp are free; give parallel.dp_shard "
                             "with it, or those three")));
  }
  const int64_t model_ranks = *p.tp * *p.pp * *p.cp;
  if (space.num_gpus % (model_ranks * replicas) != 0) {
    return UsageError(
        AtField(loaded, "parallel.dp_replicate",
                absl::StrCat("parallel: dp_replicate ", replicas, " x tp ", *p.tp, " x cp ", *p.cp, " x pp ",
                             *p.pp, " does not divide the ", space.num_gpus, " devices")));
  }
  space.dp = {space.num_gpus / model_ranks};
  space.shard_group = {space.dp[0] / replicas};
  return absl::OkStatus();
}

absl::Status FixLayout(const LoadedRecipe& loaded, SearchSpace& space) {
  const recipe::ParallelConfig& p = loaded.recipe.parallel;
  if (!p.passes.empty()) {
    return UsageError(AtField(loaded, "parallel.passes",
                              "parallel.passes: other trainers are planned with orders that have a name; "
                              "state parallel.schedule"));
  }
  space.tp = Fixed(p.tp);
  space.pp = Fixed(p.pp);
  space.cp = Fixed(p.cp);
  space.ep = Fixed(p.ep);
  space.etp = Fixed(p.etp);
  space.virtual_stages = Fixed(p.virtual_stages);
  space.micro_batch = Fixed(loaded.recipe.train.micro_batch);
  if (p.zero_stage.has_value()) space.zero_stage = {static_cast<int>(*p.zero_stage)};
  for (const auto kind : {RecomputeKind::kNone, RecomputeKind::kSelective, RecomputeKind::kFull}) {
    if (p.recompute == std::string(RecomputeName(kind))) space.recompute = {kind};
  }
  if (p.recompute == std::string(layout::RecomputeName(layout::Recompute::kAttention))) {
    return UsageError(AtField(loaded, "parallel.recompute",
                              "parallel.recompute: other trainers choose by themselves what of a layer they "
                              "compute again; state \"selective\" or \"full\""));
  }
  if (p.recomputed_layers.has_value()) {
    if (p.recomputed_layers->size() != 1) {
      return UsageError(AtField(loaded, "parallel.recomputed_layers",
                                "parallel.recomputed_layers: other trainers recompute as many layers of each "
                                "pipeline rank; state one number"));
    }
    const int64_t layers = p.recomputed_layers->front();
    space.recomputed_layers = {layers >= NumLayers(space.base.model) ? -1 : layers};
  }
  for (const auto kind : {ContextKind::kRing, ContextKind::kAllGather, ContextKind::kAllToAll}) {
    if (p.context == std::string(ContextName(kind))) space.context = {kind};
  }
  if (p.schedule.has_value()) {
    TRAINCTL_ASSIGN_OR_RETURN(const schedule::PipelineKind kind, schedule::ParsePipelineKind(*p.schedule));
    space.pipeline = {kind};
  }
  space.sequence_parallel = {p.sequence_parallel.value_or(space.base.framework->sequence_parallel)};
  if (p.offload.has_value()) {
    const auto has = [&](const char* what) {
      return std::find(p.offload->begin(), p.offload->end(), what) != p.offload->end();
    };
    space.optimizer_on_host = {has("optimizer")};
    space.activations_on_host = {has("activations")};
  }
  return FixDataParallel(loaded, space);
}

// With a goal of few devices: parts of one node, then whole nodes in steps of about a quarter.
std::vector<int64_t> DeviceCounts(const cluster::Machine& machine) {
  std::vector<int64_t> counts;
  const int64_t per_node = machine.node->gpus;
  for (int64_t n = 1; n < per_node; n *= 2) counts.push_back(n);
  for (int64_t n = 1; n < machine.num_nodes; n += std::max<int64_t>(1, n / 4)) counts.push_back(n * per_node);
  counts.push_back(machine.num_gpus());
  return counts;
}

}  // namespace

void LimitToFramework(SearchSpace& space) {
  const FrameworkWays* ways = FindWays(space.base.framework->name);
  if (ways == nullptr) return;
  const auto only = [](auto& axis, auto values) {
    if (axis.empty()) axis = std::move(values);
  };
  const std::vector<int64_t> one = {1};
  if (!ways->tensor) only(space.tp, one);
  if (!ways->context) only(space.cp, one);
  if (!ways->expert) only(space.ep, one);
  if (ways->schedules.empty()) {
    only(space.pp, one);
  } else {
    only(space.pipeline, ways->schedules);
  }
  if (!ways->contexts.empty()) only(space.context, ways->contexts);
  only(space.zero_stage, ways->zero_stages);
}

absl::StatusOr<SearchSpace> SpaceOf(const LoadedRecipe& loaded, const PlannedModel& model,
                                    const cluster::Machine& machine, std::vector<std::string>& notes) {
  const recipe::Recipe& recipe = loaded.recipe;
  SearchSpace space;
  Workload& base = space.base;
  base.model = model.spec;
  base.seq_len = recipe.data.seq_len;
  base.global_batch = recipe.train.batch_sequences;
  base.device = machine.device;
  base.node = machine.node;
  TRAINCTL_ASSIGN_OR_RETURN(base.framework, FrameworkOf(loaded));
  space.precision = PrecisionsOf(loaded, *machine.device, notes);
  for (const Precision precision : space.precision) {
    TRAINCTL_RETURN_IF_ERROR(CheckPrecision(loaded, precision, *machine.device));
  }
  base.precision = space.precision[0];
  if (base.model.learned_positions > 0) {
    base.model.learned_positions = std::max(base.model.learned_positions, base.seq_len);
  }
  space.num_gpus = machine.num_gpus();
  if (recipe.plan.objective == "fewest_gpus") space.gpu_counts = DeviceCounts(machine);
  if (recipe.cluster.memory_limit_bytes.has_value()) {
    space.memory_limit_bytes = static_cast<double>(*recipe.cluster.memory_limit_bytes);
  }
  TRAINCTL_RETURN_IF_ERROR(FixLayout(loaded, space));
  LimitToFramework(space);
  return space;
}

absl::StatusOr<std::vector<int64_t>> StageLayersOf(const LoadedRecipe& loaded, SearchSpace& space) {
  const recipe::ParallelConfig& p = loaded.recipe.parallel;
  if (!p.stage_layers.has_value()) return std::vector<int64_t>();
  const auto wrong = [&](const std::string& why) {
    return UsageError(AtField(loaded, "parallel.stage_layers", absl::StrCat("parallel.stage_layers: ", why)));
  };
  if (!p.pp.has_value()) return wrong("give parallel.pp with it");
  const auto stages = static_cast<int64_t>(p.stage_layers->size());
  if (stages == 0 || stages % *p.pp != 0) {
    return wrong(absl::StrCat(stages, " numbers are no multiple of parallel.pp (", *p.pp, ")"));
  }
  const int64_t virtual_stages = stages / *p.pp;
  if (p.virtual_stages.value_or(virtual_stages) != virtual_stages) {
    return wrong(absl::StrCat(stages, " numbers are not the ", *p.pp, " x ", *p.virtual_stages,
                              " stages of parallel.pp and virtual_stages"));
  }
  int64_t sum = 0;
  for (const int64_t layers : *p.stage_layers) sum += layers;
  if (sum != NumLayers(space.base.model)) {
    return wrong(
        absl::StrCat("they add up to ", sum, " and the model has ", NumLayers(space.base.model), " layers"));
  }
  space.virtual_stages = {virtual_stages};
  return *p.stage_layers;
}

absl::StatusOr<Goal> GoalOf(const LoadedRecipe& loaded) {
  const recipe::Recipe& recipe = loaded.recipe;
  Goal goal;
  const std::string& objective = recipe.plan.objective;
  if (objective == "cost") goal.objective = Objective::kCost;
  if (objective == "headroom") goal.objective = Objective::kHeadroom;
  if (objective == "fewest_gpus") goal.objective = Objective::kFewestGpus;
  goal.price_per_gpu_hour = recipe.plan.price_per_gpu_hour;
  if (recipe.plan.deadline.has_value()) {
    goal.tokens = recipe.train.steps * recipe.train.batch_sequences * recipe.data.seq_len;
    if (goal.tokens == 0) {
      return UsageError(
          AtField(loaded, "plan.deadline",
                  "plan.deadline needs the length of the run: give train.steps or train.tokens"));
    }
    goal.deadline_seconds = absl::ToDoubleSeconds(*recipe.plan.deadline);
  }
  return goal;
}

std::optional<Failures> FailuresOf(const LoadedRecipe& loaded) {
  const recipe::Recipe& recipe = loaded.recipe;
  if (!recipe.plan.gpu_mtbf.has_value()) return std::nullopt;
  const std::optional<absl::Duration>& every = recipe.checkpoint.every;
  return Failures{absl::ToDoubleSeconds(*recipe.plan.gpu_mtbf),
                  absl::ToDoubleSeconds(recipe.plan.restart_time),
                  every.has_value() ? absl::ToDoubleSeconds(*every) : 0};
}

namespace {

// One setting of the recipe that can be given up.
struct Release {
  const char* field;
  std::function<void(SearchSpace&)> apply;
  std::function<std::string(const Workload&)> value;  // what it became
};

std::vector<Release> Releases() {
  const auto degree = [](const char* field, std::vector<int64_t> SearchSpace::*axis,
                         int64_t layout::Mesh::*member) {
    return Release{field, [axis](SearchSpace& s) { (s.*axis).clear(); },
                   [member](const Workload& w) { return absl::StrCat(w.mesh.*member); }};
  };
  // Either of the two decides the other, so both are named.
  const auto data = [](const char* field, int64_t layout::Mesh::*member, const char* other,
                       int64_t layout::Mesh::*other_member) {
    return Release{field,
                   [](SearchSpace& s) {
                     s.dp.clear();
                     s.shard_group.clear();
                   },
                   [=](const Workload& w) {
                     return absl::StrCat(w.mesh.*member, ", ", other, " = ", w.mesh.*other_member);
                   }};
  };
  return {
      {"train.micro_batch", [](SearchSpace& s) { s.micro_batch.clear(); },
       [](const Workload& w) { return absl::StrCat(w.micro_batch); }},
      {"parallel.recompute", [](SearchSpace& s) { s.recompute.clear(); },
       [](const Workload& w) { return absl::StrCat("\"", RecomputeName(w.recompute), "\""); }},
      {"parallel.zero_stage", [](SearchSpace& s) { s.zero_stage.clear(); },
       [](const Workload& w) { return absl::StrCat(w.zero_stage); }},
      data("parallel.dp_shard", &layout::Mesh::dp_shard, "parallel.dp_replicate",
           &layout::Mesh::dp_replicate),
      data("parallel.dp_replicate", &layout::Mesh::dp_replicate, "parallel.dp_shard",
           &layout::Mesh::dp_shard),
      {"parallel.sequence_parallel", [](SearchSpace& s) { s.sequence_parallel.clear(); },
       [](const Workload& w) { return std::string(w.SequenceParallel() ? "true" : "false"); }},
      {"parallel.virtual_stages", [](SearchSpace& s) { s.virtual_stages.clear(); },
       [](const Workload& w) { return absl::StrCat(w.virtual_stages); }},
      {"parallel.schedule", [](SearchSpace& s) { s.pipeline.clear(); },
       [](const Workload& w) { return absl::StrCat("\"", schedule::PipelineKindName(w.Pipeline()), "\""); }},
      degree("parallel.cp", &SearchSpace::cp, &layout::Mesh::cp),
      degree("parallel.ep", &SearchSpace::ep, &layout::Mesh::ep),
      degree("parallel.etp", &SearchSpace::etp, &layout::Mesh::etp),
      degree("parallel.tp", &SearchSpace::tp, &layout::Mesh::tp),
      degree("parallel.pp", &SearchSpace::pp, &layout::Mesh::pp),
      {"parallel.offload",
       [](SearchSpace& s) {
         s.optimizer_on_host.clear();
         s.activations_on_host.clear();
       },
       [](const Workload& w) {
         return absl::StrCat("[", w.optimizer_on_host ? "\"optimizer\"" : "",
                             w.optimizer_on_host && w.activations_on_host ? ", " : "",
                             w.activations_on_host ? "\"activations\"" : "", "]");
       }},
  };
}

// Where nothing fits a search has no best to prune with, so whether anything does is asked of those layouts
// that need least.
std::optional<Choice> SmallestOf(const SearchSpace& space, const Goal& goal) {
  SearchSpace smallest = space;
  const auto at_least = [](auto& axis, auto value) {
    if (axis.empty()) axis = {value};
  };
  at_least(smallest.micro_batch, int64_t{1});
  at_least(smallest.recompute, RecomputeKind::kFull);
  at_least(smallest.virtual_stages, int64_t{1});
  at_least(smallest.pipeline, schedule::PipelineKind::k1F1B);
  at_least(smallest.cp, int64_t{1});
  at_least(smallest.optimizer_on_host, false);
  at_least(smallest.activations_on_host, false);
  if (smallest.zero_stage.empty()) smallest.zero_stage = {0, 1, 3};
  smallest.precision.resize(1);
  absl::StatusOr<SearchResult> found = Explore(smallest, goal, {.keep = 1});
  if (!found.ok() || found->best.empty()) return std::nullopt;
  return std::move(found->best[0]);
}

std::optional<Choice> BestOf(const SearchSpace& space, const Goal& goal) {
  std::optional<Choice> smallest = SmallestOf(space, goal);
  if (!smallest.has_value()) return std::nullopt;
  absl::StatusOr<SearchResult> found = Explore(space, goal, {.keep = 1});
  if (!found.ok() || found->best.empty()) return smallest;
  return std::move(found->best[0]);
}

std::string Outcome(const Choice& choice) {
  return absl::StrCat(DescribeLayout(choice.workload), " needs up to ",
                      FormatBytes(static_cast<int64_t>(choice.memory.upper_bytes)), " a device and ",
                      absl::FormatDuration(absl::Milliseconds(std::llround(choice.time.step_seconds * 1e3))),
                      " a step");
}

}  // namespace

std::string NearestChange(const LoadedRecipe& loaded, const ClusterPlan& plan) {
  SearchSpace released = plan.space;
  std::vector<std::string> at_auto;  // what of the recipe is released, as one would write it
  for (const Release& release : Releases()) {
    if (loaded.stated.count(release.field) == 0) continue;
    SearchSpace space = plan.space;
    release.apply(space);
    LimitToFramework(space);
    release.apply(released);
    at_auto.push_back(absl::StrCat(release.field, " = \"auto\""));
    if (const std::optional<Choice> choice = BestOf(space, plan.goal)) {
      return absl::StrCat("the nearest that does: ", release.field, " = ", release.value(choice->workload),
                          ", ", Outcome(*choice));
    }
  }
  LimitToFramework(released);
  if (at_auto.size() > 1) {
    if (const std::optional<Choice> choice = BestOf(released, plan.goal)) {
      return absl::StrCat("no single setting is in the way; the nearest that does: ",
                          absl::StrJoin(at_auto, ", "), ", ", Outcome(*choice));
    }
  }
  at_auto.insert(at_auto.begin(), "");
  for (int64_t i = 1; i <= kMostDoublings; ++i) {
    const int64_t times = int64_t{1} << i;
    SearchSpace space = released;
    if (space.num_gpus > layout::kMaxWorkers / times) break;
    space.num_gpus *= times;
    space.gpu_counts.clear();
    if (const std::optional<Choice> choice = SmallestOf(space, plan.goal)) {
      return absl::StrCat("the nearest that does: cluster.nodes = ", plan.machine->num_nodes * times,
                          absl::StrJoin(at_auto, ", "), ", ", Outcome(*choice));
    }
  }
  return absl::StrCat("nor does any on up to ", int64_t{1} << kMostDoublings,
                      " times the nodes; take devices with more memory, a shorter data.seq_len or a smaller "
                      "model");
}

}  // namespace trainctl::frameworks
