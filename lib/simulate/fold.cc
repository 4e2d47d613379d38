#include "simulate/fold.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/types/span.h"
#include "simulate/cost_sum.h"
#include "simulate/live_memory.h"
#include "simulate/play.h"
#include "simulate/work_table.h"

namespace trainctl::simulate {
namespace {

using schedule::Instruction;
using schedule::Op;
using schedule::Program;

// Positions in a pass over a run of equal layers. The layer at position kSteady is played once for itself and
// once for each layer that is left out; the others are played once. From there on, an instruction's waits for
// its own pass reach back at most kReach positions.
constexpr int kSteady = 3;
constexpr int kReach = 2;

// Consecutive equal layers: the recomputed ones, or the others.
struct Run {
  int num_layers = 0;   // layers in the folded step
  int64_t repeats = 0;  // layers that the folded step leaves out
};

// The properties of an instruction that are needed to play it.
struct Fact {
  int stream = 0;
  int micro_batch = -1;
  double seconds = 0;
  int64_t sent_bytes = 0;
  int64_t peak_extra_bytes = 0;
  bool writes = false;
  LiveMemory::Bytes change = {};  // change of the live bytes at its end
  absl::Span<const int> waits;
};

// A sequence of instructions that ends with one that computes, for a layer or for something else.
struct Body {
  int begin = 0;
  int end = 0;
  int layer = -1;
  int pass = -1;  // index of a pass over all layers, in either direction; -1 if in none
  int position = 0;
  int64_t repeats = 0;     // number of layers left out that do the same before this one
  bool is_steady = false;  // whether it represents layers that are left out
  int64_t shift = 0;       // layer that is played first here, in the whole step, minus `layer`
};

std::vector<Fact> FactsOf(const Program& program, const WorkTable& table, const Rates& rates) {
  std::vector<Fact> facts;
  facts.reserve(program.instructions.size());
  for (const Instruction& instruction : program.instructions) {
    Fact& fact = facts.emplace_back();
    fact.stream = instruction.stream;
    fact.micro_batch = instruction.micro_batch;
    const Work work = table.WorkOf(program, instruction);
    fact.seconds = rates.Seconds(work);
    fact.sent_bytes = static_cast<int64_t>(work[Resource::kSentBytes]);
    fact.peak_extra_bytes = instruction.peak_extra_bytes;
    fact.writes = !instruction.writes.empty();
    const auto count = [&](int id, int64_t sign) {
      const schedule::Value& value = program.values[static_cast<size_t>(id)];
      if (!value.persistent) fact.change[static_cast<size_t>(value.category)] += sign * value.bytes;
    };
    for (int value : instruction.writes) count(value, 1);
    for (int value : instruction.frees) count(value, -1);
    fact.waits = instruction.waits;
  }
  return facts;
}

class Unfolder {
 public:
  Unfolder(const Program& program, std::vector<Fact> facts, std::vector<Run> runs)
      : program_(program), facts_(std::move(facts)), runs_(std::move(runs)) {
    for (const Run& run : runs_) num_layers_ += run.num_layers, repeats_ += run.repeats;
    Cut();
  }

  // Whether the layers repeat.
  bool Check() {
    if (repeats_ == 0) return true;
    if (!FindPasses()) return false;
    for (size_t b = 1; b < bodies_.size(); ++b) {
      if (bodies_[b].is_steady && !AreAlike(bodies_[b - 1], bodies_[b])) return false;
    }
    return std::all_of(bodies_.begin(), bodies_.end(),
                       [this](const Body& b) { return WaitsAreNear(b) && !SumsLayers(b); });
  }

  // `live` has the bytes that are live during the whole step.
  StepPrice Play(LiveMemory::Bytes live, int64_t micro_batches_left_out, const Rates& rates) {
    live_ = live;
    overlap_ = rates.overlap;
    CostSum sum(rates);
    peak_.Observe(-1, live_);
    whole_index_.resize(facts_.size());
    for (const Body& body : bodies_) {
      const int64_t by = body.pass >= 0 && descends_[static_cast<size_t>(body.pass)] ? -1 : 1;
      for (int64_t k = 0; k <= body.repeats; ++k) PlayBody(body, body.shift + by * k, sum);
    }
    StepPrice price{peak_.report(), sum.Total(micro_batches_left_out)};
    price.memory.peak_where = where_;
    return price;
  }

