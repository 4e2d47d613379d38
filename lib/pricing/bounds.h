// Lower bounds of PriceTime and PriceMemory that cost a few operations, for the search over layouts. What
// one layer adds is read off the prices themselves, by pricing jobs of one and two layers on one pipeline
// rank; what a whole layout adds up from them is structure. Pure; thread safe.
//
// The invariant, for every valid workload w:
//     PipelineSeconds(...) + DataSeconds(...) <= PriceTime(w).step_seconds
//     MemoryBytes(...) <= PriceMemory(w).upper_bytes
// tests/unit/pricing/bounds_test.cc holds it over random workloads: whoever changes a price so that it no
// longer adds up like this sees it fail, and changes the bound here.
//
// What is relied on:
//   time    a step takes at least what its busiest pipeline rank does in all its micro-batches; without split
//           backwards also the first micro-batch's way to a rank and the last one's way back from it
//   memory  states grow with the elements of a rank, kept activations with its layers and the micro-batches
//           in flight; what a price adds beyond that does not shrink with the number of stages
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "pricing/price_memory.h"
#include "pricing/workload.h"

namespace trainctl::pricing {

// Layers, and of them those with experts.
struct LayerCounts {
  int64_t dense = 0;
  int64_t moe = 0;
};

// How the layers of a job lie on its pipeline ranks; depends on model, pp, virtual stages, placement and
// stage_layers alone.
struct StageCounts {
  std::vector<LayerCounts> ranks;   // by pipeline rank
  std::vector<LayerCounts> before;  // of the stages before the first of a rank
  int64_t num_stages = 1;
};
StageCounts StageCountsOf(const Workload& workload);

// Of one micro-batch on one rank. Depends on what decides the work of a layer: tp, cp, ep, etp, micro-batch,
// sequence parallelism, context, recompute, precision; neither on pp nor on dp.
struct TimeTerms {
  double dense_layer = 0;  // seconds: forward, backward, recompute and exposed exchanges of one layer
  double moe_layer = 0;
  double ends = 0;  // embedding, head and loss
  double Of(const LayerCounts& counts) const {
    return static_cast<double>(counts.dense) * dense_layer + static_cast<double>(counts.moe) * moe_layer;
  }
};
TimeTerms TimeTermsOf(const Workload& workload);

double PipelineSeconds(const TimeTerms& terms, const StageCounts& counts, schedule::PipelineKind kind,
                       int64_t num_micro_batches);

}  // namespace trainctl::pricing
