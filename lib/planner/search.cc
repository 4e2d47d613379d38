#include "planner/search.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <tuple>
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

// How a pipeline's ranks go through their stages.
struct Order {
  std::string name;
  int64_t virtual_stages = 1;
};

// A layout whose cut of the model, or the order of whose pipeline, was not asked for.
struct Proposal {
  int strategy = 0;
  Layout layout;
  std::optional<Layout> least;  // of it, by bound
  bool knows_order = false;     // the bound is of its order, not of any
};

// Stages of a rank that are weighed: with more of them the bubble is smaller, and there are more messages.
constexpr int64_t kVirtualStages[] = {1, 2, 4};

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
      for (const Recompute recompute : layout::kRecomputes) {
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
    return LayoutOf(strategy, micro_batch, recompute, UsualOrder());
  }
  Layout LayoutOf(const Strategy& strategy, int64_t micro_batch, Recompute recompute,
                  const Order& order) const {
    const layout::Request& request = problem_.request;
    Layout layout{.mesh = strategy.mesh,
                  .sequence_parallel = SequenceParallel(),
                  .zero_stage = strategy.stage,
                  .micro_batch = micro_batch,
                  .num_micro_batches = request.batch_sequences / strategy.mesh.data_degree() / micro_batch,
                  .recompute = recompute};
    if (strategy.mesh.pp > 1) AddPipeline(strategy, order, layout);
    if (recompute == Recompute::kFull && request.recomputed_layers.has_value())
      layout.recomputed_layers = layout::RecomputedLayers(*request.recomputed_layers, StageLayers(layout));
    return layout;
  }

  std::vector<int64_t> StageLayers(const Layout& layout) const {
    return layout.mesh.pp > 1 ? layout.pipeline.stage_layers
                              : std::vector<int64_t>{problem_.request.spec->layers};
  }

  void AddPipeline(const Strategy& strategy, const Order& order, Layout& layout) const {
    const layout::Request& request = problem_.request;
    layout.pipeline = {.order = order.name, .passes = request.passes, .virtual_stages = order.virtual_stages};
    layout.pipeline.stage_layers =
        request.stage_layers.has_value() ? *request.stage_layers : BalancedStages(strategy, layout);
  }

  std::vector<int64_t> BalancedStages(const Strategy& strategy, const Layout& layout) const {
    const auto key = std::make_tuple(layout.mesh, layout.zero_stage, layout.micro_batch, layout.recompute);
    if (!last_seconds_.has_value() || last_seconds_->first != key)
      last_seconds_ = {key, strategy.folded.SecondsOfBlocks(OptionsOf(layout), problem_.rates)};
    const simulate::BlockSeconds& seconds = last_seconds_->second;
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

  // Where the degrees of pipeline or tensor parallelism are free, all others than 1. Where the order of a
  // pipeline is free, those that are often the best. From the one that might be fastest on, as long as one
  // might be chosen.
  void WeighProposals() {
    const layout::Request& asked = problem_.request;
    if (asked.pp.value_or(1) > 1) {
      ForEachStrategy(asked, [&](const layout::Mesh& mesh, int stage) {
        if (RulingSetting(problem_, mesh, stage).empty()) Propose(MakeStrategy(mesh, stage), OtherOrders());
      });
    }
    std::vector<Order> orders = {UsualOrder()};
    for (const Order& other : OtherOrders()) orders.push_back(other);
    for (const layout::Request& cut : layout::PossibleCuts(asked)) {
      ForEachStrategy(cut, [&](const layout::Mesh& mesh, int stage) {
        if (!IsProposed(mesh) || !RulingSetting(problem_, mesh, stage).empty()) return;
        ++found_.counts.enumerated;
        Propose(MakeStrategy(mesh, stage), mesh.pp > 1 ? orders : std::vector<Order>{Order()});
      });
    }
    double fastest_asked = fastest_, fastest_cut = -1;
    for (const Candidate& candidate : found_.candidates) NoteTime(candidate, /*is_asked=*/true);
    const auto is_above = [](double seconds, double bar) { return bar >= 0 && seconds > bar; };
    while (!waiting_.empty()) {
      const auto [least_seconds, index] = *waiting_.begin();
      waiting_.erase(waiting_.begin());
      Proposal& proposal = proposals_[static_cast<size_t>(index)];
      const layout::Mesh& mesh = proposal.layout.mesh;
      const bool is_asked = mesh.pp == asked.pp.value_or(1) && mesh.tp == asked.tp.value_or(1);
      const bool is_slower = is_asked ? is_above(least_seconds / kSameTime, fastest_asked)
                                      : is_above(least_seconds * kWorthCutting, fastest_asked) ||
                                            is_above(least_seconds / kSameTime, fastest_cut);
      if (passes_.prune_time && (is_slower || IsNeverTaken(proposal.layout, is_asked, least_seconds))) {
        ++found_.counts.pruned;
        continue;
      }
      const Strategy& strategy = strategies_[static_cast<size_t>(proposal.strategy)];
      if (!proposal.knows_order) {
        BoundOrder(strategy, index, proposal);
        continue;
      }
      std::optional<Candidate> priced = PriceLeast(strategy, proposal.layout, proposal.least);
      if (!priced.has_value()) continue;
      found_.candidates.push_back(*std::move(priced));
      const Candidate& candidate = found_.candidates.back();
      NoteTime(candidate, is_asked);
      double& fastest = is_asked ? fastest_asked : fastest_cut;
      if (candidate.fits && (fastest < 0 || candidate.step_seconds < fastest))
        fastest = candidate.step_seconds;
    }
    fastest_ = fastest_asked < 0 || is_above(fastest_asked, fastest_cut) ? fastest_cut : fastest_asked;
  }

  // Over the data: one group of shards, none, those of a node, or what was asked for.
  bool IsProposed(const layout::Mesh& mesh) const {
    const layout::Request& request = problem_.request;
    const bool fills_node = mesh.dp_shard * mesh.tp == request.devices_per_node;
    return mesh.dp_shard == 1 || mesh.dp_replicate == 1 || fills_node || request.dp_shard.has_value() ||
           request.dp_replicate.has_value();
  }

  void NoteTime(const Candidate& candidate, bool is_asked) {
    if (!candidate.fits) return;
    const auto [known, is_new] =
        times_[is_asked ? 1 : 0].try_emplace(KeyOf(candidate.layout), candidate.step_seconds);
    if (!is_new) known->second = std::min(known->second, candidate.step_seconds);
  }

  // A simpler one that fits is no slower, and may be chosen if this one may.
  bool IsNeverTaken(const Layout& layout, bool is_asked, double least_seconds) const {
    const LayoutKey key = KeyOf(layout);
    for (const bool of_asked : {true, false}) {
      if (is_asked && !of_asked) continue;  // it may not be worth its cut
      for (const auto& [simpler, seconds] : times_[of_asked ? 1 : 0]) {
        if (!(simpler < key)) break;
        if (seconds <= least_seconds) return true;
      }
    }
    return false;
  }

  // First by a bound for which no order is built.
  void Propose(Strategy made, const std::vector<Order>& orders) {
    if (orders.empty()) return;
    strategies_.push_back(std::move(made));
    const Strategy& strategy = strategies_.back();
    const int own_index = static_cast<int>(strategies_.size()) - 1;
    const std::optional<Recompute>& asked = problem_.request.recompute;
    for (const int64_t micro_batch : MicroBatches(strategy.mesh)) {
      for (const Recompute recompute : layout::kRecomputes) {
        if (asked.value_or(recompute) != recompute) continue;
        if (strategy.mesh.pp > 1) {
          ProposePipelines(strategy, micro_batch, recompute, orders);
        } else {
          proposals_.push_back({own_index, LayoutOf(strategy, micro_batch, recompute)});
          BoundOrder(strategy, static_cast<int>(proposals_.size()) - 1, proposals_.back());
        }
      }
    }
  }

  // Whether an order that was not asked for may cut the model in so many.
  bool TakesStages(int64_t num_stages) const {
    const layout::Request& request = problem_.request;
    const auto is_other = [&](const std::optional<std::vector<int64_t>>& stated) {
      return stated.has_value() && stated->size() > 1 && static_cast<int64_t>(stated->size()) != num_stages;
    };
    return num_stages <= request.spec->layers && !is_other(request.stage_layers) &&
           !is_other(request.recomputed_layers);
  }

  // Of the strategy that was added last.
  void ProposePipelines(const Strategy& strategy, int64_t micro_batch, Recompute recompute,
                        const std::vector<Order>& orders) {
    const size_t first = proposals_.size();
    std::vector<simulate::StepShape> shapes;
    for (const Order& order : orders) {
      if (!TakesStages(strategy.mesh.pp * order.virtual_stages)) continue;
      Layout layout = LayoutOf(strategy, micro_batch, recompute, order);
      absl::StatusOr<schedule::PipelinePlacement> placement = schedule::PlacementOfLayout(layout);
      if (!placement.ok()) continue;  // not for so many ranks or micro-batches
      shapes.push_back({*std::move(placement), layout::StageBegins(layout.pipeline.stage_layers)});
      proposals_.push_back({static_cast<int>(strategies_.size()) - 1, std::move(layout)});
    }
    if (shapes.empty()) return;
    schedule::BuildOptions options = schedule::OptionsOf(proposals_.back().layout, problem_.setting);
    // How many layers are recomputed may differ from order to order.
    if (ChoosesLayers(proposals_.back().layout) || problem_.request.recomputed_layers.has_value())
      options.recompute = Recompute::kNone;
    const std::vector<simulate::StepBound> bounds =
        strategy.folded.BoundPipelines(options, shapes, problem_.rates);
    for (size_t i = 0; i < bounds.size(); ++i) Wait(static_cast<int>(first + i), bounds[i]);
  }

  void BoundOrder(const Strategy& strategy, int index, Proposal& proposal) {
    proposal.knows_order = true;
    proposal.least = LeastByBound(strategy, proposal.layout);
    Wait(index, BoundOf(strategy, proposal.least.value_or(proposal.layout)));
  }

  void Wait(int index, const simulate::StepBound& bound) {
    ++found_.counts.bounded;
    if (passes_.prune_memory && bound.peak_bytes > problem_.memory_limit_bytes) {
      ++found_.counts.pruned;
    } else {
      waiting_.insert({bound.seconds, index});
    }
  }

  // ---- orders of pipelines

  Order UsualOrder() const {
    const layout::Request& request = problem_.request;
    if (!request.passes.empty()) return {layout::kOwnPasses, request.virtual_stages.value_or(1)};
    const std::string usual(schedule::PipelineKindName(schedule::PipelineKind::k1F1B));
    return {request.pipeline_order.value_or(usual), request.virtual_stages.value_or(1)};
  }

  // That are weighed besides: of those that hold every micro-batch at once each has a faster one that needs
  // less.
  std::vector<Order> OtherOrders() const {
    const layout::Request& request = problem_.request;
    if (request.pipeline_order.has_value() || !request.passes.empty()) return {};
    const Order usual = UsualOrder();
    std::vector<Order> orders;
    for (const schedule::PipelineOrder* order : schedule::kPipelineOrders) {
      if (order->num_copies() > 1 || order->forwards_first) continue;
      for (const int64_t virtual_stages : kVirtualStages) {
        const bool is_possible = virtual_stages >= order->limits.min_virtual_stages &&
                                 virtual_stages <= order->limits.max_virtual_stages &&
                                 virtual_stages == request.virtual_stages.value_or(virtual_stages);
        if (is_possible && (order->name != usual.name || virtual_stages != usual.virtual_stages))
          orders.push_back({std::string(order->name), virtual_stages});
      }
    }
    return orders;
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
    const auto [known, is_new] = shapes_.try_emplace(
        {layout.pipeline.order, layout.pipeline.virtual_stages, layout.mesh.pp, layout.num_micro_batches});
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
  // By order, virtual stages, degree and number of micro-batches.
  mutable std::map<std::tuple<std::string, int64_t, int64_t, int64_t>, simulate::StepShape> shapes_;
  // Of the last layout whose stages were balanced: several orders ask for the same.
  mutable std::optional<std::pair<std::tuple<layout::Mesh, int, int64_t, Recompute>, simulate::BlockSeconds>>
      last_seconds_;
  std::deque<Strategy> strategies_;  // of the proposals
  std::vector<Proposal> proposals_;
  std::set<std::pair<double, int>> waiting_;  // proposals, by the least that they take
  // The fastest priced so far of each key: [1] of what was asked for, [0] of other cuts.
  std::array<std::map<LayoutKey, double>, 2> times_;
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
