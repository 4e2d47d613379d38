#include "planner/search.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "planner/choose.h"
#include "schedule/layout_step.h"
#include "schedule/pipeline.h"
#include "simulate/bounds.h"
#include "simulate/fold.h"

namespace trainctl::planner {
namespace {

using layout::Layout;
using layout::Recompute;
using plan::Candidate;

// Every mesh and stage, in the order of stages and of growing dp_shard, with these degrees of pipeline and
// tensor parallelism.
template <typename Function>
void ForEachStrategy(const layout::Request& request, const Function& visit) {
  const int64_t workers = request.data_workers();
  for (int stage = 0; stage <= 3; ++stage) {
    for (int64_t shard = 1; shard <= workers; ++shard) {
      // Stage 0 shards nothing; the others shard over more than one worker.
      if (workers % shard != 0 || (stage == 0) != (shard == 1)) continue;
      visit(layout::Mesh{.pp = request.pp.value_or(1),
                         .dp_replicate = workers / shard,
                         .dp_shard = shard,
                         .tp = request.tp.value_or(1)},
            stage);
    }
  }
}

// The setting of the recipe that rules a strategy out, or "".
std::string RulingSetting(const Problem& problem, const layout::Mesh& mesh, int stage) {
  if (problem.request.zero_stage.has_value() && *problem.request.zero_stage != stage) {
    return absl::StrCat("parallel.zero_stage = ", *problem.request.zero_stage);
  }
  if (problem.request.dp_shard.has_value() && *problem.request.dp_shard != mesh.dp_shard) {
    return absl::StrCat("parallel.dp_shard = ", *problem.request.dp_shard);
  }
  if (problem.request.dp_replicate.has_value() && *problem.request.dp_replicate != mesh.dp_replicate) {
    return absl::StrCat("parallel.dp_replicate = ", *problem.request.dp_replicate);
  }
  return "";
}

// A mesh and a stage.
struct Strategy {
  layout::Mesh mesh;
  int stage = 0;
  simulate::FoldedStrategy folded;  // a pipeline has its bounds alone
};

// A layout with pipeline or tensor parallelism that was not asked for.
struct Proposal {
  int strategy = 0;
  Layout layout;
  std::optional<Layout> least;  // of it, by bound
  double least_seconds = 0;
};

// The least number from `low` + 1 to `most` that fits; none: `low` is `most` in the end. Near low: bounds
// seldom leave much.
class LeastNumber {
 public:
  LeastNumber(int64_t low, int64_t most, bool halves)
      : low_(low), high_(most + 1), most_(most), halves_(halves) {}

  bool IsKnown() const { return high_ - low_ == 1; }
  bool Fits() const { return high_ <= most_; }
  int64_t number() const { return std::min(high_, most_); }
  // The next to try; once it is known, that.
  int64_t Next() const {
    if (IsKnown()) return number();
    if (!halves_) return low_ + 1;
    return Fits() ? (low_ + high_) / 2 : std::min(low_ + step_, most_);
  }
  void Tell(bool fits) {
    if (IsKnown()) return;
    (fits ? high_ : low_) = Next();
    step_ *= 2;
  }

 private:
  int64_t low_, high_;  // does not fit; fits
  const int64_t most_;
  const bool halves_;
  int64_t step_ = 1;
};

// One search. A strategy's variants share its ledgers.
class Searcher {
 public:
  Searcher(const Problem& problem, Wanted wanted, const SearchPasses& passes)
      : problem_(problem), wanted_(wanted), passes_(passes), folded_(*problem.request.spec) {}

  Found Run() {
    ForEachStrategy(problem_.request, [&](const layout::Mesh& mesh, int stage) {
      if (!RulingSetting(problem_, mesh, stage).empty()) return;
      ++found_.counts.enumerated;
      WeighVariants(MakeStrategy(mesh, stage));
    });
    WeighProposals();
    if (passes_.play && wanted_ == Wanted::kAll) PlayFinalists();
    const int64_t asked_parts = problem_.request.pp.value_or(1) * problem_.request.tp.value_or(1);
    found_.chosen =
        Choose(problem_.memory_limit_bytes, asked_parts, found_.counts.enumerated == 1, found_.candidates);
    return std::move(found_);
  }

