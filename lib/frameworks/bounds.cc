#include "frameworks/bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "frameworks/data_parallel_time.h"
#include "frameworks/device_memory.h"
#include "frameworks/overlap.h"
#include "frameworks/update_time.h"

namespace trainctl::frameworks {
namespace {

using schedule::PipelineKind;

// Sums of doubles in another order than the price's.
constexpr double kRounding = 1 - 1e-9;
// Of a pass that lasts for ever, in seconds; small enough that sums with it stay exact.
constexpr double kForEver = 1e6;

bool HasLayersOf(const model::Architecture& model, bool moe) {
  const int64_t dense = NumDenseLayers(model);
  return moe ? dense < NumLayers(model) : dense > 0;
}

// The job of `layers` layers of one kind on one pipeline rank.
Workload SmallJob(const Workload& w, int64_t layers, bool moe, int64_t num_micro_batches) {
  Workload job = w;
  job.window_share = w.window_share.has_value() ? *w.window_share : WindowShare(w.model);
  RepeatLayer(job.model, moe ? NumLayers(w.model) - 1 : 0, layers);
  job.stage_layers.clear();
  job.pipeline = std::nullopt;
  job.mesh.pp = 1;
  job.virtual_stages = 1;
  job.offloaded_layers = 0;
  job.tuning = {};
  job.global_batch = num_micro_batches * job.micro_batch * job.mesh.data_degree();
  return job;
}

Workload WithTwoLayers(Workload job) {
  RepeatLayer(job.model, 0, 2);
  return job;
}

// With next to no optimizer, and none of the buffers of ZeRO-2 and 3: those are counted apart.
Workload WithoutStates(Workload job) {
  job.zero_stage = 1;
  const int64_t num_micro_batches = job.num_micro_batches();
  job.mesh.dp_replicate = 1;
  job.mesh.dp_shard = 1 << 20;
  job.global_batch = num_micro_batches * job.micro_batch * job.mesh.data_degree();
  job.optimizer_on_host = true;
  return job;
}

double Of(const MemoryPrice& price, MemoryPart part) { return price.parts[static_cast<size_t>(part)]; }

// Weights and optimizer, and the gradients that are there at a moment. Those that are applied at once do not
// add up over layers: left out.
double StatesOf(const Workload& w, MemoryMoment moment) {
  const MemoryPrice price = PriceMemory(w);
  return Of(price, MemoryPart::kParameters) + Of(price, MemoryPart::kOptimizer) +
         (w.optimizer_in_backward ? 0 : price.At(moment).gradients);
}

// The first backward needs this on any rank. A rank with the head may need more for the loss.
double BesideLayers(const MemoryPrice& price, bool head) {
  const double backward = price.At(MemoryMoment::kBackward).work;
  const MemoryPrice::Moment& loss = price.At(MemoryMoment::kLoss);
  return head ? std::max(backward, loss.work + loss.logits) : backward;
}

// Some buffers are there with one micro-batch alone, others with several.
double LeastBesideLayers(Workload job, bool head) {
  const double of_one = BesideLayers(PriceMemory(job), head);
  job.global_batch *= 2;
  return std::min(of_one, BesideLayers(PriceMemory(job), head));
}

StateBytes::Parts StatesAt(const Workload& w, MemoryMoment moment, int64_t num_micro_batches) {
  StateBytes::Parts parts;
  Workload small = w;
  small.micro_batch = 1;
  small.seq_len = w.mesh.cp;
  small.recompute = RecomputeKind::kNone;
  small.recomputed_layers = std::nullopt;
  // Eight bytes of the larger of two groups of parameters do not add up over layers; four of all are no more.
  small.half_moments = false;
  small.mesh.dp_replicate = 1;
  for (const bool moe : {false, true}) {
    if (!HasLayersOf(w.model, moe)) continue;
    Workload job = SmallJob(small, 1, moe, num_micro_batches);
    job.model.tie_embeddings = true;  // one table
    job.model.learned_positions = 0;
    const double one = StatesOf(job, moment);
    parts.layer[moe ? 1 : 0] = StatesOf(WithTwoLayers(job), moment) - one;
    // Twice the rows: one table more.
    job.model.vocab *= 2;
    parts.table = StatesOf(job, moment) - one;
  }
  return parts;
}

LayerTerms::Passes PassesOf(const PassTimes& times) {
  return {.forward = times.ForwardPass(),
          .input_backward = times.InputBackwardPass(),
          .weight_backward = times.weight_backward,
          .tokens = times.expert()};
}

// Adding gradients lengthens the weight backward, and copies from the host hide behind it too: the input
// backward waits `added` seconds less for them. The backward as a whole is no shorter.
void HideCopies(LayerTerms::Passes& passes, double offload_backward, double added) {
  const double hidden = std::min(offload_backward, added);
  passes.input_backward -= hidden;
  passes.weight_backward += hidden;
}

void AddPasses(LayerTerms& terms, const Workload& workload) {
  Workload w = workload;
  w.global_batch = w.micro_batch * w.mesh.data_degree();
  terms.halves_unknown = w.activations_on_host;
  terms.speed_beside_tokens = SpeedLeft(PlacementOf(w, w.mesh.ep, w.mesh.etp), w, /*contention=*/true);
  for (const bool moe : {false, true}) {
    if (!HasLayersOf(w.model, moe)) continue;
    const int64_t layer = moe ? NumLayers(w.model) - 1 : 0;
    std::array<double, 2> offload_backward = {};
    for (const bool recomputed : {false, true}) {
      auto& passes = terms.layer[recomputed ? 1 : 0][moe ? 1 : 0];
      if (recomputed && w.recompute != RecomputeKind::kFull) {
        passes = terms.layer[0][moe ? 1 : 0];
        offload_backward[1] = offload_backward[0];
      } else {
        const PassTimes times = LayerPassTimes(w, layer, {.recomputed = recomputed}, /*contention=*/true);
        passes = PassesOf(times);
        offload_backward[recomputed ? 1 : 0] = times.offload_backward;
      }
    }
    const double weight_backward = terms.layer[0][moe ? 1 : 0].weight_backward;
    for (const int shards : {0, 1}) {
      // Of two micro-batches one has something to add to: of a mean pass that is half.
      Workload two = w;
      two.global_batch *= 2;
      two.zero_stage = shards == 1 ? 3 : 1;
      const PassTimes times = LayerPassTimes(two, layer, {.recomputed = false}, /*contention=*/true);
      terms.accumulation[static_cast<size_t>(shards)][moe ? 1 : 0] =
          std::max(0.0, 2 * (times.weight_backward - weight_backward));
    }
    const double added = std::max(terms.accumulation[0][moe ? 1 : 0], terms.accumulation[1][moe ? 1 : 0]);
    for (const size_t r : {0, 1}) HideCopies(terms.layer[r][moe ? 1 : 0], offload_backward[r], added);
  }
  terms.head = PassesOf(HeadPassTimes(w));
  for (const int shards : {0, 1}) {
    Workload two = w;
    two.global_batch *= 2;
    two.zero_stage = shards == 1 ? 3 : 1;
    terms.head_accumulation[static_cast<size_t>(shards)] =
        2 * std::max(0.0, HeadPassTimes(two).weight_backward - terms.head.weight_backward);
  }
}

void AddBytes(LayerTerms& terms, const Workload& w) {
  const bool recomputes = w.recompute == RecomputeKind::kFull;
  for (const bool recomputed : {false, true}) {
    const size_t r = recomputed ? 1 : 0;
    if (recomputed && !recomputes) {
      terms.kept_bytes[1] = terms.kept_bytes[0];
      terms.other_bytes[1] = terms.other_bytes[0];
      continue;
    }
    double least = std::numeric_limits<double>::infinity();
    double least_with_head = least;
    for (const bool moe : {false, true}) {
      if (!HasLayersOf(w.model, moe)) continue;
      Workload job = WithoutStates(SmallJob(w, 1, moe, 1));
      job.recomputed_layers = std::nullopt;
      if (!recomputed && recomputes) job.recompute = RecomputeKind::kNone;
      // Of several kinds of layers a rank may have the one that needs less.
      least_with_head = std::min(least_with_head, LeastBesideLayers(job, /*head=*/true));
      least = std::min(least, LeastBesideLayers(job, /*head=*/false));
      const MemoryPrice one = PriceMemory(job);
      const MemoryPrice two = PriceMemory(WithTwoLayers(job));
      terms.kept_bytes[r][moe ? 1 : 0] =
          two.At(MemoryMoment::kBackward).activations - one.At(MemoryMoment::kBackward).activations;
      const double slope = (two.upper_bytes - one.upper_bytes) / (two.device_bytes - one.device_bytes);
      terms.upper_scale = std::isfinite(slope) ? slope : 1;
      terms.upper_margin_bytes = one.upper_bytes - terms.upper_scale * one.device_bytes;
    }
    terms.other_bytes[r] = {least, least_with_head};
  }
}

}  // namespace

void RankLoad::Add(const RankLoad& other) {
  dense += other.dense;
  moe += other.moe;
  embedding = embedding || other.embedding;
  head = head || other.head;
}

void LayerTerms::Passes::Add(const Passes& other, double count) {
  forward += count * other.forward;
  input_backward += count * other.input_backward;
  weight_backward += count * other.weight_backward;
  tokens += count * other.tokens;
}

PipelineLoad LoadOf(const Workload& w) {
  const int64_t pp = w.mesh.pp;
  const int64_t num_stages = pp * w.virtual_stages;
  const schedule::PipelineOrder& order = schedule::OrderOf(w.Pipeline());
  const int num_copies = pp > 1 ? order.num_copies() : 1;
  const int64_t dense = NumDenseLayers(w.model);
  PipelineLoad load;
  load.own.resize(static_cast<size_t>(pp));
  load.before.resize(static_cast<size_t>(pp));
  std::vector<bool> seen(static_cast<size_t>(pp), false);
  RankLoad before;
  int64_t first = 0;
  for (int64_t s = 0; s < num_stages; ++s) {
    const int64_t count =
        w.stage_layers.empty() ? LayersOfStage(w, s).count : w.stage_layers[static_cast<size_t>(s)];
    const int64_t plain = std::clamp<int64_t>(dense - first, 0, count);
    const RankLoad stage = {plain, count - plain, s == 0, s == num_stages - 1};
    first += count;
    const auto rank = static_cast<size_t>(order.RankOf(0, s, pp));
    load.stages.push_back(stage);
    if (!seen[rank]) load.before[rank] = before;
    seen[rank] = true;
    load.own[rank].Add(stage);
    for (int copy = 1; copy < num_copies; ++copy)
      load.own[static_cast<size_t>(order.RankOf(copy, s, pp))].Add(stage);
    before.Add(stage);
  }
  load.model = before;
  return load;
}

LayerTerms LayerTermsOf(const Workload& w) {
  LayerTerms terms;
  AddPasses(terms, w);
  AddBytes(terms, w);
  return terms;
}

StateBytes StateBytesOf(const Workload& w) {
  StateBytes states;
  states.beside = {StatesAt(w, MemoryMoment::kBackward, 1), StatesAt(w, MemoryMoment::kBackward, 2)};
  states.alone = StatesAt(w, MemoryMoment::kStep, 1);
  return states;
}

StateTerms StateTermsOf(const Workload& w) {
  StateTerms terms;
  terms.update = UpdateSeconds(w);
  terms.outside_bytes = OutsideBytes(w);
  Workload job = w;
  job.global_batch = w.micro_batch * w.mesh.data_degree();
  PassTimes nothing, for_ever;
  for_ever.forward = for_ever.input_backward = kForEver;
  const auto exchanges = [&](const PassTimes& beside) {
    return TimeDataParallel(job, beside, /*contention=*/true).total();
  };
  terms.bare = exchanges(nothing);
  terms.hidden = exchanges(for_ever);
  job.global_batch *= 2;
  terms.bare_more = std::max(0.0, exchanges(nothing) - terms.bare);
  terms.hidden_more = std::max(0.0, exchanges(for_ever) - terms.hidden);
  // Differences that are rounding.
  if (terms.bare_more < 1e-9 * terms.bare) terms.bare_more = terms.hidden_more = 0;
  return terms;
}

namespace {

// The share of micro-batches whose gradients are added to others.
struct Additions {
  double layers = 0, head = 0;
};

// One micro-batch through what a rank has, or what lies before it. `recomputed` of its layers are.
LayerTerms::Passes PassesOf(const LayerTerms& terms, const RankLoad& load, int64_t recomputed,
                            const Additions& adds, int zero_stage) {
  LayerTerms::Passes passes;
  const double all = static_cast<double>(load.layers());
  const double again = recomputed < 0 ? all : std::min(all, static_cast<double>(recomputed));
  const auto add = [&](bool moe, int64_t count) {
    if (count == 0) return;
    // Which kinds of layers are recomputed is left open: the cheaper way for a rank that has both.
    const double share = all > 0 ? again / all : 0;
    const bool both = load.dense > 0 && load.moe > 0 && share < 1;
    passes.Add(terms.layer[1][moe ? 1 : 0], both ? 0 : share * static_cast<double>(count));
    passes.Add(terms.layer[0][moe ? 1 : 0], (both ? 1 : 1 - share) * static_cast<double>(count));
  };
  add(false, load.dense);
  add(true, load.moe);
  if (load.head) passes.Add(terms.head, 1);
  const size_t shards = zero_stage >= 2 ? 1 : 0;
  const auto& accumulation = terms.accumulation[shards];
  passes.weight_backward += adds.layers * (static_cast<double>(load.dense) * accumulation[0] +
                                           static_cast<double>(load.moe) * accumulation[1]);
  if (load.head) passes.weight_backward += adds.head * terms.head_accumulation[shards];
  return passes;
}

}  // namespace

double PassSecondsBound(const LayerTerms& terms, const PipelineLoad& load, PipelineKind kind,
                        int64_t num_micro_batches, int64_t recomputed_layers, int zero_stage) {
  const double m = static_cast<double>(num_micro_batches);
  const size_t pp = load.own.size();
  // Copies from the host may hide what a layer adds; the head has none.
  const Additions adds = {.layers = terms.halves_unknown ? 0 : (m - 1) / m, .head = (m - 1) / m};
  const auto passes_of = [&](const RankLoad& rank, int64_t recomputed) {
    return PassesOf(terms, rank, recomputed, adds, zero_stage);
  };
  if (pp == 1) return kRounding * m * passes_of(load.own[0], recomputed_layers).total();
  const schedule::PipelineOrder& order = schedule::OrderOf(kind);
  const auto ranks = static_cast<int64_t>(pp);
  const schedule::PipelineShape shape = {ranks, num_micro_batches,
                                         static_cast<int64_t>(load.stages.size()) / ranks};
  const bool splits = order.splits_backward;
  const double copies = order.num_copies();
  const int64_t none_or_all = recomputed_layers < 0 ? kAllLayers : 0;
  const LayerTerms::Passes all = passes_of(load.model, none_or_all);
  double hides = 0;
  double most_joined = 0;                   // forwards of a rank
  std::vector<double> longest_forward(pp);  // of the stages of a rank
  if (order.joins_passes()) {
    // Of a forward that is joined with a backward, so much of the shorter one hides at most: exchanges of
    // tokens beside passes, as far as these are not slowed by them. With some layers recomputed the shares
    // differ.
    const LayerTerms::Passes most = passes_of(load.model, kAllLayers);
    const double shorter = std::min(all.forward, all.total() - all.forward);
    const double beside = std::min(terms.speed_beside_tokens * most.tokens, most.total() - most.tokens);
    hides = shorter > 0 ? std::min(1.0, beside / shorter) : 0;
    most_joined = static_cast<double>(std::max<int64_t>(0, order.most_joined(shape)));
    for (int copy = 0; copy < order.num_copies(); ++copy) {
      for (size_t s = 0; s < load.stages.size(); ++s) {
        double& longest =
            longest_forward[static_cast<size_t>(order.RankOf(copy, static_cast<int64_t>(s), ranks))];
        longest = std::max(longest, passes_of(load.stages[s], none_or_all).forward);
      }
    }
  }
  // The last micro-batch to begin has all others before it on the first stage, then its whole way.
  const LayerTerms::Passes first = passes_of(load.stages.front(), none_or_all);
  const double way =
      all.forward + all.input_backward + (splits ? first.weight_backward : all.weight_backward);
  double seconds = (m / copies - 1) * first.forward + way;
  for (size_t r = 0; r < pp; ++r) {
    const LayerTerms::Passes own = passes_of(load.own[r], recomputed_layers);
    // Under DualPipe both ends feed the pipeline; what comes before a rank is not counted.
    const LayerTerms::Passes before =
        copies > 1 ? LayerTerms::Passes() : passes_of(load.before[r], none_or_all);
    double busy = m / copies * own.total();
    busy -= hides * std::min(m / copies * own.forward, most_joined * longest_forward[r]);
    if (!splits) {
      seconds = std::max(seconds, before.total() + busy);
      continue;
    }
    seconds = std::max(seconds, before.forward + busy);
    if (r + 1 == pp && !terms.halves_unknown && order.most_waiting != nullptr) {
      // The last rank's weight backwards wait for so many micro-batches at most, the others have run when its
      // last gradient begins its way back.
      const double waiting = static_cast<double>(order.most_waiting(shape));
      seconds = std::max(seconds, before.forward + busy - std::min(m, waiting) * own.weight_backward +
                                      before.input_backward);
    }
  }
  return kRounding * seconds;
}

double FirstRankSeconds(const LayerTerms& terms, const PipelineLoad& load) {
  // An upper bound: where only some layers are recomputed, which ones is open.
  return PassesOf(terms, load.own[0], kAllLayers, {.layers = 1, .head = 1}, /*zero_stage=*/0).total() /
         kRounding;
}

namespace {

// Of `in_flight` micro-batches.
RankBytes RankBytesOf(const LayerTerms& terms, const RankLoad& own, const Workload& w,
                      int64_t recomputed_layers, double in_flight) {
  RankBytes rank;
  rank.dense = static_cast<double>(own.dense);
  rank.moe = static_cast<double>(own.moe);
  rank.tables = (own.embedding ? 1 : 0) + (own.head ? 1 : 0);
  if (w.model.tie_embeddings) rank.tables = std::min(1.0, rank.tables);
  const double all = rank.dense + rank.moe;
  if (all == 0) return rank;  // states alone
  const double again =
      recomputed_layers < 0 ? 1 : std::min(1.0, static_cast<double>(recomputed_layers) / all);
  const double away = std::min(1.0, static_cast<double>(w.offloaded_layers) / all);
  double kept = 0;
  for (const bool moe : {false, true}) {
    const size_t e = moe ? 1 : 0;
    kept += (moe ? rank.moe : rank.dense) *
            (again * terms.kept_bytes[1][e] + (1 - again) * terms.kept_bytes[0][e]);
  }
  // Where only some layers are recomputed, what one of them needs may be less than what the others do.
  const size_t head = own.head ? 1 : 0;
  const double other = recomputed_layers < 0
                           ? terms.other_bytes[1][head]
                           : std::min(terms.other_bytes[0][head], terms.other_bytes[1][head]);
  rank.beside_states = kRounding * (in_flight * (1 - away) * kept + other);
  return rank;
}

}  // namespace

void RankBytes::LowerTo(const RankBytes& other) {
  dense = std::min(dense, other.dense);
  moe = std::min(moe, other.moe);
  tables = std::min(tables, other.tables);
  beside_states = std::min(beside_states, other.beside_states);
}

MemoryTerms MemoryTermsOf(const LayerTerms& terms, const PipelineLoad& load, const Workload& w,
                          int64_t num_micro_batches, int64_t recomputed_layers) {
  MemoryTerms memory;
  memory.several = num_micro_batches > 1 ? 1 : 0;
  memory.tuned_away = std::max(0.0, 1 - w.tuning.reserved_share);
  const size_t pp = load.own.size();
  // The copies of the model share the micro-batches.
  const double share = pp > 1 ? 1.0 / schedule::OrderOf(w.Pipeline()).num_copies() : 1;
  double in_flight = 1;
  if (pp > 1)
    in_flight = LeastInFlight(w.Pipeline(), {static_cast<int64_t>(pp), num_micro_batches, w.virtual_stages});
  memory.first = RankBytesOf(terms, load.own.front(), w, recomputed_layers, in_flight * share);
  memory.last = RankBytesOf(terms, load.own.back(), w, recomputed_layers, share);
  memory.others = memory.last;
  if (memory.tuned_away == 0) return memory;
  for (size_t r = 1; r + 1 < pp; ++r)
    memory.others.LowerTo(RankBytesOf(terms, load.own[r], w, recomputed_layers, share));
  return memory;
}

double LeastInFlight(PipelineKind kind, const schedule::PipelineShape& shape) {
  const schedule::PipelineOrder& order = schedule::OrderOf(kind);
  // Of the first micro-batch to come back, all stages of the rank are there.
  int64_t stages = shape.virtual_stages;
  if (order.in_flight != nullptr) {
    stages = order.in_flight(shape, 0);
  } else if (order.least_in_flight != nullptr) {
    stages = order.least_in_flight(shape);
  }
  return static_cast<double>(stages) / static_cast<double>(shape.virtual_stages);
}

}  // namespace trainctl::frameworks
