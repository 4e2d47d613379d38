#include "simulate/bounds.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/types/span.h"
#include "base/status.h"
#include "model/segment.h"
#include "simulate/work_table.h"

namespace trainctl::simulate {
namespace {

using schedule::Instruction;
using schedule::Op;

// Sums that are added in a different order from the player's may be slightly higher. This factor corrects for
// that.
constexpr double kRounding = 1 - 1e-9;
// Number of slots for gathered layers, and for their gradients. At most this many layers are already in their
// slots when a pass begins.
constexpr int64_t kLayerSlots = 2;

enum Kind { kEmbedding, kLayer, kHead, kNumKinds };

// The blocks and micro-batches of a stage that a class runs.
struct Stage {
  bool has[kNumKinds] = {false, false, false};
  int64_t num_layers = 0;
  int64_t num_recomputed = 0;  // recomputed layers among them
  int64_t num_micro_batches = 0;

  int64_t Count(int kind) const { return kind == kLayer ? num_layers : has[kind] ? 1 : 0; }
};

// Minimum time of each kind of work that a class does in a step. The work runs on several streams.
struct ClassSeconds {
  double passes = 0;
  double reduces = 0;
  double gathers = 0;
  double update = 0;  // optimizer step, after the norm
  double gather_updated = 0;
  double norm = 0;
};

model::SegmentMemory Least(const model::SegmentMemory& a, const model::SegmentMemory& b) {
  const auto& [output, saved, forward, recompute, inference, backward, input_gradient, loss, input_backward,
               queued, weight_backward] = b;
  return {.output_bytes = std::min(a.output_bytes, output),
          .saved_bytes = std::min(a.saved_bytes, saved),
          .forward_peak = std::min(a.forward_peak, forward),
          .recompute_peak = std::min(a.recompute_peak, recompute),
          .inference_peak = std::min(a.inference_peak, inference),
          .backward_peak = std::min(a.backward_peak, backward),
          .input_gradient_bytes = std::min(a.input_gradient_bytes, input_gradient),
          .loss_peak = std::min(a.loss_peak, loss),
          .input_backward_peak = std::min(a.input_backward_peak, input_backward),
          .queued_bytes = std::min(a.queued_bytes, queued),
          .weight_backward_peak = std::min(a.weight_backward_peak, weight_backward)};
}

PassCost Least(const PassCost& a, const PassCost& b) {
  return {
      .forward_s = std::min(a.forward_s, b.forward_s),
      .again_s = std::min(a.again_s, b.again_s),
      .backward_s = {std::min(a.backward_s[0], b.backward_s[0]), std::min(a.backward_s[1], b.backward_s[1])},
      .input_backward_s = std::min(a.input_backward_s, b.input_backward_s),
      .weight_backward_s = std::min(a.weight_backward_s, b.weight_backward_s),
      .memory = Least(a.memory, b.memory)};
}

class Coster {
 public:
  Coster(const model::Graph& graph, const layout::Ledger& ledger, const schedule::BuildOptions& options,
         const Rates& rates)
      : graph_(graph), ledger_(ledger), rates_(rates), table_(graph, ledger, options, /*own_class=*/0) {}

  std::array<PassCost, kNumKinds> Passes() const {
    return {PassCostOf(0, kEmbedding), LeastOfLayers(), PassCostOf(LastBlock(), kHead)};
  }

  LedgerCosts OfLedger() const {
    LedgerCosts costs;
    costs.blocks = {BucketCostOf(0), BucketCostOf(1), BucketCostOf(LastBlock())};
    costs.count_s = Seconds({.op = Op::kCountLossTokens});
    costs.loss_s = Seconds({.op = Op::kReduceLoss});
    costs.norm_s = rates_.Seconds(table_.Communication({}, {.op = Op::kGradNorm}));
    return costs;
  }

 private:
  int LastBlock() const { return graph_.num_blocks() - 1; }

  double Seconds(const Instruction& instruction) const {
    return rates_.Seconds(table_.WorkOf({}, instruction));
  }