  std::vector<Candidate> WeighRuledOut(const Layout& chosen) {
    layout::Request request = problem_.request;
    request.pp = chosen.mesh.pp;
    request.tp = chosen.mesh.tp;
    ForEachStrategy(request, [&](const layout::Mesh& mesh, int stage) {
      const std::string setting = RulingSetting(problem_, mesh, stage);
      if (setting.empty()) return;
      const Strategy strategy = MakeStrategy(mesh, stage);
      Layout layout = LayoutOf(strategy, chosen.micro_batch, chosen.recompute);
      layout.pipeline = chosen.pipeline;
      layout.recomputed_layers = chosen.recomputed_layers;
      std::optional<Candidate> candidate = Price(strategy, layout);
      if (!candidate.has_value()) return;
      candidate->reason = absl::StrCat("the recipe says ", setting);
      if (!candidate->fits) {
        absl::StrAppend(&candidate->reason, "; ", WhyNotFits(candidate->memory, problem_.memory_limit_bytes));
      }
      found_.candidates.push_back(*std::move(candidate));
    });
    return std::move(found_.candidates);
  }

 private:
  Strategy MakeStrategy(const layout::Mesh& mesh, int stage) const {
    return {mesh, stage, simulate::FoldedStrategy(folded_, mesh, stage, SequenceParallel())};
  }

  bool SequenceParallel() const { return problem_.request.sequence_parallel.value_or(true); }

  // ---- enumerate

  // Powers of two up to the worker's share of the batch, and that share.
  std::vector<int64_t> MicroBatches(const layout::Mesh& mesh) const {
    if (problem_.request.micro_batch.has_value()) return {*problem_.request.micro_batch};
    const int64_t share = problem_.request.batch_sequences / mesh.data_degree();
    std::vector<int64_t> sizes;
    const std::optional<int64_t> least = layout::LeastMicroBatch(*problem_.request.spec, share);
    if (least.has_value() && *least > 1 && *least < share && (*least & (*least - 1)) != 0) {
      sizes.push_back(*least);  // of a very large batch that no small power of two divides
    }
    for (int64_t size = 1; size < share; size *= 2) {
      const bool too_many = share / size > layout::kMaxBlockRuns / model::NumBlocks(*problem_.request.spec);
      if (share % size == 0 && !too_many) sizes.push_back(size);
    }
    sizes.push_back(share);
    return sizes;
  }

  void WeighVariants(const Strategy& strategy) {
    const std::optional<Recompute>& asked = problem_.request.recompute;
    for (int64_t micro_batch : MicroBatches(strategy.mesh)) {
      bool fits = false;
      for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
        if (asked.value_or(recompute) == recompute)
          fits = WeighVariant(strategy, micro_batch, recompute) || fits;
        // Computing anything again is worth a look only where keeping it does not fit. A few layers may then
        // take less than what is selected of all.
        if (fits && recompute == Recompute::kNone) break;
      }
      // Larger ones fit even less. Their times are no reason to stop: one size may gain nothing and the next
      // one much, as it fills the threads or tiles.
      if (!fits) return;
    }
  }

  // False: it does not fit.
  bool WeighVariant(const Strategy& strategy, int64_t micro_batch, Recompute recompute) {
    const Layout layout = LayoutOf(strategy, micro_batch, recompute);
    const std::optional<Layout> least = LeastByBound(strategy, layout);
    switch (Prune(strategy, layout, least)) {
      case Pruned::kMemory:
        return false;
      case Pruned::kTime:
        // Whether it fits does not matter: recompute is slower still, and larger ones are looked at.
        return true;
      case Pruned::kNot:
        break;
    }
    std::optional<Candidate> priced = PriceLeast(strategy, layout, least);
    if (!priced.has_value()) return true;  // a larger micro-batch may make a number that the order takes
    found_.candidates.push_back(*std::move(priced));
    const Candidate& candidate = found_.candidates.back();
    if (candidate.fits && (fastest_ < 0 || candidate.step_seconds < fastest_))
      fastest_ = candidate.step_seconds;
    return candidate.fits;
  }

