// Lower bounds of PriceTime and PriceMemory that cost a few operations, for the search over layouts. What one
// layer takes is read off the prices themselves: of time from the passes of a layer, of memory by pricing
// jobs of one and two layers on one pipeline rank. How a layout adds them up is structure. Pure; thread safe.
//
// The invariant, for every valid workload w:
//     StepSecondsBound(...) <= PriceTime(w).step_seconds
//     MemoryBytesBound(...) <= PriceMemory(w).upper_bytes
// tests/unit/frameworks/bounds_test.cc holds it over random workloads: whoever changes a price so that it no
// longer adds up like this sees it fail, and changes the bound here.
//
// What is relied on:
//   time    Each pipeline rank runs its passes one after the other (joined passes hide at most their
//   exchanges
//           of tokens), after the first micro-batch has come to it; what it sends back at the end has to pass
//           the ranks before it. Exchanges of data parallelism hide behind the passes of the first rank at
//           best, and are affine in the number of micro-batches. The update is priced as it is.
//   memory  States grow with the layers and tables of a rank, kept activations with its layers and the
//           micro-batches in flight; what else there is in a job of one rank is there in any of its kind.
//           The price is of the rank that reserves most; whichever it is, it has the tensors of the least
//           rank.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "frameworks/layer_time.h"
#include "frameworks/price_memory.h"
#include "frameworks/workload.h"
#include "schedule/pipeline.h"

namespace trainctl::frameworks {

// ---- how layers lie on pipeline ranks ------------------------------------------------------------

struct RankLoad {
  int64_t dense = 0;  // layers with a plain MLP
  int64_t moe = 0;
  bool embedding = false;
  bool head = false;
  int64_t layers() const { return dense + moe; }
  void Add(const RankLoad& other);
};

// Depends on model, framework, pp, virtual stages, pipeline and stage_layers.
struct PipelineLoad {
  // By pipeline rank: its stages, and all stages before the first of them. Under DualPipe the stages of both
  // copies; each runs half of the micro-batches.
  std::vector<RankLoad> own, before;
  std::vector<RankLoad> stages;
  RankLoad model;  // all stages once
};
PipelineLoad LoadOf(const Workload& workload);

// ---- what depends on the work of a layer: degrees but pp and dp, micro-batch, recompute, precision --

struct LayerTerms {
  // Seconds of one micro-batch through one layer, or through the head.
  struct Passes {
    double forward = 0, input_backward = 0, weight_backward = 0;
    double tokens = 0;  // of these, exchanges of tokens
    double total() const { return forward + input_backward + weight_backward; }
    void Add(const Passes& other, double count);
  };
  // As the workload recomputes, and without: [recomputed][experts].
  std::array<std::array<Passes, 2>, 2> layer;
  Passes head;
  // Seconds more of a layer's weight backward for each micro-batch but the first, whose gradients are there
  // already: [shards gradients][experts].
  std::array<std::array<double, 2>, 2> accumulation = {};
  std::array<double, 2> head_accumulation = {};  // the same of the head
  double speed_beside_tokens = 1;                // of passes while tokens are exchanged beside them
  // What of a backward is the weights' part is not known: copies from the host hide behind either.
  bool halves_unknown = false;