  // Returns the least of each cost over the kinds of layers.
  PassCost LeastOfLayers() const {
    PassCost least = PassCostOf(1, kLayer);
    std::vector<int> known = {graph_.blocks[1].kind};
    for (int block = 2; block < LastBlock(); ++block) {
      const int kind = graph_.blocks[static_cast<size_t>(block)].kind;
      if (std::find(known.begin(), known.end(), kind) != known.end()) continue;
      known.push_back(kind);
      least = Least(least, PassCostOf(block, kLayer));
    }
    return least;
  }

  PassCost PassCostOf(int block, Kind kind) const {
    PassCost cost;
    const auto pass = [&](Op op, bool adds) {
      return Seconds(
          {.op = op, .block = block, .gradients = {{.accumulate = adds, .accumulate_weights = adds}}});
    };
    if (kind != kHead) cost.forward_s = pass(Op::kForward, false);
    if (kind == kLayer) cost.again_s = pass(Op::kRecompute, false);
    for (const bool adds : {false, true}) {
      double& seconds = cost.backward_s[adds ? 1 : 0];
      if (kind == kHead) {
        seconds = pass(Op::kLossAndGradient, adds);
        continue;
      }
      seconds = pass(Op::kBackward, adds);
      if (kind == kLayer)
        seconds = std::min(seconds, pass(Op::kBackwardInput, adds) + pass(Op::kBackwardWeight, adds));
    }
    // The first writer of a gradient overwrites it, which costs the embedding a pass over its table. With
    // tied embeddings, the head may be the first writer.
    if (kind == kEmbedding && graph_.is_tied())
      cost.backward_s[0] = std::min(cost.backward_s[0], cost.backward_s[1]);
    cost.input_backward_s = std::min(cost.backward_s[0], cost.backward_s[1]);
    if (kind == kLayer) {
      // The first backward of a step has less to add but, on a device, more to clear.
      for (const bool adds : {false, true})
        cost.input_backward_s = std::min(cost.input_backward_s, pass(Op::kBackwardInput, adds));
      cost.weight_backward_s = std::min(pass(Op::kBackwardWeight, false), pass(Op::kBackwardWeight, true));
    }
    cost.memory = model::Analyze(graph_.segment(block));
    return cost;
  }

  BucketCost BucketCostOf(int block) const {
    BucketCost cost;
    const auto exchange = [&](Op op, schedule::Ids groups) {
      return Seconds({.op = op, .bucket = block, .groups = std::move(groups)});
    };
    cost.gather_s = exchange(Op::kGather, {0});
    cost.reduce_s = exchange(Op::kReduceGradient, {0});
    cost.last_reduce_s = exchange(Op::kReduceGradient, {0, 1});
    cost.update_s = exchange(Op::kOptimizerStep, {});
    if (ledger_.optimizer_sharded() && !ledger_.parameters_sharded())
      cost.gather_updated_s = exchange(Op::kGatherUpdated, {0});
    const layout::Bucket& bucket = ledger_.buckets()[static_cast<size_t>(block)];
    cost.padded_numel = bucket.padded_numel;
    cost.shard_numel = bucket.shard_numel;
    return cost;
  }

  const model::Graph& graph_;
  const layout::Ledger& ledger_;
  const Rates& rates_;
  const WorkTable table_;
};

StepCosts CostsOf(const GraphCosts& of_graph, const LedgerCosts& of_ledger, const layout::Ledger& ledger,
                  const Rates& rates) {
  StepCosts costs{.count_s = of_ledger.count_s, .loss_s = of_ledger.loss_s, .norm_s = of_ledger.norm_s};
  for (size_t kind = 0; kind < costs.blocks.size(); ++kind)
    costs.blocks[kind] = {of_graph.blocks[kind], of_ledger.blocks[kind]};
  costs.hidden_gradient_bytes = of_graph.graph->border_bytes();
  if (ledger.mesh().world_size() > 1) {
    const int64_t bytes = std::min(costs.hidden_gradient_bytes, costs.blocks[kLayer].memory.output_bytes);
    Work send;
    send[Resource::kSentBytes] = static_cast<double>(bytes);
    send[Resource::kCollectives] = 1;
    send.exchanges = {{Message(ledger.mesh(), bytes)}};
    costs.send_s = rates.Seconds(send);
  }
  return costs;
}

class Bounder {
 public:
  Bounder(const model::Graph& graph, const layout::Ledger& ledger, const schedule::BuildOptions& options,
          const Rates& rates, const StepCosts& costs)
      : graph_(graph),
        ledger_(ledger),
        options_(options),
        rates_(rates),
        costs_(costs),
        blocks_(costs.blocks) {}