  Layout LayoutOf(const Strategy& strategy, int64_t micro_batch, Recompute recompute) const {
    const layout::Request& request = problem_.request;
    Layout layout{.mesh = strategy.mesh,
                  .sequence_parallel = SequenceParallel(),
                  .zero_stage = strategy.stage,
                  .micro_batch = micro_batch,
                  .num_micro_batches = request.batch_sequences / strategy.mesh.data_degree() / micro_batch,
                  .recompute = recompute};
    if (strategy.mesh.pp > 1) AddPipeline(strategy, layout);
    if (recompute == Recompute::kFull && request.recomputed_layers.has_value())
      layout.recomputed_layers = layout::RecomputedLayers(*request.recomputed_layers, StageLayers(layout));
    return layout;
  }

  std::vector<int64_t> StageLayers(const Layout& layout) const {
    return layout.mesh.pp > 1 ? layout.pipeline.stage_layers
                              : std::vector<int64_t>{problem_.request.spec->layers};
  }

  void AddPipeline(const Strategy& strategy, Layout& layout) const {
    const layout::Request& request = problem_.request;
    const std::string named = request.pipeline_order.value_or(
        std::string(schedule::PipelineKindName(schedule::PipelineKind::k1F1B)));
    layout.pipeline = {.order = request.passes.empty() ? named : layout::kOwnPasses,
                       .passes = request.passes,
                       .virtual_stages = request.virtual_stages.value_or(1)};
    layout.pipeline.stage_layers =
        request.stage_layers.has_value() ? *request.stage_layers : BalancedStages(strategy, layout);
  }

  std::vector<int64_t> BalancedStages(const Strategy& strategy, const Layout& layout) const {
    const simulate::BlockSeconds seconds = strategy.folded.SecondsOfBlocks(OptionsOf(layout), problem_.rates);
    return layout::BalancedStageLayers(problem_.request.spec->layers,
                                       layout.mesh.pp * layout.pipeline.virtual_stages,
                                       seconds.embedding / seconds.layer, seconds.head / seconds.layer);
  }

  // ---- recompute no more layers than must be

  // Where full recompute was not asked for, nor how many layers, as few of them as fit are recomputed.
  bool ChoosesLayers(const Layout& layout) const {
    return layout.recompute == Recompute::kFull && !problem_.request.recompute.has_value() &&
           !problem_.request.recomputed_layers.has_value();
  }

  // The layout with the fewest recomputed layers that fit by their bound; nullopt: none do. None but full
  // recompute has a choice.
  std::optional<Layout> LeastByBound(const Strategy& strategy, const Layout& layout) const {
    if (!ChoosesLayers(layout)) return layout;
    Layout least = layout;
    least.recomputed_layers.assign(StageLayers(layout).size(), 0);
    if (!passes_.prune_memory || (layout.mesh.pp > 1 && !schedule::CheckPipelineLayout(layout).ok()))
      return least;
    const std::optional<std::vector<int64_t>> layers = strategy.folded.LeastRecomputed(
        OptionsOf(layout),
        layout.mesh.pp > 1 ? ShapeOf(layout) : strategy.folded.Shape(layout.num_micro_batches),
        problem_.memory_limit_bytes);
    if (!layers.has_value()) return std::nullopt;
    least.recomputed_layers = *layers;
    return least;
  }