 private:
  void Cut() {
    const std::vector<Instruction>& list = program_.instructions;
    Body body;
    for (size_t i = 0; i < list.size(); ++i) {
      body.end = static_cast<int>(i) + 1;
      const bool ends = list[i].stream == schedule::kComputeStream && list[i].op != Op::kRecompute;
      if (!ends && i + 1 < list.size()) continue;
      const int layer = list[i].op == Op::kOptimizerStep ? list[i].bucket : list[i].block;
      body.layer = ends && layer >= 1 && layer <= num_layers_ ? layer : -1;
      body.shift = repeats_;
      bodies_.push_back(body);
      body.begin = body.end;
    }
  }

  // Finds the passes over all layers. Returns false if one does not visit the layers in ascending or
  // descending order.
  bool FindPasses() {
    for (size_t b = 0; b < bodies_.size();) {
      if (bodies_[b].layer < 0) {
        ++b;
        continue;
      }
      const bool descends = bodies_[b].layer != 1;
      for (int position = 0; position < num_layers_; ++position, ++b) {
        if (b == bodies_.size()) return false;
        if (bodies_[b].layer != (descends ? num_layers_ - position : 1 + position)) return false;
        bodies_[b].pass = static_cast<int>(descends_.size());
        bodies_[b].position = position;
        FindRun(bodies_[b], descends);
      }
      descends_.push_back(descends);
    }
    return true;
  }

  // Sets the fields of a body that depend on its position in its run of equal layers.
  void FindRun(Body& body, bool descends) const {
    int first = 1;
    int64_t left_out_before = 0;
    for (const Run& run : runs_) {
      const int end = first + run.num_layers;
      if (body.layer >= first && body.layer < end) {
        const int position = descends ? end - 1 - body.layer : body.layer - first;
        body.is_steady = run.repeats > 0 && position == kSteady;
        body.repeats = body.is_steady ? run.repeats : 0;
        // A descending pass begins with the last layer of the model.
        const bool is_behind = descends ? position <= kSteady : position > kSteady;
        body.shift = left_out_before + (is_behind ? run.repeats : 0);
        return;
      }
      first = end;
      left_out_before += run.repeats;
    }
  }

  bool AreAlike(const Body& a, const Body& b) const {
    const int length = a.end - a.begin;
    if (b.end - b.begin != length) return false;
    for (int k = 0; k < length; ++k) {
      const Fact& x = facts_[static_cast<size_t>(a.begin) + static_cast<size_t>(k)];
      const Fact& y = facts_[static_cast<size_t>(b.begin) + static_cast<size_t>(k)];
      const bool same = x.stream == y.stream && x.micro_batch == y.micro_batch && x.seconds == y.seconds &&
                        x.sent_bytes == y.sent_bytes && x.peak_extra_bytes == y.peak_extra_bytes &&
                        x.writes == y.writes && x.change == y.change && x.waits.size() == y.waits.size();
      if (!same) return false;
      for (size_t w = 0; w < x.waits.size(); ++w) {
        if (y.waits[w] - x.waits[w] != length) return false;
      }
    }
    return true;
  }

  const Body& BodyOf(int instruction) const {
    return *std::partition_point(bodies_.begin(), bodies_.end(),
                                 [&](const Body& body) { return body.end <= instruction; });
  }

  // Whether a body that belongs to no layer has sums of gradient copies, one per layer. The folded step has
  // fewer of these sums than the whole step.
  bool SumsLayers(const Body& body) const {
    for (int i = body.begin; i < body.end && body.pass < 0; ++i) {
      const Instruction& instruction = program_.instructions[static_cast<size_t>(i)];
      if (instruction.op == Op::kSumCopies && instruction.bucket >= 1 && instruction.bucket <= num_layers_)
        return true;
    }
    return false;
  }