  StepBound Bound(const StepShape& shape) const {
    const schedule::PipelinePlacement& place = shape.placement;
    StepBound bound;
    double forward_chain = costs_.count_s, backward_chain = 0;
    std::vector<std::vector<Stage>> classes(static_cast<size_t>(place.num_ranks));
    std::vector<double> fill(classes.size(), -1);  // earliest start; -1 until it is known
    for (int s = 0; s < place.num_stages; ++s) {
      const Stage stage = StageOf(shape, s);
      for (int copy = 0; copy < place.num_copies; ++copy) {
        const auto c = static_cast<size_t>(place.HolderOf(copy, s));
        classes[c].push_back(stage);
        if (fill[c] < 0 || forward_chain < fill[c]) fill[c] = forward_chain;
      }
      for (int kind = 0; kind < kNumKinds; ++kind) {
        const BlockCost& block = blocks_[static_cast<size_t>(kind)];
        const double count = static_cast<double>(stage.Count(kind));
        if (kind != kHead) forward_chain += count * block.forward_s;
        backward_chain += count * block.input_backward_s;
      }
      backward_chain += SecondsAgain(stage);
      if (s + 1 < place.num_stages && place.RankOf(s, 0) != place.RankOf(s + 1, 0)) {
        forward_chain += costs_.send_s;
        backward_chain += costs_.send_s;
      }
    }
    for (size_t c = 0; c < classes.size(); ++c) {
      const ClassSeconds seconds = SecondsOf(classes[c]);
      bound.seconds = std::max(bound.seconds, EndOf(seconds, fill[c]));
      const bool has_begin = static_cast<int>(c) == place.RankOf(0, 0);
      if (has_begin) {
        const double after = seconds.norm + seconds.update;
        bound.seconds = std::max(bound.seconds, forward_chain + backward_chain + costs_.loss_s + after);
      }
      // Nothing is reduced before the first loss.
      if (rates_.overlap && classes.size() == 1) {
        const double begin = forward_chain + blocks_[kHead].backward_s[0];
        bound.seconds = std::max(bound.seconds, begin + seconds.reduces + seconds.norm + After(seconds));
      }
      bound.peak_bytes = std::max(
          bound.peak_bytes, PersistentBytes(classes[c]) + LeastActivations(classes[c], HeldOf(shape, c)));
    }
    // A stage with only the head has no forward, and does not have to wait for its turn.
    const Stage last = StageOf(shape, place.num_stages - 1);
    if (shape.passes.has_value() && (last.num_layers > 0 || last.has[kEmbedding]))
      bound.seconds = std::max(bound.seconds, OfPasses(shape, classes));
    bound.seconds = (bound.seconds + rates_[Resource::kSteps]) * kRounding;
    return bound;
  }