  // Of `layout`, or where its layers are free with the fewest that fit, which are not below `least`; all of
  // them where nothing fits. nullopt: as Price, and where nothing needs to be recomputed.
  std::optional<Candidate> PriceLeast(const Strategy& strategy, const Layout& layout,
                                      const std::optional<Layout>& least) {
    if (!ChoosesLayers(layout) || !least.has_value()) return Price(strategy, layout);
    if (layout.mesh.pp > 1 && !schedule::CheckPipelineLayout(layout).ok()) return std::nullopt;
    const std::vector<int64_t> stage_layers = StageLayers(layout);
    // Classes with the same stages have one number.
    const std::vector<std::vector<int>> stages_of_class = StagesOfClasses(layout);
    std::map<std::vector<int>, LeastNumber> numbers;
    for (const std::vector<int>& stages : stages_of_class) {
      int64_t low = -1, most = 0;
      for (const int stage : stages) {
        low += least->recomputed_layers[static_cast<size_t>(stage)];
        most += stage_layers[static_cast<size_t>(stage)];
      }
      numbers.try_emplace(stages, low, most, passes_.halve);
    }
    const auto is_known = [](const auto& number) { return number.second.IsKnown(); };
    Layout tried = layout;
    const auto take = [&] {
      tried.recomputed_layers.assign(stage_layers.size(), 0);
      for (const auto& [stages, number] : numbers) {
        const std::optional<std::vector<int64_t>> dealt =
            simulate::DealFirst(number.Next(), stages, stage_layers);
        for (size_t k = 0; k < stages.size(); ++k)
          tried.recomputed_layers[static_cast<size_t>(stages[k])] = dealt->at(k);
      }
    };
    while (!std::all_of(numbers.begin(), numbers.end(), is_known)) {
      take();
      ++found_.counts.tried;
      const std::vector<bool> fits = ClassesThatFit(strategy, tried);
      std::map<std::vector<int>, bool> all_fit;
      for (size_t c = 0; c < fits.size(); ++c) {
        const auto [known, is_new] = all_fit.try_emplace(stages_of_class[c], fits[c]);
        known->second = known->second && fits[c];
      }
      for (auto& [stages, number] : numbers) number.Tell(all_fit.at(stages));
    }
    const bool all_fit =
        std::all_of(numbers.begin(), numbers.end(), [](const auto& number) { return number.second.Fits(); });
    if (!all_fit) return Price(strategy, layout);
    take();
    const bool is_none = std::all_of(tried.recomputed_layers.begin(), tried.recomputed_layers.end(),
                                     [](int64_t count) { return count == 0; });
    if (is_none) return std::nullopt;
    tried.recomputed_layers = layout::RecomputedLayers(tried.recomputed_layers, stage_layers);
    return Price(strategy, tried);
  }

  std::vector<std::vector<int>> StagesOfClasses(const Layout& layout) const {
    if (layout.mesh.pp == 1) return {{0}};
    std::vector<std::vector<int>> stages;
    const schedule::PipelinePlacement& placement = ShapeOf(layout).placement;
    for (int c = 0; c < placement.num_ranks; ++c) stages.push_back(placement.StagesOf(c));
    return stages;
  }

  std::vector<bool> ClassesThatFit(const Strategy& strategy, const Layout& layout) {
    if (layout.mesh.pp == 1) return {Price(strategy, layout)->fits};
    std::vector<bool> fits;
    for (const schedule::Program& program : BuildWhole(layout).step.programs)
      fits.push_back(simulate::SimulateMemory(program).peak_bytes <= problem_.memory_limit_bytes);
    return fits;
  }

  // ---- propose