  // Whether a body's waits can be repeated. From position kSteady on, waits within the same pass must be
  // near, and a steady body must not wait for anything outside its pass.
  bool WaitsAreNear(const Body& body) const {
    if (body.pass < 0 || body.position < kSteady) return true;
    for (int i = body.begin; i < body.end; ++i) {
      for (int wait : facts_[static_cast<size_t>(i)].waits) {
        const Body& other = BodyOf(wait);
        const bool is_own = other.pass == body.pass;
        if (is_own ? other.position < body.position - kReach : body.is_steady) return false;
      }
    }
    return true;
  }

  // `shift` is the layer's index in the whole step minus its index in the folded step.
  void PlayBody(const Body& body, int64_t shift, CostSum& sum) {
    for (int i = body.begin; i < body.end; ++i) {
      const Fact& fact = facts_[static_cast<size_t>(i)];
      const int index = static_cast<int>(ends_.size());
      whole_index_[static_cast<size_t>(i)] = index;
      double& stream_end = stream_ends_[overlap_ ? fact.stream : 0];
      double begin = stream_end;
      for (int wait : fact.waits)
        begin = std::max(begin, ends_[static_cast<size_t>(WholeWait(body, i, wait))]);
      const InstructionTime time{begin, fact.seconds};
      stream_end = time.end_s();
      ends_.push_back(stream_end);
      sum.Add(fact.stream, fact.micro_batch, time, fact.sent_bytes);
      Remember(fact, index, i, shift);
    }
  }

  int WholeWait(const Body& body, int from, int wait) const {
    const bool in_pass = body.pass >= 0 && body.position >= kSteady && BodyOf(wait).pass == body.pass;
    return in_pass ? whole_index_[static_cast<size_t>(from)] - (from - wait)
                   : whole_index_[static_cast<size_t>(wait)];
  }

  void Remember(const Fact& fact, int index, int folded_index, int64_t shift) {
    if (fact.peak_extra_bytes > 0) {
      LiveMemory::Bytes during = live_;
      during[static_cast<size_t>(schedule::Category::kActivations)] += fact.peak_extra_bytes;
      peak_.Observe(index, during);
    }
    for (size_t c = 0; c < live_.size(); ++c) live_[c] += fact.change[c];
    if (fact.writes) peak_.Observe(index, live_);
    if (peak_.report().peak_instruction != index) return;
    Instruction at = program_.instructions[static_cast<size_t>(folded_index)];
    if (at.block > 0) at.block += static_cast<int>(shift);
    where_ = schedule::Describe(at);
  }

