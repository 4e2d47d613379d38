// Memory of the rank that needs most, of any job that can be described. The states follow from the
// degrees, the activations from the layers' work and the micro-batches in flight, the buffers from
// the framework. Everything is counted at the instant of the peak. Pure; thread safe.
#pragma once

#include <array>
#include <cstdint>

#include "frameworks/pipeline_rank.h"
#include "frameworks/workload.h"

namespace trainctl::frameworks {

enum class MemoryPart : uint8_t {
  kParameters,  // compute copies, sharded or not
  kGradients,
  kOptimizer,    // master copy and moments
  kActivations,  // kept for the backward by all micro-batches in flight
  kWork,         // of the block under way: recomputed activations, gradients, gathered blocks, buffers
  kLogits,
  kOutside,  // CUDA context, libraries, communication buffers: not tensors
};
inline constexpr int kNumMemoryParts = 7;

// A step's memory has its peak at one of these.
enum class MemoryMoment : uint8_t {
  kBackward,  // the first backward: all activations are there
  kLoss,      // so are they, and the logits of the last stage
  kEnd,       // the last backward ends: all gradients are there
  kStep,      // the optimizer runs
};
inline constexpr int kNumMemoryMoments = 4;

struct MemoryPrice {
  std::array<double, kNumMemoryParts> parts = {};  // bytes at the peak, by MemoryPart
  int stage = 0;                                   // pipeline rank of the peak
  MemoryMoment moment = MemoryMoment::kBackward;
  double allocated_bytes = 0;  // tensors: all parts but kOutside
  // The same of the first step alone, in whose passes there are no moments yet: the optimizer makes them.
  double first_step_bytes = 0;
  double reserved_bytes = 0;  // with what the caching allocator holds for other moments
  double device_bytes = 0;    // with kOutside
  // Of device_bytes what cannot do without: the rest is given back where a device has less. A job fits if
  // this does.
  double needed_bytes = 0;
  double upper_bytes = 0;  // a bound to plan with: device_bytes and what prices were off at most
  // Of one rank, in host memory: states and activations that wait there.
  double host_bytes = 0;
  // What is written and read of one rank by a checkpoint: weights in the compute precision or their master
  // copy, and moments; each rank its own part. On the host it is there once while it is written.
  double checkpoint_bytes = 0;
  // Of the device while a checkpoint is loaded: states without gradients and activations, and the largest
  // tensor of the file beside them.
  double load_bytes = 0;

  // What is there beside weights and optimizer at each MemoryMoment; `parts` has those of the highest one.
  struct Moment {
    double gradients = 0, activations = 0, work = 0, logits = 0;
    double sum() const { return gradients + activations + work + logits; }
  };
  std::array<Moment, kNumMemoryMoments> moments = {};
  const Moment& At(MemoryMoment when) const { return moments[static_cast<size_t>(when)]; }

  double Of(MemoryMetric metric) const;
  // The same with the margin of upper_bytes.
  double UpperOf(MemoryMetric metric) const;
};

// `workload` is valid (Validate). The rank that needs most, and any of the pp pipeline ranks.
MemoryPrice PriceMemory(const Workload& workload);
MemoryPrice PriceMemoryOfRank(const Workload& workload, int64_t rank);

}  // namespace trainctl::frameworks
