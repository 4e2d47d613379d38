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
#include "layout/family.h"
#include "planner/choose.h"
#include "planner/least_layers.h"
#include "schedule/layout_step.h"
#include "schedule/pipeline.h"
#include "simulate/bounds.h"
#include "simulate/fold.h"

namespace trainctl::planner {
namespace {

using layout::Layout;
using layout::Recompute;
using plan::Candidate;

// Visits every mesh and ZeRO stage with the request's degrees of pipeline and tensor parallelism, by stage
// and then by increasing dp_shard.
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

// Returns the recipe's setting that excludes a strategy, or "" if there is none.
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

// A mesh and a ZeRO stage.
struct Strategy {
  layout::Mesh mesh;
  int stage = 0;
  // Estimates layouts without a pipeline, and bounds all layouts. Like the fields below, it is created when
  // it is first needed.
  mutable std::optional<simulate::FoldedStrategy> folded = std::nullopt;
  mutable std::optional<simulate::LedgerCosts> costs = std::nullopt;
  // Keyed by the micro-batch and the recomputation within layers.
  mutable std::map<std::pair<int64_t, Recompute>, simulate::StepBounder> bounders = {};
};

// How a pipeline's ranks go through their stages.
struct Order {
  std::string name;
  int64_t virtual_stages = 1;
};

// The layouts that share a strategy, micro-batch and recomputation. They differ in the order of their
// pipeline.
struct Group {
  double seconds = 0;  // lower bound that holds for all of them
  int strategy = 0;    // index into Searcher::strategies_
  Layout layout;       // has the usual order, and no stage layers
};

// A layout that has a bound and may be simulated later.
struct Proposal {
  int strategy = 0;  // index into Searcher::strategies_
  Layout layout;
  std::optional<Layout> least;  // with the fewest recomputed layers whose memory bound fits
  bool knows_order = false;     // whether the bound is for its pipeline order, not for any order
  std::optional<LeastLayers> layers = std::nullopt;  // set once the search for layers begins
};

// Numbers of stages per rank to consider. With more stages, the bubble is smaller but there are more
// messages.
constexpr int64_t kVirtualStages[] = {1, 2, 4};

// One search. A strategy's variants share its ledgers.
class Searcher {
 public:
  Searcher(const Problem& problem, Wanted wanted, const SearchPasses& passes)
      : problem_(problem), wanted_(wanted), passes_(passes), folded_(*problem.request.spec) {
    fastest_of_family_.fill(-1);
    smallest_.fill({0, -1});
  }

  Found Run() {
    for (const layout::Request& cut : layout::PossibleCuts(problem_.request)) {
      ForEachStrategy(cut, [&](const layout::Mesh& mesh, int stage) {
        if (!RulingSetting(problem_, mesh, stage).empty()) return;
        ++found_.counts.strategies;
        strategies_.push_back({mesh, stage});
        AddGroups(static_cast<int>(strategies_.size()) - 1);
      });
    }
    std::stable_sort(groups_.begin(), groups_.end(),
                     [](const Group& a, const Group& b) { return a.seconds < b.seconds; });
    PriceProposals();
    PriceRoomyOnes();
    if (wanted_ == Wanted::kFamilies) PriceSmallest();
    const bool is_asked = groups_.size() == 1 && proposals_.size() == 1;
    found_.chosen = Choose(problem_.memory_limit_bytes, is_asked, found_.candidates);
    return std::move(found_);
  }