  // Where the degrees of pipeline or tensor parallelism are free, all others than 1; over the data one group
  // of shards. From the one that might be fastest on, as long as one might be chosen.
  void WeighProposals() {
    std::vector<Strategy> strategies;
    std::vector<Proposal> proposals;
    for (const layout::Request& cut : layout::PossibleCuts(problem_.request)) {
      ForEachStrategy(cut, [&](const layout::Mesh& mesh, int stage) {
        if (mesh.dp_shard > 1 && mesh.dp_replicate > 1) return;
        if (!RulingSetting(problem_, mesh, stage).empty()) return;
        ++found_.counts.enumerated;
        strategies.push_back(MakeStrategy(mesh, stage));
        Propose(static_cast<int>(strategies.size()) - 1, strategies.back(), proposals);
      });
    }
    std::stable_sort(proposals.begin(), proposals.end(),
                     [](const Proposal& a, const Proposal& b) { return a.least_seconds < b.least_seconds; });
    const double uncut = fastest_;
    double fastest_cut = -1;
    for (const Proposal& proposal : proposals) {
      const bool is_slower = (uncut >= 0 && proposal.least_seconds * kWorthCutting > uncut) ||
                             (fastest_cut >= 0 && proposal.least_seconds > fastest_cut * kSameTime);
      if (passes_.prune_time && is_slower) {
        ++found_.counts.pruned;
        continue;
      }
      std::optional<Candidate> priced =
          PriceLeast(strategies[static_cast<size_t>(proposal.strategy)], proposal.layout, proposal.least);
      if (!priced.has_value()) continue;
      found_.candidates.push_back(*std::move(priced));
      const Candidate& candidate = found_.candidates.back();
      if (candidate.fits && (fastest_cut < 0 || candidate.step_seconds < fastest_cut))
        fastest_cut = candidate.step_seconds;
    }
    if (fastest_ < 0 || (fastest_cut >= 0 && fastest_cut < fastest_)) fastest_ = fastest_cut;
  }

  void Propose(int index, const Strategy& strategy, std::vector<Proposal>& proposals) {
    const std::optional<Recompute>& asked = problem_.request.recompute;
    for (const int64_t micro_batch : MicroBatches(strategy.mesh)) {
      for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
        if (asked.value_or(recompute) != recompute) continue;
        const Layout layout = LayoutOf(strategy, micro_batch, recompute);
        if (layout.mesh.pp > 1 && !schedule::CheckPipelineLayout(layout).ok()) continue;
        const std::optional<Layout> least = LeastByBound(strategy, layout);
        const simulate::StepBound bound = BoundOf(strategy, least.value_or(layout));
        ++found_.counts.bounded;
        if (passes_.prune_memory && bound.peak_bytes > problem_.memory_limit_bytes) {
          ++found_.counts.pruned;
          continue;
        }
        proposals.push_back({index, layout, least, bound.seconds});
      }
    }
  }

  // ---- bound, prune

  enum class Pruned { kNot, kMemory, kTime };

  // `least`: of it, by bound.
  Pruned Prune(const Strategy& strategy, const Layout& layout, const std::optional<Layout>& least) {
    if (strategy.mesh.pp > 1 || wanted_ == Wanted::kAll || !(passes_.prune_memory || passes_.prune_time))
      return Pruned::kNot;
    ++found_.counts.bounded;
    const simulate::StepBound bound = BoundOf(strategy, least.value_or(layout));
    const bool too_large = passes_.prune_memory && bound.peak_bytes > problem_.memory_limit_bytes;
    const bool too_slow = passes_.prune_time && fastest_ >= 0 && bound.seconds > fastest_ * kSameTime;
    if (!too_large && !too_slow) return Pruned::kNot;
    ++found_.counts.pruned;
    return too_large ? Pruned::kMemory : Pruned::kTime;
  }

  simulate::StepBound BoundOf(const Strategy& strategy, const Layout& layout) const {
    if (layout.mesh.pp == 1)
      return strategy.folded.Bound(OptionsOf(layout), layout.num_micro_batches, problem_.rates);
    return strategy.folded.BoundPipeline(schedule::OptionsOf(layout, problem_.setting), ShapeOf(layout),
                                         problem_.rates);
  }

  // Of a pipeline.
  const simulate::StepShape& ShapeOf(const Layout& layout) const {
    const auto [known, is_new] = shapes_.try_emplace({layout.mesh.pp, layout.num_micro_batches});
    simulate::StepShape& shape = known->second;
    if (is_new) {
      const absl::StatusOr<schedule::PipelineSchedule> order = schedule::OrderOfLayout(layout);
      TRAINCTL_CHECK_MSG(order.ok(), order.status().message());
      shape = simulate::ShapeOf(*order, {});
    }
    shape.stage_begin = layout::StageBegins(layout.pipeline.stage_layers);
    return shape;
  }