  std::optional<std::vector<int64_t>> LeastRecomputed(const StepShape& shape, int64_t limit_bytes) const {
    std::vector<int64_t> stage_layers;
    for (int s = 0; s < shape.placement.num_stages; ++s) stage_layers.push_back(StageOf(shape, s).num_layers);
    std::vector<int64_t> least(stage_layers.size(), 0);
    for (int c = 0; c < shape.placement.num_ranks; ++c) {
      const std::vector<int> own = shape.placement.StagesOf(c);
      const absl::Span<const HeldPasses> held = HeldOf(shape, static_cast<size_t>(c));
      int64_t count = 0;
      for (bool fits = false; !fits; ++count) {
        const std::optional<std::vector<int64_t>> dealt = simulate::DealFirst(count, own, stage_layers);
        if (!dealt.has_value()) return std::nullopt;
        std::vector<Stage> stages;
        // If a class holds both copies of a stage, each copy is a separate stage of the class.
        for (int copy = 0; copy < shape.placement.num_copies; ++copy) {
          for (size_t k = 0; k < own.size(); ++k) {
            if (shape.placement.HolderOf(copy, own[k]) != c) continue;
            stages.push_back(StageOf(shape, own[k]));
            stages.back().num_recomputed = (*dealt)[k];
          }
        }
        fits = PersistentBytes(stages) + LeastActivations(stages, held) <= limit_bytes;
        if (!fits) continue;
        for (size_t k = 0; k < own.size(); ++k) {
          int64_t& of_stage = least[static_cast<size_t>(own[k])];
          of_stage = std::max(of_stage, (*dealt)[k]);
        }
      }
    }
    return least;
  }

  // Returns the minimum time from the start of a micro-batch to the start of the next one, in the middle of a
  // data-parallel step.
  double MiddleSeconds(int64_t layers) const {
    Stage stage;
    stage.has[kEmbedding] = stage.has[kHead] = true;
    stage.num_layers = layers;
    const double later_layers = static_cast<double>(std::max<int64_t>(0, layers - kLayerSlots));
    double passes =
        static_cast<double>(schedule::NumRecomputed(options_, 0, layers)) * blocks_[kLayer].again_s;
    double reduces = 0;
    for (int kind = 0; kind < kNumKinds; ++kind) {
      const BlockCost& block = blocks_[static_cast<size_t>(kind)];
      const double count = static_cast<double>(stage.Count(kind));
      passes += count * PassSeconds(kind, /*adds=*/!ledger_.gradients_sharded());
      if (ledger_.gradients_sharded()) reduces += count * block.reduce_s;
    }
    double gathers = 0, waited = 0;
    if (ledger_.parameters_sharded()) {
      gathers = 2 * later_layers * blocks_[kLayer].gather_s;
      if (!graph_.is_tied()) gathers += blocks_[kHead].gather_s;
    }
    if (!rates_.overlap) return passes + reduces + gathers;
    // The slots of the last two layers may still be reducing when the next micro-batch begins.
    if (ledger_.gradients_sharded()) {
      waited = later_layers * blocks_[kLayer].reduce_s;
      if (later_layers > 0) waited += blocks_[kHead].reduce_s;
    }
    return std::max({passes, waited, gathers});
  }

 private:
  // Returns a bound from playing the passes in their order. After the last pass, adds the remaining work of
  // the class that has the least of it.
  double OfPasses(const StepShape& shape, const std::vector<std::vector<Stage>>& classes) const {
    PipelineCosts costs{.send_s = costs_.send_s};
    for (int s = 0; s < shape.placement.num_stages; ++s) costs.stages.push_back(CostsOf(StageOf(shape, s)));
    const absl::StatusOr<double> end = PlayPassesToEnd(*shape.passes, costs);
    TRAINCTL_CHECK_MSG(end.ok(), end.status().message());
    double after = -1;
    for (const std::vector<Stage>& stages : classes) {
      const ClassSeconds seconds = SecondsOf(stages);
      const double own = seconds.norm + After(seconds);
      if (after < 0 || own < after) after = own;
    }
    return costs_.count_s + *end + costs_.loss_s + std::max(0.0, after);
  }

  // Returns the minimum recomputation time of a backward after its gradient has arrived. The message goes to
  // the stage's last block, whose recomputation may run while the message is on its way.
  double SecondsAgain(const Stage& stage) const {
    const bool may_be_early = !stage.has[kHead] && stage.num_recomputed == stage.num_layers;
    const int64_t recomputed = std::max<int64_t>(0, stage.num_recomputed - (may_be_early ? 1 : 0));
    return static_cast<double>(recomputed) * blocks_[kLayer].again_s;
  }