  const Program& program_;
  const std::vector<Fact> facts_;
  const std::vector<Run> runs_;  // in the order of the model
  int num_layers_ = 0;           // layers in the folded step
  int64_t repeats_ = 0;
  std::vector<Body> bodies_;
  std::vector<bool> descends_;    // whether each pass goes through the layers in descending order
  std::vector<int> whole_index_;  // latest index in the whole step, by folded instruction
  std::vector<double> ends_;      // end times, by instruction of the whole step
  std::array<double, schedule::kNumDataStreams> stream_ends_ = {};
  bool overlap_ = true;
  LiveMemory::Bytes live_ = {};
  PeakFinder peak_;
  std::string where_;
};

// Returns the live bytes before the first instruction. They depend neither on the number of micro-batches
// that are built nor on the recomputation.
LiveMemory::Bytes StorageOf(const model::Architecture& spec, const layout::Ledger& ledger,
                            const schedule::BuildOptions& options) {
  schedule::BuildOptions one = options;
  one.num_micro_batches = 1;
  one.micro_batches_of_step = std::max<int64_t>(options.num_micro_batches, options.micro_batches_of_step);
  return LiveMemory(schedule::BuildStep(schedule::GraphOf(spec, ledger, one), ledger, one).programs[0])
      .bytes();
}

}  // namespace

StepPrice PriceWhole(const schedule::Step& step, const layout::Ledger& ledger,
                     const schedule::BuildOptions& options, int64_t num_micro_batches, const Rates& rates) {
  return {SimulateMemory(step), PriceStep(step, ledger, options, num_micro_batches, rates)};
}

FoldedModel::FoldedModel(const model::Architecture& spec, int64_t layers) {
  // Layers of several kinds do not repeat one by one.
  const bool differ =
      std::adjacent_find(spec.layers.begin(), spec.layers.end(), std::not_equal_to<>()) != spec.layers.end();
  layers = differ ? NumLayers(spec) : std::min(layers, NumLayers(spec));
  folded_layers_ = layers;
  repeats_ = NumLayers(spec) - layers;
  few_ = {.spec = spec, .inventory = {}};
  few_ = WithLayers(layers);
  if (repeats_ > 0) one_more_ = WithLayers(layers + 1);
}

FoldedModel::Part FoldedModel::WithLayers(int64_t layers) const {
  Part part{.spec = few_.spec, .inventory = {}};
  SetNumLayers(part.spec, layers);
  part.inventory = model::Inventory(part.spec);
  return part;
}

FoldedStrategy::FoldedStrategy(const FoldedModel& model, const layout::Mesh& mesh, int zero_stage,
                               bool sequence_parallel)
    : model_(model),
      few_(model.few_.inventory, mesh, zero_stage, {}, sequence_parallel),
      one_more_(model.repeats_ == 0 ? std::nullopt
                                    : std::make_optional<layout::Ledger>(
                                          model.one_more_.inventory, mesh, zero_stage,
                                          std::vector<std::vector<int>>(), sequence_parallel)) {}

StepBounder FoldedStrategy::Bounder(const schedule::BuildOptions& options, const Rates& rates,
                                    const GraphCosts* known) const {
  std::shared_ptr<const model::Graph> graph =
      known != nullptr ? known->graph : schedule::GraphOf(model_.few_.spec, few_, options);
  return {std::move(graph), few_, options, rates, known};
}

std::optional<StepPrice> FoldedStrategy::Price(const schedule::BuildOptions& options,
                                               int64_t num_micro_batches, const Rates& rates) const {
  const int64_t layers = NumLayers(model_.few_.spec) + model_.repeats();
  const int64_t recomputed = schedule::NumRecomputed(options, 0, layers);
  if (model_.repeats() == 0 || recomputed == 0 || recomputed == layers)
    return PriceRuns(options, model_.few_, few_, {layers}, num_micro_batches, rates);
  const int64_t few =
      std::min(recomputed, model_.folded_layers_) + std::min(layers - recomputed, model_.folded_layers_);
  const FoldedModel::Part part = model_.WithLayers(few);
  const layout::Ledger ledger(part.inventory, few_.mesh(), few_.zero_stage(), {}, few_.sequence_parallel());
  schedule::BuildOptions folded = options;
  folded.recomputed_layers = {std::min(recomputed, model_.folded_layers_)};
  return PriceRuns(folded, part, ledger, {recomputed, layers - recomputed}, num_micro_batches, rates);
}

std::optional<StepPrice> FoldedStrategy::PriceRuns(const schedule::BuildOptions& options,
                                                   const FoldedModel::Part& part,
                                                   const layout::Ledger& ledger,
                                                   const std::vector<int64_t>& whole_runs,
                                                   int64_t num_micro_batches, const Rates& rates) const {
  std::vector<Run> runs;
  int64_t repeats = 0;
  for (const int64_t layers : whole_runs) {
    const int64_t few = std::min(layers, model_.folded_layers_);
    runs.push_back({static_cast<int>(few), layers - few});
    repeats += layers - few;
  }
  const schedule::Step step =
      schedule::BuildStep(schedule::GraphOf(part.spec, ledger, options), ledger, options);
  const Program& program = step.programs[0];
  const WorkTable table(*step.graph, ledger, options, /*own_class=*/0, repeats);
  Unfolder unfolder(program, FactsOf(program, table, rates), std::move(runs));
  if (!unfolder.Check()) return std::nullopt;
  LiveMemory::Bytes live = LiveMemory(program).bytes();
  if (repeats > 0) {
    const model::Architecture& few_spec = model_.few_.spec;
    const LiveMemory::Bytes few = part.spec == few_spec ? live : StorageOf(few_spec, few_, options);
    const LiveMemory::Bytes more = StorageOf(model_.one_more_.spec, *one_more_, options);
    for (size_t c = 0; c < live.size(); ++c) live[c] += repeats * (more[c] - few[c]);
  }
  return unfolder.Play(live, num_micro_batches - step.num_micro_batches, rates);
}

}  // namespace trainctl::simulate