  std::vector<Candidate> WeighRuledOut(const Layout& chosen) {
    layout::Request request = problem_.request;
    request.pp = chosen.mesh.pp;
    request.tp = chosen.mesh.tp;
    ForEachStrategy(request, [&](const layout::Mesh& mesh, int stage) {
      const std::string setting = RulingSetting(problem_, mesh, stage);
      if (setting.empty()) return;
      const Strategy strategy = {mesh, stage};
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
  const simulate::FoldedStrategy& FoldedOf(const Strategy& strategy) const {
    if (!strategy.folded.has_value())
      strategy.folded.emplace(folded_, strategy.mesh, strategy.stage, SequenceParallel());
    return *strategy.folded;
  }

  bool SequenceParallel() const { return problem_.request.sequence_parallel.value_or(true); }

  // ---- enumerate

  // Returns the powers of two up to the worker's share of the batch, and the share itself.
  std::vector<int64_t> MicroBatches(const layout::Mesh& mesh) const {
    if (problem_.request.micro_batch.has_value()) return {*problem_.request.micro_batch};
    const int64_t share = problem_.request.batch_sequences / mesh.data_degree();
    std::vector<int64_t> sizes;
    const std::optional<int64_t> least = layout::LeastMicroBatch(*problem_.request.spec, share);
    if (least.has_value() && *least > 1 && *least < share && (*least & (*least - 1)) != 0) {
      sizes.push_back(*least);  // for a very large batch that no small power of two divides
    }
    for (int64_t size = 1; size < share; size *= 2) {
      const bool too_many = share / size > layout::kMaxBlockRuns / model::NumBlocks(*problem_.request.spec);
      if (share % size == 0 && !too_many) sizes.push_back(size);
    }
    sizes.push_back(share);
    return sizes;
  }

  Layout LayoutOf(const Strategy& strategy, int64_t micro_batch, Recompute recompute) const {
    return LayoutOf(strategy, micro_batch, recompute, UsualOrder());
  }
  // Returns a layout without the order and the stage layers of a pipeline.
  Layout WithoutPipeline(const Strategy& strategy, int64_t micro_batch, Recompute recompute) const {
    return {.mesh = strategy.mesh,
            .sequence_parallel = SequenceParallel(),
            .zero_stage = strategy.stage,
            .micro_batch = micro_batch,
            .num_micro_batches = problem_.request.batch_sequences / strategy.mesh.data_degree() / micro_batch,
            .recompute = recompute};
  }
  Layout LayoutOf(const Strategy& strategy, int64_t micro_batch, Recompute recompute,
                  const Order& order) const {
    const layout::Request& request = problem_.request;
    Layout layout = WithoutPipeline(strategy, micro_batch, recompute);
    if (strategy.mesh.pp > 1) AddPipeline(strategy, order, layout);
    if (recompute == Recompute::kFull && request.recomputed_layers.has_value())
      layout.recomputed_layers = layout::RecomputedLayers(*request.recomputed_layers, StageLayers(layout));
    return layout;
  }

  std::vector<int64_t> StageLayers(const Layout& layout) const {
    return layout.mesh.pp > 1 ? layout.pipeline.stage_layers
                              : std::vector<int64_t>{NumLayers(*problem_.request.spec)};
  }

  void AddPipeline(const Strategy& strategy, const Order& order, Layout& layout) const {
    const layout::Request& request = problem_.request;
    layout.pipeline = {.order = order.name, .passes = request.passes, .virtual_stages = order.virtual_stages};
    layout.pipeline.stage_layers =
        request.stage_layers.has_value() ? *request.stage_layers : BalancedStages(strategy, layout);
  }

  std::vector<int64_t> BalancedStages(const Strategy& strategy, const Layout& layout) const {
    const simulate::BlockSeconds seconds = BounderOf(strategy, layout).SecondsOfBlocks(layout.recompute);
    const int64_t num_stages = layout.mesh.pp * layout.pipeline.virtual_stages;
    const double embedding = seconds.embedding / seconds.layer, head = seconds.head / seconds.layer;
    const auto [known, is_new] =
        balanced_.try_emplace(std::make_tuple(num_stages, embedding, head), std::vector<int64_t>());
    if (is_new) {
      known->second =
          layout::BalancedStageLayers(NumLayers(*problem_.request.spec), num_stages, embedding, head);
    }
    return known->second;
  }

  // ---- recompute as few layers as possible

  // Whether the search chooses how many layers to recompute. It does so for full recomputation if the recipe
  // states neither the recomputation nor the number of layers.
  bool ChoosesLayers(const Layout& layout) const {
    return layout.recompute == Recompute::kFull && !problem_.request.recompute.has_value() &&
           !problem_.request.recomputed_layers.has_value();
  }

  // Returns the layout with the fewest recomputed layers whose memory bound fits, or nullopt if no number of
  // layers fits. Returns `layout` unchanged if ChoosesLayers is false.
  std::optional<Layout> LeastByBound(const Strategy& strategy, const Layout& layout,
                                     int64_t limit_bytes) const {
    if (!ChoosesLayers(layout)) return layout;
    Layout least = layout;
    least.recomputed_layers.assign(StageLayers(layout).size(), 0);
    if (!passes_.prune_memory || !IsPossible(layout)) return least;
    const std::optional<std::vector<int64_t>> layers =
        BounderOf(strategy, layout)
            .LeastRecomputed(OptionsOf(layout),
                             layout.mesh.pp > 1
                                 ? ShapeOf(layout)
                                 : simulate::DataParallelShape(NumLayers(*problem_.request.spec),
                                                               layout.num_micro_batches),
                             limit_bytes);
    if (!layers.has_value()) return std::nullopt;
    least.recomputed_layers = *layers;
    return least;
  }

  // Returns a search that starts from the bounds in `least`.
  LeastLayers LayersOf(const Layout& layout, const Layout& least) const {
    return {StagesOfClasses(layout), StageLayers(layout), least.recomputed_layers, passes_.halve};
  }

  void TryLayers(const Strategy& strategy, Layout layout, int64_t limit_bytes, LeastLayers& layers) {
    ++found_.counts.tried;
    layout.recomputed_layers = layers.ToTry();
    layers.Tell(ClassesThatFit(strategy, layout, limit_bytes));
  }

  // Estimates the layout with the fewest recomputed layers that fit, or with all of them if no number fits.
  // Returns nullopt if Price does, or if no layer needs to be recomputed.
  std::optional<Candidate> PriceLayers(const Strategy& strategy, Layout layout, const LeastLayers& layers) {
    if (!layers.AllFit()) return Price(strategy, layout);
    const std::vector<int64_t> fewest = layers.ToTry();
    if (std::all_of(fewest.begin(), fewest.end(), [](int64_t count) { return count == 0; }))
      return std::nullopt;
    layout.recomputed_layers = layout::RecomputedLayers(fewest, StageLayers(layout));
    return Price(strategy, layout);
  }

  // Whether the order of the pipeline supports this number of micro-batches. If not, a larger micro-batch may
  // give a number that it supports.
  static bool IsPossible(const Layout& layout) {
    return layout.mesh.pp == 1 || schedule::CheckPipelineLayout(layout).ok();
  }

  std::vector<std::vector<int>> StagesOfClasses(const Layout& layout) const {
    if (layout.mesh.pp == 1) return {{0}};
    std::vector<std::vector<int>> stages;
    const schedule::PipelinePlacement& placement = ShapeOf(layout).placement;
    for (int c = 0; c < placement.num_ranks; ++c) stages.push_back(placement.StagesOf(c));
    return stages;
  }

  std::vector<bool> ClassesThatFit(const Strategy& strategy, const Layout& layout, int64_t limit_bytes) {
    if (layout.mesh.pp == 1) return {Price(strategy, layout)->memory.peak_bytes <= limit_bytes};
    std::vector<bool> fits;
    for (const schedule::Program& program : BuildWhole(layout).step.programs)
      fits.push_back(simulate::SimulateMemory(program).peak_bytes <= limit_bytes);
    return fits;
  }

  // ---- propose, bound

  void AddGroups(int index) {
    const Strategy& strategy = strategies_[static_cast<size_t>(index)];
    const std::optional<Recompute>& asked = problem_.request.recompute;
    const Order usual = UsualOrder();
    for (const int64_t micro_batch : MicroBatches(strategy.mesh)) {
      for (const Recompute recompute : layout::kRecomputes) {
        if (asked.value_or(recompute) != recompute) continue;
        Group& group = groups_.emplace_back();
        group.strategy = index;
        group.layout = WithoutPipeline(strategy, micro_batch, recompute);
        if (strategy.mesh.pp > 1)
          group.layout.pipeline = {.order = usual.name, .virtual_stages = usual.virtual_stages};
        group.seconds =
            simulate::MeanPassSeconds(GraphCostsOf(strategy, group.layout), NumLayers(*problem_.request.spec),
                                      group.layout.num_micro_batches, strategy.mesh.pp, problem_.rates);
      }
    }
  }

  void Propose(const Group& group) {
    const Strategy& strategy = strategies_[static_cast<size_t>(group.strategy)];
    const Layout& layout = group.layout;
    if (strategy.mesh.pp > 1) return ProposePipelines(group);
    proposals_.push_back({group.strategy, LayoutOf(strategy, layout.micro_batch, layout.recompute)});
    BoundOrder(strategy, static_cast<int>(proposals_.size()) - 1, proposals_.back());
  }

  // Whether a pipeline order that the recipe does not ask for may cut the model into this number of stages.
  bool TakesStages(int64_t num_stages) const {
    const layout::Request& request = problem_.request;
    const auto is_other = [&](const std::optional<std::vector<int64_t>>& stated) {
      return stated.has_value() && stated->size() > 1 && static_cast<int64_t>(stated->size()) != num_stages;
    };
    return num_stages <= NumLayers(*request.spec) && !is_other(request.stage_layers) &&
           !is_other(request.recomputed_layers);
  }

  void ProposePipelines(const Group& group) {
    const Strategy& strategy = strategies_[static_cast<size_t>(group.strategy)];
    const Recompute recompute = group.layout.recompute;
    const size_t first = proposals_.size();
    std::vector<simulate::StepShape> shapes;
    const std::vector<Order> orders = Orders();
    for (const Order& order : orders) {
      const bool is_asked = problem_.request.pp.has_value() && &order == orders.data();
      if (!is_asked && !TakesStages(strategy.mesh.pp * order.virtual_stages)) continue;
      Layout layout = LayoutOf(strategy, group.layout.micro_batch, recompute, order);
      absl::StatusOr<schedule::PipelinePlacement> placement = schedule::PlacementOfLayout(layout);
      if (!placement.ok()) continue;  // does not support this number of ranks or micro-batches
      shapes.push_back({*std::move(placement), layout::StageBegins(layout.pipeline.stage_layers)});
      proposals_.push_back({group.strategy, std::move(layout)});
    }
    if (shapes.empty()) return;
    // The number of recomputed layers may differ between orders. The time is lowest if none are recomputed,
    // and the memory is lowest if all are.
    const bool varies = recompute == Recompute::kFull && (ChoosesLayers(proposals_.back().layout) ||
                                                          problem_.request.recomputed_layers.has_value());
    schedule::BuildOptions none = schedule::OptionsOf(proposals_.back().layout, problem_.setting), all = none;
    if (varies) none.recompute = Recompute::kNone;
    all.recomputed_layers.clear();
    const simulate::StepBounder& bounder = BounderOf(strategy, proposals_.back().layout);
    for (size_t i = 0; i < shapes.size(); ++i) {
      simulate::StepBound bound = bounder.Bound(none, shapes[i]);
      if (varies) bound.peak_bytes = std::min(bound.peak_bytes, bounder.Bound(all, shapes[i]).peak_bytes);
      Wait(static_cast<int>(first + i), bound);
    }
  }

  void BoundOrder(const Strategy& strategy, int index, Proposal& proposal) {
    proposal.knows_order = true;
    proposal.least = LeastByBound(strategy, proposal.layout, problem_.memory_limit_bytes);
    Wait(index, BoundOf(strategy, proposal.least.value_or(proposal.layout)));
  }

  void Wait(int index, const simulate::StepBound& bound) {
    ++found_.counts.bounded;
    const Layout& layout = proposals_[static_cast<size_t>(index)].layout;
    auto& smallest = smallest_[static_cast<size_t>(layout::FamilyOf(layout))];
    if (smallest.second < 0 || bound.peak_bytes < smallest.first) smallest = {bound.peak_bytes, index};
    if (passes_.prune_memory && bound.peak_bytes > problem_.memory_limit_bytes) {
      ++found_.counts.pruned;
    } else {
      waiting_.insert({bound.seconds, bound.peak_bytes, index});
    }
  }

  // ---- simulate what may be chosen

  // Simulates proposals in ascending order of their bounds; prunes those that are no longer wanted. A group
  // is proposed when its own bound is the lowest.
  void PriceProposals() {
    auto next_group = groups_.begin();
    while (!waiting_.empty() || next_group != groups_.end()) {
      if (waiting_.empty() ||
          (next_group != groups_.end() && next_group->seconds <= std::get<double>(*waiting_.begin()))) {
        if (IsWanted(next_group->layout, next_group->seconds, /*least_bytes=*/0)) {
          Propose(*next_group);
        } else {
          ++found_.counts.bounded;  // counts the group once
        }
        ++next_group;
        continue;
      }
      const auto [least_seconds, least_bytes, index] = *waiting_.begin();
      waiting_.erase(waiting_.begin());
      Proposal& proposal = proposals_[static_cast<size_t>(index)];
      if (!IsWanted(proposal.layout, least_seconds, least_bytes)) continue;
      const Strategy& strategy = strategies_[static_cast<size_t>(proposal.strategy)];
      if (!proposal.knows_order) {
        BoundOrder(strategy, index, proposal);
      } else if (std::optional<Candidate> priced = PriceProposal(strategy, index, proposal)) {
        Add(*std::move(priced), index);
      }
    }
  }

  // Whether the layout may still be chosen or be the best of its family. Counts it as pruned if not.
  bool IsWanted(const Layout& layout, double least_seconds, int64_t least_bytes) {
    const bool is_wanted = !passes_.prune_time || MayBeChosen(layout, least_seconds, least_bytes) ||
                           MayBeBestOfFamily(layout, least_seconds);
    if (!is_wanted) ++found_.counts.pruned;
    return is_wanted;
  }

  // Returns nullopt if Price or PriceLayers does. Also returns nullopt if the number of recomputed layers was
  // not yet known; the proposal then waits again, with the bound after one more trial.
  std::optional<Candidate> PriceProposal(const Strategy& strategy, int index, Proposal& proposal) {
    const Layout& layout = proposal.layout;
    if (!ChoosesLayers(layout) || !proposal.least.has_value() || !IsPossible(layout))
      return Price(strategy, layout);
    if (!proposal.layers.has_value()) proposal.layers = LayersOf(layout, *proposal.least);
    if (proposal.layers->IsKnown()) return PriceLayers(strategy, layout, *proposal.layers);
    TryLayers(strategy, layout, problem_.memory_limit_bytes, *proposal.layers);
    proposal.least->recomputed_layers = proposal.layers->Least();
    // Do not prune by the memory bound here. More recomputed layers may still fit, because a stage that keeps
    // nothing needs more memory during its backward.
    const simulate::StepBound bound = BoundOf(strategy, *proposal.least);
    waiting_.insert({bound.seconds, bound.peak_bytes, index});
    return std::nullopt;
  }

  void Add(Candidate priced, int index) {
    found_.candidates.push_back(std::move(priced));
    sources_.push_back(index);
    const Candidate& candidate = found_.candidates.back();
    if (!candidate.fits) return;
    const double seconds = candidate.step_seconds;
    const auto note = [seconds](double& fastest) {
      if (fastest < 0 || seconds < fastest) fastest = seconds;
    };
    note(fastest_);
    note(fastest_of_family_[static_cast<size_t>(layout::FamilyOf(candidate.layout))]);
    note(fastest_of_key_.try_emplace(KeyOf(candidate.layout, IsTight(candidate.memory.peak_bytes)), -1)
             .first->second);
  }

  bool IsTight(int64_t peak_bytes) const { return planner::IsTight(peak_bytes, problem_.memory_limit_bytes); }

  // Returns false if the layout is slower than one that was found, or if a layout with a lower key is at
  // least as fast. In the second case, that layout may be chosen whenever this one may.
  bool MayBeChosen(const Layout& layout, double least_seconds, int64_t least_bytes) const {
    if (fastest_ < 0) return true;
    if (least_seconds > fastest_ * kSameTime) return false;
    const LayoutKey key = KeyOf(layout, IsTight(least_bytes) && !CanRecomputeMore(layout));
    for (const auto& [lower, seconds] : fastest_of_key_) {
      if (!(lower < key)) break;
      if (seconds <= least_seconds) return false;
    }
    return true;
  }

  bool MayBeBestOfFamily(const Layout& layout, double least_seconds) const {
    if (wanted_ != Wanted::kFamilies) return false;
    const double fastest = fastest_of_family_[static_cast<size_t>(layout::FamilyOf(layout))];
    return fastest < 0 || least_seconds * kSameTime < fastest;
  }

  // Whether PriceRoomyOnes can free memory by recomputing more layers of this layout.
  bool CanRecomputeMore(const Layout& layout) const {
    const layout::Request& request = problem_.request;
    return !request.recompute.has_value() && !request.recomputed_layers.has_value() &&
           (layout.recompute == Recompute::kNone || layout.recompute == Recompute::kFull);
  }

  // The fewest recomputed layers that fit leave little memory free. For each layout that may be chosen, adds
  // one with the fewest recomputed layers that leave a tenth of the memory free.
  void PriceRoomyOnes() {
    const auto roomy_bytes =
        static_cast<int64_t>(kRoomyShare * static_cast<double>(problem_.memory_limit_bytes));
    const size_t count = found_.candidates.size();
    for (size_t i = 0; i < count; ++i) {
      const Proposal& proposal = proposals_[static_cast<size_t>(sources_[i])];
      const Candidate& candidate = found_.candidates[i];
      if (!candidate.fits || candidate.step_seconds > fastest_ * kSameTime ||
          !IsTight(candidate.memory.peak_bytes) || !CanRecomputeMore(proposal.layout)) {
        continue;
      }
      Layout layout = proposal.layout;
      layout.recompute = Recompute::kFull;
      const Strategy& strategy = strategies_[static_cast<size_t>(proposal.strategy)];
      const std::optional<Layout> least = LeastByBound(strategy, layout, roomy_bytes);
      if (!least.has_value()) continue;
      LeastLayers layers = LayersOf(layout, *least);
      while (!layers.IsKnown()) TryLayers(strategy, layout, roomy_bytes, layers);
      std::optional<Candidate> roomy = PriceLayers(strategy, layout, layers);
      if (roomy.has_value() && !IsTight(roomy->memory.peak_bytes)) Add(*std::move(roomy), sources_[i]);
    }
  }

  // For each family in which nothing fits, estimates the layout with the lowest memory bound. Its numbers
  // show how much memory is missing.
  void PriceSmallest() {
    for (size_t f = 0; f < smallest_.size(); ++f) {
      const int index = smallest_[f].second;
      if (index < 0 || fastest_of_family_[f] >= 0) continue;
      const Proposal& proposal = proposals_[static_cast<size_t>(index)];
      if (std::optional<Candidate> priced =
              Price(strategies_[static_cast<size_t>(proposal.strategy)], proposal.layout))
        Add(*std::move(priced), index);
    }
  }

  // ---- orders of pipelines

  Order UsualOrder() const {
    const layout::Request& request = problem_.request;
    if (!request.passes.empty()) return {layout::kOwnPasses, request.virtual_stages.value_or(1)};
    const std::string usual(schedule::PipelineKindName(schedule::PipelineKind::k1F1B));
    return {request.pipeline_order.value_or(usual), request.virtual_stages.value_or(1)};
  }

  // Returns the orders to consider: the usual one and, if the recipe does not state an order, those that are
  // often better. Omits orders that hold every micro-batch at once, because for each of them there is a
  // faster order that needs less memory.
  std::vector<Order> Orders() const {
    const layout::Request& request = problem_.request;
    const Order usual = UsualOrder();
    std::vector<Order> orders = {usual};
    if (request.pipeline_order.has_value() || !request.passes.empty()) return orders;
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

  const simulate::StepBounder& BounderOf(const Strategy& strategy, const Layout& layout) const {
    const auto key = std::make_pair(layout.micro_batch, WithinLayers(layout));
    auto known = strategy.bounders.find(key);
    if (known == strategy.bounders.end())
      known = strategy.bounders.emplace(key, MakeBounder(strategy, layout)).first;
    return known->second;
  }

  // Full recomputation runs whole layers again, so the costs within a layer are those of no recomputation.
  static Recompute WithinLayers(const Layout& layout) {
    return layout.recompute == Recompute::kFull ? Recompute::kNone : layout.recompute;
  }

  // Returns a bounder that shares its costs with the bounders of other strategies and micro-batches.
  simulate::StepBounder MakeBounder(const Strategy& strategy, const Layout& layout) const {
    const simulate::GraphCosts& costs = GraphCostsOf(strategy, layout);
    if (!strategy.costs.has_value()) strategy.costs = NewBounder(strategy, layout, &costs).ledger_costs();
    return {costs, *strategy.costs, FoldedOf(strategy).ledger(), problem_.rates};
  }

  const simulate::GraphCosts& GraphCostsOf(const Strategy& strategy, const Layout& layout) const {
    const auto [known, is_new] =
        graph_costs_.try_emplace(std::make_tuple(strategy.mesh.tp, layout.micro_batch, WithinLayers(layout)));
    if (is_new) {
      const simulate::StepBounder bounder = NewBounder(strategy, layout, /*known=*/nullptr);
      known->second = bounder.graph_costs();
      strategy.costs = bounder.ledger_costs();
    }
    return known->second;
  }

  simulate::StepBounder NewBounder(const Strategy& strategy, const Layout& layout,
                                   const simulate::GraphCosts* known) const {
    return FoldedOf(strategy).Bounder(OptionsOf(layout), problem_.rates, known);
  }

  simulate::StepBound BoundOf(const Strategy& strategy, const Layout& layout) const {
    const simulate::StepBounder& bounder = BounderOf(strategy, layout);
    if (layout.mesh.pp > 1)
      return bounder.Bound(schedule::OptionsOf(layout, problem_.setting), ShapeOf(layout));
    return bounder.BoundDataParallel(OptionsOf(layout), NumLayers(*problem_.request.spec),
                                     layout.num_micro_batches);
  }

  // Returns the shape of a layout with a pipeline.
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

  // Returns options for a step with few micro-batches. Each micro-batch frees the memory that it used, so a
  // step with more of them needs no more memory.
  schedule::BuildOptions OptionsOf(const Layout& layout) const {
    return schedule::OptionsOf(layout, problem_.setting, simulate::kMicroBatchesToPrice);
  }

  // Returns nullopt if the layout's pipeline order does not support this number of micro-batches.
  std::optional<Candidate> Price(const Strategy& strategy, const Layout& layout) {
    if (!IsPossible(layout)) return std::nullopt;
    if (passes_.fold && layout.mesh.pp == 1) {
      const std::optional<simulate::StepPrice> price =
          FoldedOf(strategy).Price(OptionsOf(layout), layout.num_micro_batches, problem_.rates);
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
    return CandidateOf(layout, simulate::PriceWhole(built.step, built.ledger, built.options,
                                                    layout.num_micro_batches, problem_.rates));
  }

  schedule::LayoutStep BuildWhole(const Layout& layout) {
    const model::Architecture& spec = *problem_.request.spec;
    if (inventory_.empty()) inventory_ = model::Inventory(spec);
    absl::StatusOr<schedule::LayoutStep> built =
        schedule::BuildLayoutStep(spec, inventory_, layout, problem_.setting, simulate::kMicroBatchesToPrice);
    TRAINCTL_CHECK_MSG(built.ok(), built.status().message());
    return *std::move(built);
  }

  const Problem& problem_;
  const Wanted wanted_;
  const SearchPasses passes_;
  const simulate::FoldedModel folded_;
  std::vector<model::Parameter> inventory_;  // parameters of the whole model; empty until needed
  // Keyed by the pipeline's order, virtual stages and degree, and by the number of micro-batches.
  mutable std::map<std::tuple<std::string, int64_t, int64_t, int64_t>, simulate::StepShape> shapes_;
  // Keyed by the degree of tensor parallelism, the micro-batch and the recomputation within layers.
  mutable std::map<std::tuple<int64_t, int64_t, Recompute>, simulate::GraphCosts> graph_costs_;
  // Layers per stage. Keyed by the number of stages and the relative times of the embedding and the head,
  // because the layers do not depend on the degrees of data parallelism.
  mutable std::map<std::tuple<int64_t, double, double>, std::vector<int64_t>> balanced_;
  std::deque<Strategy> strategies_;
  std::vector<Group> groups_;  // sorted by their bounds once all have been added
  std::vector<Proposal> proposals_;
  // Bounds of the time and memory of the waiting proposals, and their indices.
  std::set<std::tuple<double, int64_t, int>> waiting_;
  std::vector<int> sources_;  // for each candidate, the index of its proposal
  // Seconds of the fastest layout that fits so far, overall, by family and by key; -1 if nothing fits.
  double fastest_ = -1;
  std::array<double, layout::kNumFamilies> fastest_of_family_;
  std::map<LayoutKey, double> fastest_of_key_;
  // For each family, the lowest memory bound and the index of its proposal; -1 if the family has none.
  std::array<std::pair<int64_t, int>, layout::kNumFamilies> smallest_;
  Found found_;
};

}  // namespace

Found Search(const Problem& problem, Wanted wanted, const SearchPasses& passes) {
  return Searcher(problem, wanted, passes).Run();
}

std::vector<Candidate> RuledOut(const Problem& problem, const Layout& chosen) {
  return Searcher(problem, Wanted::kChoice, {}).WeighRuledOut(chosen);
}

}  // namespace trainctl::planner