  StageCosts CostsOf(const Stage& stage) const {
    const double again = SecondsAgain(stage);
    StageCosts costs{.input_backward_s = again, .backward_s = again};
    for (int kind = 0; kind < kNumKinds; ++kind) {
      const BlockCost& block = blocks_[static_cast<size_t>(kind)];
      const double count = static_cast<double>(stage.Count(kind));
      const double backward = std::min(block.backward_s[0], block.backward_s[1]);
      costs.forward_s += count * block.forward_s;
      costs.backward_s += count * backward;
      costs.input_backward_s += count * std::min(backward, block.input_backward_s);
      costs.weight_backward_s += count * block.weight_backward_s;
    }
    return costs;
  }

  Stage StageOf(const StepShape& shape, int s) const {
    const int begin = shape.stage_begin[static_cast<size_t>(s)];
    const int end = shape.stage_begin[static_cast<size_t>(s) + 1];
    Stage stage;
    stage.has[kEmbedding] = begin == 0;
    stage.has[kHead] = end == shape.stage_begin.back();
    stage.num_layers = end - begin - stage.Count(kEmbedding) - stage.Count(kHead);
    stage.num_recomputed = schedule::NumRecomputed(options_, static_cast<size_t>(s), stage.num_layers);
    stage.num_micro_batches = shape.placement.num_micro_batches / shape.placement.num_copies;
    return stage;
  }

  double PassSeconds(int kind, bool adds) const {
    const BlockCost& block = blocks_[static_cast<size_t>(kind)];
    return block.forward_s + block.backward_s[adds ? 1 : 0];
  }

  // Returns the number of buckets of a kind in a class.
  int64_t NumBuckets(const std::vector<Stage>& stages, int kind) const {
    int64_t count = 0;
    for (const Stage& stage : stages) {
      count += stage.Count(kind);
      // A tied head uses the embedding's bucket.
      if (kind == kEmbedding && graph_.is_tied() && stage.has[kHead]) ++count;
    }
    return kind == kLayer ? count : std::min<int64_t>(count, 1);
  }

  ClassSeconds SecondsOf(const std::vector<Stage>& stages) const {
    ClassSeconds seconds;
    double gathers_at_least_once = 0, norm_bytes = 0;
    for (int kind = 0; kind < kNumKinds; ++kind) {
      const BlockCost& block = blocks_[static_cast<size_t>(kind)];
      const double count = static_cast<double>(NumBuckets(stages, kind));
      seconds.reduces += count * block.last_reduce_s;
      seconds.update += count * block.update_s;
      seconds.gather_updated += count * block.gather_updated_s;
      gathers_at_least_once += count * block.gather_s;
      norm_bytes +=
          count * static_cast<double>(block.shard_numel * DTypeBytes(options_.setting.types.gradient));
    }
    for (const Stage& stage : stages) AddPasses(stage, seconds);
    seconds.gathers = ledger_.parameters_sharded() ? std::max(seconds.gathers, gathers_at_least_once) : 0;
    seconds.norm = costs_.norm_s + norm_bytes * rates_[Resource::kMovedBytes];
    return seconds;
  }

  void AddPasses(const Stage& stage, ClassSeconds& seconds) const {
    const double others = static_cast<double>(stage.num_micro_batches - 1);
    const bool adds = !ledger_.gradients_sharded();
    seconds.passes +=
        static_cast<double>(stage.num_recomputed * stage.num_micro_batches) * blocks_[kLayer].again_s;
    for (int kind = 0; kind < kNumKinds; ++kind) {
      const double count = static_cast<double>(stage.Count(kind));
      seconds.passes += count * (PassSeconds(kind, false) + others * PassSeconds(kind, adds));
      if (ledger_.gradients_sharded())
        seconds.reduces += count * others * blocks_[static_cast<size_t>(kind)].reduce_s;
    }
    seconds.gathers += 2 * static_cast<double>(stage.num_micro_batches) *
                       static_cast<double>(std::max<int64_t>(0, stage.num_layers - kLayerSlots)) *
                       blocks_[kLayer].gather_s;
  }

