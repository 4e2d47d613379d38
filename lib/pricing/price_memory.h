// Memory of the rank that needs most, of any job that can be described. The states follow from the
// degrees, the activations from the layers' work and the micro-batches in flight, the buffers from
// the framework. Everything is counted at the instant of the peak. Pure; thread safe.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "pricing/workload.h"

namespace trainctl::pricing {

enum class MemoryPart : uint8_t {
  kParameters,  // compute copies, sharded or not, and gathered blocks
  kGradients,
  kOptimizer,    // master copy and moments
  kActivations,  // kept for the backward by all micro-batches in flight
  kWork,         // of the block under way: recomputed activations, gradients, temporary buffers
  kLogits,
  kOutside,  // CUDA context, libraries, communication buffers: not tensors
};
inline constexpr int kNumMemoryParts = 7;

struct MemoryPrice {
  std::array<double, kNumMemoryParts> parts = {};  // bytes at the peak, by MemoryPart
  int stage = 0;                                   // pipeline rank of the peak
  double allocated_bytes = 0;                      // tensors: all parts but kOutside
  double reserved_bytes = 0;                       // with what the caching allocator loses
  double device_bytes = 0;                         // with kOutside
  double upper_bytes = 0;                          // a bound to plan with: device_bytes and a margin

  double Of(MemoryMetric metric) const;
};

// Micro-batches (in units of one stage's whole activations) that pipeline rank `rank` holds at its
// peak under 1F1B, interleaved where there are virtual stages (Megatron-LM's warm-up counts).
double MicroBatchesInFlight(const Workload& workload, int64_t rank);

// Layers of one stage, of pp * virtual_stages in the order of the model: the first and their number. The
// first and the last stage have fewer where the framework counts the embedding as a layer.
struct LayerRange {
  int64_t first = 0;
  int64_t count = 0;
};
LayerRange LayersOfStage(const Workload& workload, int64_t stage);
// The stages of a rank are rank, rank + pp, rank + 2 pp and so on.
std::vector<int64_t> LayersOfRank(const Workload& workload, int64_t rank);

// Elements of a pipeline rank, on one of its tensor-parallel ranks.
struct RankParameters {
  double layers = 0;   // all but routed experts
  double tables = 0;   // embedding and output matrix
  double experts = 0;  // routed
  double largest_layer = 0;
  double dense() const { return layers + tables; }
  double all() const { return dense() + experts; }
};
RankParameters ParametersOfRank(const Workload& workload, int64_t rank);

// What one rank keeps of them where they are sharded: data and context parallel ranks share the dense part,
// and those of them that hold the same experts the routed one.
double ShardedElements(const RankParameters& parameters, const Workload& workload);

// `workload` is valid (Validate). The rank that needs most, and any of the pp pipeline ranks.
MemoryPrice PriceMemory(const Workload& workload);
MemoryPrice PriceMemoryOfRank(const Workload& workload, int64_t rank);

}  // namespace trainctl::pricing
