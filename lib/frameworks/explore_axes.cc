#include "frameworks/explore_axes.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "frameworks/framework_ways.h"

namespace trainctl::frameworks {
namespace {

using schedule::PipelineKind;

constexpr int64_t kMostOnAxis = 1'000'000'000;
constexpr int64_t kLeastTokensOfContextRank = 2048;
constexpr int64_t kLeastFfnOfExpertRank = 1024;
constexpr int64_t kMostPipelineRanks = 256;
constexpr int64_t kMostVirtualStages = 16;
// Longer pipelines than any run had take long to play.
constexpr int64_t kMostStages = 512;
constexpr size_t kMostValues = 1000;

// Ascending.
std::vector<int64_t> DivisorsOf(int64_t number) {
  std::vector<int64_t> small, large;
  for (int64_t d = 1; d * d <= number; ++d) {
    if (number % d != 0) continue;
    small.push_back(d);
    if (d * d != number) large.push_back(number / d);
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

template <typename T>
void DropRepeats(std::vector<T>& values) {
  std::vector<T> once;
  for (const T value : values) {
    if (std::find(once.begin(), once.end(), value) == once.end()) once.push_back(value);
  }
  values = std::move(once);
}

template <typename T>
std::vector<T> OnceEach(const std::vector<T>& values) {
  std::vector<T> once = values;
  DropRepeats(once);
  return once;
}

absl::Status CheckList(const char* name, const std::vector<int64_t>& values, int64_t least = 1) {
  if (values.size() > kMostValues) {
    return UsageError(absl::StrCat(name, " lists ", values.size(), " values; ", kMostValues, " are enough"));
  }
  for (const int64_t value : values) {
    if (value < least || value > kMostOnAxis) {
      return UsageError(absl::StrCat(name, " ", value, " is not between ", least, " and 1e9"));
    }
  }
  return absl::OkStatus();
}

// 1, 2, 4 ... of one node's GPUs, then nodes: 1, 2, 3, 4, 6, 8, 12 ...
std::vector<int64_t> CountsUpTo(int64_t num_gpus, int64_t per_node) {
  std::vector<int64_t> counts;
  for (int64_t count = 1; count < per_node && count <= num_gpus; count *= 2) counts.push_back(count);
  for (int64_t nodes = 1; nodes * per_node <= num_gpus; nodes *= 2) {
    counts.push_back(nodes * per_node);
    if (nodes >= 2 && nodes / 2 * 3 * per_node <= num_gpus) counts.push_back(nodes / 2 * 3 * per_node);
  }
  counts.push_back(num_gpus);
  DropRepeats(counts);
  return counts;
}

}  // namespace

LayoutKey KeyOf(const LayoutPoint& point) {
  const auto& [layer, pipe, state] = point;
  int recompute = 0;
  if (layer.recompute == RecomputeKind::kSelective) recompute = 1;
  if (layer.recompute == RecomputeKind::kFull) recompute = pipe.recomputed_layers >= 0 ? 2 : 3;
  return {layer.tp * pipe.pp * layer.cp * layer.ep,
          layer.activations_on_host + state.optimizer_on_host,
          recompute,
          state.zero_stage,
          pipe.virtual_stages,
          static_cast<int64_t>(pipe.kind),
          static_cast<int64_t>(pipe.split),
          pipe.pp,
          layer.cp,
          layer.ep,
          layer.tp,
          layer.etp,
          -layer.micro_batch,
          layer.sequence_parallel ? 0 : 1,
          static_cast<int64_t>(layer.context),
          state.zero_stage > 0 ? pipe.dp / state.shard_group : 0,
          pipe.recomputed_layers,
          static_cast<int64_t>(layer.precision),
          layer.activations_on_host,
          state.optimizer_on_host,
          pipe.num_gpus,
          pipe.dp};
}

std::vector<int64_t> StageLayersOf(const Workload& base, const PipeAxes& pipe) {
  if (pipe.split == StageSplit::kEven) return {};
  if (pipe.split == StageSplit::kGiven) return base.stage_layers;
  // Units are layers and the two ends; the ends' stages have a layer less.
  const int64_t stages = pipe.pp * pipe.virtual_stages;
  const int64_t units = NumLayers(base.model) + 2;
  std::vector<int64_t> layers;
  for (int64_t s = 0; s < stages; ++s) {
    layers.push_back(units / stages + (s < units % stages ? 1 : 0) - (s == 0 ? 1 : 0) -
                     (s == stages - 1 ? 1 : 0));
  }
  return layers;
}

Workload WorkloadOf(const Workload& base, const LayoutPoint& point) {
  const auto& [layer, pipe, state] = point;
  Workload w = base;
  w.mesh = {.pp = pipe.pp,
            .dp_replicate = pipe.dp / state.shard_group,
            .dp_shard = state.shard_group,
            .cp = layer.cp,
            .tp = layer.tp,
            .ep = layer.ep,
            .etp = layer.etp};
  w.zero_stage = state.zero_stage;
  w.virtual_stages = pipe.virtual_stages;
  w.micro_batch = layer.micro_batch;
  w.precision = layer.precision;
  w.recompute = layer.recompute;
  w.recomputed_layers = std::nullopt;
  if (pipe.recomputed_layers >= 0) w.recomputed_layers = pipe.recomputed_layers;
  w.pipeline = std::nullopt;
  if (pipe.pp > 1) w.pipeline = pipe.kind;
  w.context = layer.context;
  w.stage_layers = StageLayersOf(base, pipe);
  w.sequence_parallel = layer.sequence_parallel;
  w.activations_on_host = layer.activations_on_host;
  w.optimizer_on_host = state.optimizer_on_host;
  return w;
}

bool CanWiden(const SearchSpace& space) {
  return space.tp.empty() || space.optimizer_on_host.empty() || space.activations_on_host.empty();
}

absl::StatusOr<Axes> ResolveAxes(const SearchSpace& space, const Goal& goal, bool wide) {
  const std::pair<const char*, const std::vector<int64_t>*> lists[] = {
      {"gpu_counts", &space.gpu_counts},
      {"tp", &space.tp},
      {"pp", &space.pp},
      {"virtual_stages", &space.virtual_stages},
      {"cp", &space.cp},
      {"ep", &space.ep},
      {"etp", &space.etp},
      {"micro_batch", &space.micro_batch},
      {"shard_group", &space.shard_group},
      {"dp", &space.dp}};
  for (const auto& [name, values] : lists) TRAINCTL_RETURN_IF_ERROR(CheckList(name, *values));
  TRAINCTL_RETURN_IF_ERROR(CheckList("recomputed_layers", space.recomputed_layers, -1));
  for (const int stage : space.zero_stage) {
    if (stage < 0 || stage > 3) return UsageError(absl::StrCat("zero_stage ", stage, " is none of 0 to 3"));
  }

  for (const StageSplit split : space.stage_split) {
    if (split == StageSplit::kGiven) return UsageError("stage_split names stage_layers that are not given");
  }
  int64_t layers = 0;
  for (const int64_t count : space.base.stage_layers) {
    if (count < 0 || count > NumLayers(space.base.model)) {
      return UsageError(
          absl::StrCat("a stage of stage_layers has ", count, " layers of ", NumLayers(space.base.model)));
    }
    layers += count;
  }
  if (!space.base.stage_layers.empty() && layers != NumLayers(space.base.model)) {
    return UsageError(absl::StrCat("stage_layers add up to ", layers, ", the model has ",
                                   NumLayers(space.base.model), " layers"));
  }

  Axes axes;
  axes.space = &space;
  axes.wide = wide;
  axes.gpu_counts = OnceEach(space.gpu_counts);
  const int64_t per_node = space.base.node->gpus;
  if (axes.gpu_counts.empty()) {
    axes.gpu_counts = goal.objective == Objective::kFewestGpus ? CountsUpTo(space.num_gpus, per_node)
                                                               : std::vector<int64_t>{space.num_gpus};
  }
  axes.precision = OnceEach(space.precision);
  if (axes.precision.empty()) axes.precision = {space.base.precision};
  axes.tp = OnceEach(space.tp);
  if (axes.tp.empty()) {
    for (const int64_t tp : DivisorsOf(AttentionOf(space.base.model).heads)) {
      if (!TensorObstacle(space.base.framework->name, space.base.model, tp).empty()) continue;
      const bool in_node = tp <= per_node && per_node % tp == 0;
      if (in_node || (wide && tp % per_node == 0)) axes.tp.push_back(tp);
    }
  }
  return axes;
}

LayoutWalk::LayoutWalk(const Axes& axes) : axes_(axes), space_(*axes.space), recomputes_(Recomputes()) {
  const auto switches = [&](const std::vector<bool>& given, bool base) {
    if (!given.empty()) return OnceEach(given);
    return axes_.wide ? std::vector<bool>{base, !base} : std::vector<bool>{base};
  };
  activations_on_host_ = switches(space_.activations_on_host, space_.base.activations_on_host);
  optimizer_on_host_ = switches(space_.optimizer_on_host, space_.base.optimizer_on_host);
  recomputed_layers_ = OnceEach(space_.recomputed_layers);
}

std::vector<RecomputeKind> LayoutWalk::Recomputes() const {
  std::vector<RecomputeKind> kinds = OnceEach(space_.recompute);
  if (!kinds.empty()) return kinds;
  kinds = {RecomputeKind::kNone, RecomputeKind::kFull};
  const FrameworkProfile& framework = *space_.base.framework;
  if (framework.selects_operators || framework.attention == AttentionKernel::kScores) {
    kinds.push_back(RecomputeKind::kSelective);
  }
  return kinds;
}

const std::vector<int64_t>& LayoutWalk::RecomputedLayers(RecomputeKind recompute, int64_t pp) {
  if (recompute != RecomputeKind::kFull) return all_layers_;
  if (!space_.recomputed_layers.empty()) return recomputed_layers_;
  // All, and one to three quarters of a rank's layers.
  const int64_t layers = (NumLayers(space_.base.model) + pp - 1) / pp;
  recomputed_layers_ = {-1, layers / 4, layers / 2, layers - layers / 4};
  std::erase(recomputed_layers_, 0);
  std::erase(recomputed_layers_, layers);
  DropRepeats(recomputed_layers_);
  return recomputed_layers_;
}

std::vector<int64_t> LayoutWalk::ContextDegrees(int64_t tp) const {
  std::vector<int64_t> degrees;
  const int64_t seq_len = space_.base.seq_len;
  for (const int64_t cp : OnceEach(space_.cp)) {
    if (seq_len % cp == 0) degrees.push_back(cp);
  }
  if (!space_.cp.empty()) return degrees;
  const int64_t most_gpus = *std::max_element(axes_.gpu_counts.begin(), axes_.gpu_counts.end());
  degrees.push_back(1);
  for (int64_t cp = 2; cp * tp <= most_gpus && seq_len / cp >= kLeastTokensOfContextRank; cp *= 2) {
    if (seq_len % (2 * cp) == 0) degrees.push_back(cp);
  }
  return degrees;
}

std::vector<std::pair<int64_t, int64_t>> LayoutWalk::ExpertDegrees(int64_t tp) const {
  std::vector<std::pair<int64_t, int64_t>> pairs;
  const model::Experts* const experts = FindExperts(space_.base.model);
  std::vector<int64_t> degrees = OnceEach(space_.ep);
  if (degrees.empty())
    degrees = experts != nullptr ? DivisorsOf(experts->num_experts) : std::vector<int64_t>{1};
  for (const int64_t ep : degrees) {
    if (ep > 1 && (experts == nullptr || experts->num_experts % ep != 0)) continue;
    std::vector<int64_t> cuts = OnceEach(space_.etp);
    if (cuts.empty()) {
      cuts = {1};
      if (experts != nullptr && tp > 1 && experts->ffn / tp >= kLeastFfnOfExpertRank) cuts.push_back(tp);
    }
    for (const int64_t etp : cuts) {
      if (etp == 1 || (experts != nullptr && experts->ffn % etp == 0)) pairs.emplace_back(ep, etp);
    }
  }
  return pairs;
}

std::vector<int64_t> LayoutWalk::PipelineDegrees(int64_t num_gpus, int64_t inner) const {
  std::vector<int64_t> degrees;
  if (num_gpus % inner != 0) return degrees;
  const int64_t rest = num_gpus / inner;
  const auto consider = [&](int64_t pp) {
    if (rest % pp == 0) degrees.push_back(pp);
  };
  if (!space_.pp.empty()) {
    for (const int64_t pp : OnceEach(space_.pp)) consider(pp);
    return degrees;
  }
  const int64_t most = std::min({rest, NumLayers(space_.base.model), kMostPipelineRanks});
  for (int64_t pp = 1; pp <= most; ++pp) consider(pp);
  return degrees;
}

std::vector<int64_t> LayoutWalk::MicroBatches(int64_t least_dp) const {
  if (!space_.micro_batch.empty()) return OnceEach(space_.micro_batch);
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size <= space_.base.global_batch / least_dp; size *= 2) sizes.push_back(size);
  return sizes;
}

std::vector<bool> LayoutWalk::SequenceParallel(int64_t tp) const {
  if (tp == 1) return {false};
  if (!space_.sequence_parallel.empty()) return OnceEach(space_.sequence_parallel);
  if (space_.base.sequence_parallel.has_value()) return {*space_.base.sequence_parallel};
  return {true, false};
}

std::vector<ContextKind> LayoutWalk::Contexts(int64_t tp, int64_t cp) const {
  if (cp == 1) return {space_.base.context};
  if (!space_.context.empty()) return OnceEach(space_.context);
  std::vector<ContextKind> kinds = {ContextKind::kRing, ContextKind::kAllGather};
  if (AttentionOf(space_.base.model).heads % (tp * cp) == 0) kinds.push_back(ContextKind::kAllToAll);
  return kinds;
}

std::vector<StageSplit> LayoutWalk::Splits(int64_t pp) const {
  if (!space_.base.stage_layers.empty()) return {StageSplit::kGiven};
  if (!space_.stage_split.empty()) return OnceEach(space_.stage_split);
  const Workload& base = space_.base;
  const bool ends_count = base.embedding_is_layer.value_or(base.framework->embedding_counts_as_layer);
  if (pp == 1 || ends_count) return {StageSplit::kEven};
  return {StageSplit::kEven, StageSplit::kEmbeddingAware};
}

const std::vector<LayoutWalk::Stages>& LayoutWalk::StagesFor(int64_t pp) {
  for (const auto& [degree, stages] : stages_) {
    if (degree == pp) return stages;
  }
  std::vector<Stages> found;
  const int64_t layers = NumLayers(space_.base.model);
  const auto may_have = [&](int64_t v) { return MayUse(space_.virtual_stages, v); };
  std::vector<int64_t> given_stages;
  if (!space_.base.stage_layers.empty()) {
    given_stages.push_back(static_cast<int64_t>(space_.base.stage_layers.size()));
  }
  if (pp == 1) {
    if (may_have(1) && MayUse(given_stages, 1)) found.push_back({1, PipelineKind::k1F1B, StageSplit::kEven});
    return stages_.emplace_back(pp, std::move(found)).second;
  }
  std::vector<PipelineKind> kinds = OnceEach(space_.pipeline);
  if (kinds.empty()) {
    for (int k = 0; k < schedule::kNumPipelineKinds; ++k) {
      const auto kind = static_cast<PipelineKind>(k);
      // What passes that run together hide are exchanges of tokens.
      if (schedule::OrderOf(kind).joins_passes() && FindExperts(space_.base.model) == nullptr) continue;
      kinds.push_back(kind);
    }
  }
  const std::vector<StageSplit> splits = Splits(pp);
  for (const PipelineKind kind : kinds) {
    const schedule::PipelineLimits limits = schedule::LimitsOf(kind);
    std::vector<int64_t> chunks = OnceEach(space_.virtual_stages);
    if (chunks.empty()) {
      for (int64_t v = 1; v <= kMostVirtualStages && pp * v <= kMostStages; ++v) {
        const bool usual = v <= 4 || v == 6 || v == 8 || v == 12 || v == 16;
        if (pp * v <= layers && (layers % pp == 0 ? layers / pp % v == 0 : usual)) chunks.push_back(v);
      }
      // A V has two stages a rank, whatever the layers divide by.
      if (limits.min_virtual_stages == limits.max_virtual_stages) chunks = {limits.min_virtual_stages};
    }
    for (const int64_t v : chunks) {
      if (v < limits.min_virtual_stages || v > limits.max_virtual_stages || pp * v > layers) continue;
      if (!MayUse(given_stages, pp * v)) continue;
      for (const StageSplit split : splits) found.push_back({v, kind, split});
    }
  }
  return stages_.emplace_back(pp, std::move(found)).second;
}

const std::vector<StateAxes>& LayoutWalk::States(const LayerAxes& layer, const PipeAxes& pipe) {
  const std::array<int64_t, 3> key = {pipe.dp, layer.cp > 1, pipe.pp > 1};
  for (const auto& [known, states] : states_) {
    if (known == key) return states;
  }
  std::vector<int> stages = OnceEach(space_.zero_stage);
  if (stages.empty()) stages = {0, 1, 2, 3};
  std::vector<StateAxes> found;
  for (const int stage : stages) {
    std::vector<int64_t> groups;
    if (stage == 0) {
      groups = {1};
    } else if (!space_.shard_group.empty()) {
      for (const int64_t group : OnceEach(space_.shard_group)) {
        if (pipe.dp % group == 0) groups.push_back(group);
      }
    } else {
      groups = DivisorsOf(pipe.dp);
    }
    for (const int64_t group : groups) {
      // A stage that shards over one rank shards nothing; context parallel ranks share states too.
      if (stage > 0 && group == 1 && space_.shard_group.empty() && (layer.cp == 1 || pipe.dp > 1)) continue;
      if (stage == 0 && !MayUse(space_.shard_group, 1)) continue;
      for (const bool on_host : optimizer_on_host_) found.push_back({stage, group, on_host});
    }
  }
  return states_.emplace_back(key, std::move(found)).second;
}

bool LayoutWalk::ShapeIsPossible(const PipeAxes& pipe) const {
  if (pipe.pp == 1) return true;
  // As schedule::CheckPipelineShape, without its words.
  const schedule::PipelineLimits limits = schedule::LimitsOf(pipe.kind);
  const int64_t m = pipe.num_micro_batches;
  if (limits.even_ranks && pipe.pp % 2 != 0) return false;
  if (limits.even_micro_batches && m % 2 != 0) return false;
  return m >= limits.micro_batches_per_rank * pipe.pp;
}

namespace {

// Stops at the first candidate that is valid.
struct AnyLayout {
  const Workload& base;
  bool found = false;
  int64_t tried = 0;
  std::string refusal;