  static double After(const ClassSeconds& seconds) {
    return std::max(seconds.update, seconds.gather_updated);
  }

  double EndOf(const ClassSeconds& seconds, double fill) const {
    const double passes = fill + seconds.passes + costs_.loss_s;
    if (rates_.overlap)
      return std::max({passes, seconds.reduces, seconds.gathers}) + seconds.norm + After(seconds);
    const double all = costs_.count_s + costs_.loss_s + seconds.passes + seconds.reduces + seconds.gathers +
                       seconds.norm + seconds.update + seconds.gather_updated;
    return std::max(passes + seconds.norm + After(seconds), all);
  }

  int64_t PersistentBytes(const std::vector<Stage>& stages) const {
    int64_t full = 0, shard = 0, layers = 0;
    for (int kind = 0; kind < kNumKinds; ++kind) {
      const int64_t count = NumBuckets(stages, kind);
      if (kind == kLayer) layers = count;
      full += count * blocks_[static_cast<size_t>(kind)].padded_numel;
      shard += count * blocks_[static_cast<size_t>(kind)].shard_numel;
    }
    const schedule::StepSetting& setting = options_.setting;
    const schedule::Types& types = setting.types;
    const int64_t compute = DTypeBytes(types.compute);
    const int64_t master = DTypeBytes(types.master);
    const int64_t gradient = DTypeBytes(types.gradient);
    const bool has_master = types.compute != types.master && !ledger_.parameters_sharded();
    const int64_t parameters = ledger_.parameters_sharded() ? shard * master : full * compute;
    const int64_t gradients = (ledger_.gradients_sharded() ? shard : full) * gradient;
    const int64_t states = shard * (setting.optimizer->StateBytes() + (has_master ? master : 0));
    const int64_t slots = std::min<int64_t>(layers, setting.prefetch ? kLayerSlots : 1);
    const int64_t slot_bytes =
        (ledger_.parameters_sharded() ? compute : 0) + (ledger_.gradients_sharded() ? gradient : 0);
    const bool has_copy = setting.checkpoint_copy && !setting.on_device;
    const int64_t copy = has_copy ? shard * (master + setting.optimizer->StateBytes()) : 0;
    return parameters + gradients + states + slots * slot_bytes * blocks_[kLayer].padded_numel + copy +
           setting.workspace_bytes;
  }

  // Returns the bytes that a pass keeps in a stage from its forward to its backward.
  int64_t KeptBytes(const Stage& stage) const {
    int64_t kept = 0;
    for (const Kind kind : {kEmbedding, kLayer}) {
      const model::SegmentMemory& memory = blocks_[static_cast<size_t>(kind)].memory;
      const int64_t input = kind == kLayer ? blocks_[kEmbedding].memory.output_bytes : 0;
      const int64_t recomputed = kind == kLayer ? stage.num_recomputed : 0;
      kept += stage.Count(kind) * input + (stage.Count(kind) - recomputed) * memory.saved_bytes;
    }
    return kept;
  }

  static absl::Span<const HeldPasses> HeldOf(const StepShape& shape, size_t own_class) {
    static constexpr HeldPasses kOne{.whole = 1};
    if (shape.held.empty()) return {&kOne, 1};
    return shape.held[own_class];
  }