  // ---- fold

  // From a step of a few micro-batches: each frees what it used, so that more of them need no more.
  schedule::BuildOptions OptionsOf(const Layout& layout) const {
    return schedule::OptionsOf(layout, problem_.setting, simulate::kMicroBatchesToPrice);
  }

  // nullopt: the order of its pipeline is not for this number of micro-batches.
  std::optional<Candidate> Price(const Strategy& strategy, const Layout& layout) {
    if (layout.mesh.pp > 1 && !schedule::CheckPipelineLayout(layout).ok()) return std::nullopt;
    if (passes_.fold && layout.mesh.pp == 1) {
      const std::optional<simulate::StepPrice> price =
          strategy.folded.Price(OptionsOf(layout), layout.num_micro_batches, problem_.rates);
      if (price.has_value()) {
        ++found_.counts.folded;
        return CandidateOf(layout, *price);
      }
    }
    ++found_.counts.whole;
    return PlayWhole(layout);
  }

  Candidate CandidateOf(const Layout& layout, const simulate::StepPrice& price) const {
    Candidate candidate;
    candidate.layout = layout;
    candidate.memory = price.memory;
    candidate.step_seconds = price.cost.seconds;
    candidate.sent_bytes = price.cost.sent_bytes;
    candidate.fits = price.memory.peak_bytes <= problem_.memory_limit_bytes;
    return candidate;
  }

  // ---- play

  Candidate PlayWhole(const Layout& layout) {
    const schedule::LayoutStep built = BuildWhole(layout);
    return CandidateOf(layout, simulate::PriceWhole(built.step, *problem_.request.spec, built.ledger,
                                                    built.options, layout.num_micro_batches, problem_.rates));
  }

  schedule::LayoutStep BuildWhole(const Layout& layout) {
    const model::ModelSpec& spec = *problem_.request.spec;
    if (inventory_.empty()) inventory_ = model::Inventory(spec);
    absl::StatusOr<schedule::LayoutStep> built =
        schedule::BuildLayoutStep(spec, inventory_, layout, problem_.setting, simulate::kMicroBatchesToPrice);
    TRAINCTL_CHECK_MSG(built.ok(), built.status().message());
    return *std::move(built);
  }

  // Those that may be chosen.
  void PlayFinalists() {
    if (fastest_ < 0 || !passes_.fold) return;
    std::vector<Candidate*> finalists;
    for (Candidate& candidate : found_.candidates) {
      const bool is_folded = candidate.layout.mesh.pp == 1;
      if (is_folded && candidate.fits && candidate.step_seconds <= fastest_ * kSameTime)
        finalists.push_back(&candidate);
    }
    std::stable_sort(finalists.begin(), finalists.end(),
                     [](const Candidate* a, const Candidate* b) { return Simpler(*a, *b); });
    if (finalists.size() > kMaxPlayed) finalists.resize(kMaxPlayed);
    for (Candidate* candidate : finalists) {
      *candidate = PlayWhole(candidate->layout);
      ++found_.counts.played;
    }
  }

  const Problem& problem_;
  const Wanted wanted_;
  const SearchPasses passes_;
  const simulate::FoldedModel folded_;
  std::vector<model::Parameter> inventory_;  // of the whole model, when it is needed
  // Of the order that was asked for, by degree and number of micro-batches.
  mutable std::map<std::pair<int64_t, int64_t>, simulate::StepShape> shapes_;
  double fastest_ = -1;  // of those that fit, so far
  Found found_;
};

}  // namespace

Found Search(const Problem& problem, Wanted wanted, const SearchPasses& passes) {
  return Searcher(problem, wanted, passes).Run();
}

std::vector<Candidate> RuledOut(const Problem& problem, const Layout& chosen) {
  return Searcher(problem, Wanted::kAll, {}).WeighRuledOut(chosen);
}

}  // namespace trainctl::planner
