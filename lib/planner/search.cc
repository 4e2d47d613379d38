#include "planner/search.h"

#include <algorithm>
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

// Every mesh and stage, in the order of stages and of growing dp_shard. Pipeline and tensor parallelism are
// as they were asked for.
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

layout::Pipeline PipelineOf(const layout::Request& request) {
  if (request.pp.value_or(1) == 1) return {};
  const std::string named =
      request.pipeline_order.value_or(std::string(schedule::PipelineKindName(schedule::PipelineKind::k1F1B)));
  return {.order = request.passes.empty() ? named : layout::kOwnPasses,
          .passes = request.passes,
          .virtual_stages = request.virtual_stages.value_or(1),
          .stage_layers = request.stage_layers.value_or(
              layout::EvenStageLayers(request.spec->layers, request.num_stages()))};
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

// A mesh and a stage. Those of data parallelism are priced from folded steps.
struct Strategy {
  layout::Mesh mesh;
  int stage = 0;
  std::optional<simulate::FoldedStrategy> folded = {};
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
    if (passes_.play && wanted_ == Wanted::kAll) PlayFinalists();
    found_.chosen = Choose(problem_.memory_limit_bytes, found_.candidates);
    return std::move(found_);
  }

  std::vector<Candidate> WeighRuledOut(const Layout& chosen) {
    ForEachStrategy(problem_.request, [&](const layout::Mesh& mesh, int stage) {
      const std::string setting = RulingSetting(problem_, mesh, stage);
      if (setting.empty()) return;
      const Strategy strategy = MakeStrategy(mesh, stage);
      std::optional<Candidate> candidate =
          Price(strategy, LayoutOf(strategy, chosen.micro_batch, chosen.recompute));
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
    Strategy strategy{mesh, stage};
    if (mesh.pp == 1) strategy.folded.emplace(folded_, mesh, stage, SequenceParallel());
    return strategy;
  }

  bool SequenceParallel() const { return problem_.request.sequence_parallel.value_or(true); }

  // ---- enumerate

  // Powers of two up to the worker's share of the batch, and that share.
  std::vector<int64_t> MicroBatches() const {
    if (problem_.request.micro_batch.has_value()) return {*problem_.request.micro_batch};
    const int64_t share = problem_.request.batch_sequences / problem_.request.data_workers();
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
    for (int64_t micro_batch : MicroBatches()) {
      bool fits = false;
      for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
        // Computing more again is worth a look only where less does not fit.
        if (!fits && asked.value_or(recompute) == recompute)
          fits = WeighVariant(strategy, micro_batch, recompute);
      }
      // Larger ones fit even less. Their times are no reason to stop: one size may gain nothing and the next
      // one much, as it fills the threads or tiles.
      if (!fits) return;
    }
  }

  // False: it does not fit.
  bool WeighVariant(const Strategy& strategy, int64_t micro_batch, Recompute recompute) {
    const Layout layout = LayoutOf(strategy, micro_batch, recompute);
    switch (Prune(strategy, layout)) {
      case Pruned::kMemory:
        return false;
      case Pruned::kTime:
        // Whether it fits does not matter: recompute is slower still, and larger ones are looked at.
        return true;
      case Pruned::kNot:
        break;
    }
    std::optional<Candidate> priced = Price(strategy, layout);
    if (!priced.has_value()) return true;  // a larger micro-batch may make a number that the order takes
    found_.candidates.push_back(*std::move(priced));
    const Candidate& candidate = found_.candidates.back();
    if (candidate.fits && (fastest_ < 0 || candidate.step_seconds < fastest_))
      fastest_ = candidate.step_seconds;
    return candidate.fits;
  }

  Layout LayoutOf(const Strategy& strategy, int64_t micro_batch, Recompute recompute) const {
    const layout::Request& request = problem_.request;
    return {.mesh = strategy.mesh,
            .pipeline = PipelineOf(request),
            .sequence_parallel = SequenceParallel(),
            .zero_stage = strategy.stage,
            .micro_batch = micro_batch,
            .num_micro_batches = request.batch_sequences / request.data_workers() / micro_batch,
            .recompute = recompute};
  }

  // ---- bound, prune

  enum class Pruned { kNot, kMemory, kTime };

  Pruned Prune(const Strategy& strategy, const Layout& layout) {
    if (!strategy.folded.has_value() || wanted_ == Wanted::kAll ||
        !(passes_.prune_memory || passes_.prune_time))
      return Pruned::kNot;
    ++found_.counts.bounded;
    const simulate::StepBound bound =
        strategy.folded->Bound(OptionsOf(layout), layout.num_micro_batches, problem_.rates);
    const bool too_large = passes_.prune_memory && bound.peak_bytes > problem_.memory_limit_bytes;
    const bool too_slow = passes_.prune_time && fastest_ >= 0 && bound.seconds > fastest_ * kSameTime;
    if (!too_large && !too_slow) return Pruned::kNot;
    ++found_.counts.pruned;
    return too_large ? Pruned::kMemory : Pruned::kTime;
  }

  // ---- fold

  // From a step of a few micro-batches: each frees what it used, so that more of them need no more.
  schedule::BuildOptions OptionsOf(const Layout& layout) const {
    return schedule::OptionsOf(layout, problem_.setting, simulate::kMicroBatchesToPrice);
  }

  // nullopt: the order of its pipeline is not for this number of micro-batches.
  std::optional<Candidate> Price(const Strategy& strategy, const Layout& layout) {
    if (layout.mesh.pp > 1 && !schedule::CheckPipelineLayout(layout).ok()) return std::nullopt;
    if (passes_.fold && strategy.folded.has_value()) {
      const std::optional<simulate::StepPrice> price =
          strategy.folded->Price(OptionsOf(layout), layout.num_micro_batches, problem_.rates);
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
    const model::ModelSpec& spec = *problem_.request.spec;
    if (inventory_.empty()) inventory_ = model::Inventory(spec);
    const absl::StatusOr<schedule::LayoutStep> built =
        schedule::BuildLayoutStep(spec, inventory_, layout, problem_.setting, simulate::kMicroBatchesToPrice);
    TRAINCTL_CHECK_MSG(built.ok(), built.status().message());
    return CandidateOf(layout, simulate::PriceWhole(built->step, spec, built->ledger, built->options,
                                                    layout.num_micro_batches, problem_.rates));
  }

  // Those that may be chosen.
  void PlayFinalists() {
    if (fastest_ < 0 || !passes_.fold) return;
    std::vector<Candidate*> finalists;
    for (Candidate& candidate : found_.candidates) {
      if (candidate.fits && candidate.step_seconds <= fastest_ * kSameTime) finalists.push_back(&candidate);
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
  double fastest_ = -1;                      // of those that fit, so far
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