  // Returns the minimum peak of the activations: of all passes that are held at one moment, or of one
  // micro-batch in one stage when its backward begins there.
  int64_t LeastActivations(const std::vector<Stage>& stages, absl::Span<const HeldPasses> moments) const {
    int64_t kept = 0, queued = 0;  // of one pass; minimum over the stages
    for (const Stage& stage : stages) {
      const int64_t own_queue = stage.num_layers * blocks_[kLayer].memory.queued_bytes;
      const bool is_first = &stage == stages.data();
      kept = is_first ? KeptBytes(stage) : std::min(kept, KeptBytes(stage));
      queued = is_first ? own_queue : std::min(queued, own_queue);
    }
    int64_t most = 0;
    for (const auto& [whole, waiting] : moments) most = std::max(most, whole * kept + waiting * queued);
    for (const Stage& stage : stages) {
      const int64_t held = KeptBytes(stage);
      if (stage.has[kHead]) {
        const int64_t input = blocks_[kEmbedding].memory.output_bytes;
        most = std::max(most, held + input + blocks_[kHead].memory.loss_peak);
      }
      if (stage.num_layers == 0) continue;
      const model::SegmentMemory& layer = blocks_[kLayer].memory;
      int64_t backward = std::min(layer.backward_peak, layer.input_backward_peak);
      // The backward begins with the stage's last layer.
      if (stage.num_recomputed == stage.num_layers) {
        // The layer may be recomputed before the gradient arrives from another class.
        most = std::max(most,
                        held + (stage.has[kHead] ? costs_.hidden_gradient_bytes : 0) + layer.recompute_peak);
        backward += layer.saved_bytes;
      }
      most = std::max(most, held + costs_.hidden_gradient_bytes + backward);
    }
    return most;
  }