  // Bytes of tensors: kept of one micro-batch by one layer [recomputed][experts], and everything that is
  // there however many layers and micro-batches there are [recomputed][with the head].
  std::array<std::array<double, 2>, 2> kept_bytes = {};
  std::array<std::array<double, 2>, 2> other_bytes = {};
  // upper_bytes = scale * device bytes + margin
  double upper_scale = 1;
  double upper_margin_bytes = 0;
};
LayerTerms LayerTermsOf(const Workload& workload);

// ---- what depends on where the states are: degrees, stage, shard_group -----------------------------

// Bytes of weights, gradients and optimizer.
struct StateBytes {
  struct Parts {
    std::array<double, 2> layer = {};  // [experts]
    double table = 0;                  // the embedding, or the output matrix
  };
  // While most activations are there, with one micro-batch and with several: gradients may come later.
  std::array<Parts, 2> beside;
  Parts alone;  // when they are gone
};
// Of degrees but pp and dp, stage, shard_group and optimizer_on_host.
StateBytes StateBytesOf(const Workload& workload);

// Of one layout of the first pipeline rank's layers, pp, dp, stage and shard_group; in seconds.
struct StateTerms {
  double update = 0;
  // Exchanges of data parallelism with one micro-batch, and what each further one adds: with nothing to hide
  // behind, and with passes that last for ever.
  double bare = 0, bare_more = 0;
  double hidden = 0, hidden_more = 0;
  double outside_bytes = 0;  // context, libraries, communicators
};
StateTerms StateTermsOf(const Workload& workload);

// ---- the bounds --------------------------------------------------------------------------------------

// How many layers of a rank are recomputed, where not all are.
inline constexpr int64_t kAllLayers = -1;

// Of the passes: everything but data parallelism and the update.
double PassSecondsBound(const LayerTerms& terms, const PipelineLoad& load, schedule::PipelineKind kind,
                        int64_t num_micro_batches, int64_t recomputed_layers, int zero_stage);

// At most so long are the passes of one micro-batch on the first pipeline rank, behind which exchanges of
// data parallelism hide.
double FirstRankSeconds(const LayerTerms& terms, const PipelineLoad& load);

inline double StateSecondsBound(const StateTerms& terms, double first_rank_seconds,
                                double num_micro_batches) {
  const double more = num_micro_batches - 1;
  const double cover = terms.bare_more > 0 ? num_micro_batches * first_rank_seconds : first_rank_seconds;
  const double bare = terms.bare + more * terms.bare_more - cover;
  const double hidden = terms.hidden + more * terms.hidden_more;
  return terms.update + (bare > hidden ? bare : hidden);
}

// Of one pipeline rank.
struct RankBytes {
  double dense = 0, moe = 0;  // layers
  double tables = 0;          // embedding and output matrix, once if they are tied
  double beside_states = 0;   // activations and what else is there with them
  double States(const StateBytes::Parts& parts) const {
    return dense * parts.layer[0] + moe * parts.layer[1] + tables * parts.table;
  }
  // To what neither has less of.
  void LowerTo(const RankBytes& other);
};
struct MemoryTerms {
  RankBytes first, last;
  RankBytes others;       // at most what any rank but the first has; unused where nothing is tuned away
  size_t several = 0;     // micro-batches
  double tuned_away = 0;  // share of what the allocator holds beyond the tensors

  // Tensors at the peak: at least so many bytes.
  double Bytes(const RankBytes& rank, const StateBytes& states) const {
    const double at_peak = rank.beside_states + rank.States(states.beside[several]);
    const double alone = rank.States(states.alone);
    return at_peak > alone ? at_peak : alone;
  }
};
MemoryTerms MemoryTermsOf(const LayerTerms& terms, const PipelineLoad& load, const Workload& workload,
                          int64_t num_micro_batches, int64_t recomputed_layers);

inline double MemoryBytesBound(const LayerTerms& terms, const MemoryTerms& memory, const StateBytes& states,
                               double outside_bytes) {
  const double first = memory.Bytes(memory.first, states);
  const double last = memory.Bytes(memory.last, states);
  const double most = first > last ? first : last;
  const double upper = terms.upper_scale * (most + outside_bytes) + terms.upper_margin_bytes;
  if (memory.tuned_away == 0) return upper;
  // The rank that is priced is the one that reserves most before tuning. Its tensors may be fewer than
  // another rank's, and the tuning takes away a share of what it holds beyond them.
  const double others = memory.Bytes(memory.others, states);
  const double least = first < others ? first : others;
  return upper - memory.tuned_away * (most - least);
}

// Micro-batches in flight on the first pipeline rank, in units of its whole activations: at least so many.
double LeastInFlight(schedule::PipelineKind kind, const schedule::PipelineShape& shape);

}  // namespace trainctl::frameworks