  bool Layer(const LayerAxes&) { return !found; }
  bool Pipe(const LayerAxes& layer, const PipeAxes& pipe, const std::vector<StateAxes>& states) {
    for (const StateAxes& state : states) {
      const absl::Status status = Validate(WorkloadOf(base, {layer, pipe, state}));
      found = status.ok();
      if (found || ++tried > 1000) return false;
      refusal = std::string(status.message());
    }
    return true;
  }
  void Refused() {}
};

bool AnyIn(const SearchSpace& space, const Goal& goal, std::string* refusal = nullptr) {
  for (const bool wide : {false, true}) {
    const auto axes = ResolveAxes(space, goal, wide);
    if (!axes.ok()) return false;
    AnyLayout any{.base = space.base};
    LayoutWalk(*axes).Run(any);
    if (any.found) return true;
    if (refusal != nullptr && !any.refusal.empty()) *refusal = any.refusal;
  }
  return false;
}

std::string Listed(const std::vector<int64_t>& values) {
  const size_t shown = std::min<size_t>(values.size(), 8);
  return absl::StrCat(
      absl::StrJoin(std::vector<int64_t>(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(shown)),
                    ", "),
      shown < values.size() ? ", ..." : "");
}

}  // namespace

std::string WhatExcludesAll(const SearchSpace& space, const Goal& goal) {
  std::vector<std::string> blamed, all;
  const auto consider = [&](const std::string& name, bool given, const SearchSpace& without) {
    if (!given) return;
    all.push_back(name);
    if (AnyIn(without, goal)) blamed.push_back(name);
  };
#define TRAINCTL_CONSIDER(axis, text)             \
  {                                               \
    SearchSpace without = space;                  \
    without.axis.clear();                         \
    consider(text, !space.axis.empty(), without); \
  }
#define TRAINCTL_CONSIDER_LIST(axis) TRAINCTL_CONSIDER(axis, absl::StrCat(#axis " = ", Listed(space.axis)))
  TRAINCTL_CONSIDER_LIST(gpu_counts)
  TRAINCTL_CONSIDER_LIST(tp)
  TRAINCTL_CONSIDER_LIST(pp)
  TRAINCTL_CONSIDER_LIST(virtual_stages)
  TRAINCTL_CONSIDER_LIST(cp)
  TRAINCTL_CONSIDER_LIST(ep)
  TRAINCTL_CONSIDER_LIST(etp)
  TRAINCTL_CONSIDER_LIST(micro_batch)
  TRAINCTL_CONSIDER_LIST(shard_group)
  TRAINCTL_CONSIDER_LIST(dp)
  TRAINCTL_CONSIDER(zero_stage, "zero_stage")
  TRAINCTL_CONSIDER(recompute, "recompute")
  TRAINCTL_CONSIDER(pipeline, "pipeline")
  TRAINCTL_CONSIDER(context, "context")
  TRAINCTL_CONSIDER(stage_split, "stage_split")
  TRAINCTL_CONSIDER(base.stage_layers,
                    absl::StrCat("stage_layers of ", space.base.stage_layers.size(), " stages"))
#undef TRAINCTL_CONSIDER_LIST
#undef TRAINCTL_CONSIDER
  const std::string where = absl::StrCat("no layout of ", space.num_gpus, " GPUs with a batch of ",
                                         space.base.global_batch, " sequences is possible");
  if (!blamed.empty()) {
    return absl::StrCat(where, "; ", absl::StrJoin(blamed, "; or "),
                        " excludes them all: without it there are");
  }
  SearchSpace free = space;
  std::string refusal;
  AnyIn(space, goal, &refusal);
  const std::string because = refusal.empty() ? "" : absl::StrCat(" (", refusal, ")");
  if (all.size() > 1) {
    return absl::StrCat(where, because, "; together these exclude them all: ", absl::StrJoin(all, ", "));
  }
  return absl::StrCat(
      where, because,
      "; the batch has to be a multiple of the data-parallel ranks, GPUs / (tp * pp * cp): take "
      "another number of GPUs or a batch that divides by more");
}

}  // namespace trainctl::frameworks