  const model::Graph& graph_;
  const layout::Ledger& ledger_;
  const schedule::BuildOptions& options_;
  const Rates& rates_;
  const StepCosts& costs_;
  const std::array<BlockCost, kNumKinds>& blocks_;
};

}  // namespace

StepShape DataParallelShape(int64_t layers, int64_t num_micro_batches) {
  return {.placement = {.num_ranks = 1,
                        .num_stages = 1,
                        .num_micro_batches = static_cast<int>(num_micro_batches),
                        .stage_ranks = {0}},
          .stage_begin = {0, static_cast<int>(layers) + 2}};
}

namespace {

// Returns the moments of a class with the most passes (see StepShape::held).
std::vector<HeldPasses> MostHeld(const std::vector<schedule::PipelineAction>& actions) {
  std::vector<HeldPasses> most;
  HeldPasses now;
  for (const schedule::PipelineAction& action : actions) {
    switch (action.op) {
      case schedule::PipelineOp::kForward:
        ++now.whole;
        // This forward alternates with a backward, which frees memory before the forward has saved
        // everything.
        if (action.joined) continue;
        break;
      case schedule::PipelineOp::kBackward:
        --now.whole;
        break;
      case schedule::PipelineOp::kBackwardInput:
        --now.whole, ++now.waiting;
        break;
      case schedule::PipelineOp::kBackwardWeight:
        --now.waiting;
        break;
    }
    const auto covers = [](const HeldPasses& a, const HeldPasses& b) {
      return a.whole >= b.whole && a.waiting >= b.waiting;
    };
    if (std::any_of(most.begin(), most.end(), [&](const HeldPasses& other) { return covers(other, now); }))
      continue;
    std::erase_if(most, [&](const HeldPasses& other) { return covers(now, other); });
    most.push_back(now);
  }
  return most;
}

}  // namespace

StepShape ShapeOf(const schedule::PipelineSchedule& order, std::vector<int> stage_begin) {
  StepShape shape{.placement = order.placement, .stage_begin = std::move(stage_begin)};
  bool joins = false;
  size_t num_passes = 0;
  for (const std::vector<schedule::PipelineAction>& actions : order.actions) {
    num_passes += actions.size();
    for (const schedule::PipelineAction& action : actions) joins = joins || action.joined;
    shape.held.push_back(MostHeld(actions));
  }
  // The blocks of two joined passes take turns, and the shorter pass ends first.
  if (!joins && num_passes <= kMaxPassesPlayed) {
    absl::StatusOr<PassList> passes = MakePassList(order, /*sends_on_compute=*/false);
    if (passes.ok()) shape.passes = *std::move(passes);
  }
  return shape;
}

std::optional<std::vector<int64_t>> DealFirst(int64_t count, const std::vector<int>& stages,
                                              const std::vector<int64_t>& stage_layers) {
  std::vector<int64_t> dealt;
  for (const int stage : stages) {
    dealt.push_back(std::min(count, stage_layers[static_cast<size_t>(stage)]));
    count -= dealt.back();
  }
  if (count > 0) return std::nullopt;
  return dealt;
}

double MeanPassSeconds(const GraphCosts& costs, int64_t layers, int64_t num_micro_batches, int64_t pp,
                       const Rates& rates) {
  const auto seconds = [&](Kind kind) {
    const PassCost& cost = costs.blocks[kind];
    return cost.forward_s + std::min(cost.backward_s[0], cost.backward_s[1]);
  };
  const double of_micro_batch =
      seconds(kEmbedding) + static_cast<double>(layers) * seconds(kLayer) + seconds(kHead);
  const double of_rank = static_cast<double>(num_micro_batches) * of_micro_batch / static_cast<double>(pp);
  return (of_rank + rates[Resource::kSteps]) * kRounding;
}

StepBounder::StepBounder(std::shared_ptr<const model::Graph> graph, const layout::Ledger& ledger,
                         const schedule::BuildOptions& options, const Rates& rates, const GraphCosts* known)
    : graph_(std::move(graph)), ledger_(ledger), rates_(rates) {
  const Coster coster(*graph_, ledger, options, rates);
  const GraphCosts own = known != nullptr ? *known : GraphCosts{graph_, coster.Passes()};
  costs_ = CostsOf(own, coster.OfLedger(), ledger, rates);
}

StepBounder::StepBounder(const GraphCosts& graph_costs, const LedgerCosts& ledger_costs,
                         const layout::Ledger& ledger, const Rates& rates)
    : graph_(graph_costs.graph),
      ledger_(ledger),
      rates_(rates),
      costs_(CostsOf(graph_costs, ledger_costs, ledger, rates)) {}

GraphCosts StepBounder::graph_costs() const {
  return {graph_, {costs_.blocks[kEmbedding], costs_.blocks[kLayer], costs_.blocks[kHead]}};
}

LedgerCosts StepBounder::ledger_costs() const {
  return {.blocks = {costs_.blocks[kEmbedding], costs_.blocks[kLayer], costs_.blocks[kHead]},
          .count_s = costs_.count_s,
          .loss_s = costs_.loss_s,
          .norm_s = costs_.norm_s};
}

StepBound StepBounder::Bound(const schedule::BuildOptions& options, const StepShape& shape) const {
  return Bounder(*graph_, ledger_, options, rates_, costs_).Bound(shape);
}

StepBound StepBounder::BoundDataParallel(const schedule::BuildOptions& options, int64_t layers,
                                         int64_t num_micro_batches) const {
  const Bounder bounder(*graph_, ledger_, options, rates_, costs_);
  const int64_t played = std::min<int64_t>(num_micro_batches, kMicroBatchesToPrice);
  StepBound bound = bounder.Bound(DataParallelShape(layers, played));
  bound.seconds +=
      static_cast<double>(num_micro_batches - played) * bounder.MiddleSeconds(layers) * kRounding;
  return bound;
}

std::optional<std::vector<int64_t>> StepBounder::LeastRecomputed(const schedule::BuildOptions& options,
                                                                 const StepShape& shape,
                                                                 int64_t limit_bytes) const {
  return Bounder(*graph_, ledger_, options, rates_, costs_).LeastRecomputed(shape, limit_bytes);
}

BlockSeconds StepBounder::SecondsOfBlocks(layout::Recompute recompute) const {
  const auto seconds = [](const BlockCost& block) { return block.forward_s + block.backward_s[1]; };
  const auto& [embedding, layer, head] = costs_.blocks;
  const double again = recompute == layout::Recompute::kFull ? layer.again_s : 0;
  return {seconds(embedding), seconds(layer) + again, seconds(head)};
}

}  // namespace trainctl::simulate
