// Time of a step of any job that can be described: each layer's products, attention and memory passes on
// the device's roofline with tile and wave quantisation, collectives by algorithm and placement, the
// pipeline's bubble, the optimizer. Data-sheet and published constants only; nothing is fitted to the
// runs that it is scored on. Pure; thread safe.
#pragma once

#include "pricing/layer_work.h"
#include "pricing/workload.h"

namespace trainctl::pricing {

// Seconds of one optimizer step; the parts sum to step_seconds.
struct TimePrice {
  double compute_seconds = 0;    // forward and backward of all micro-batches on the slowest stage
  double recompute_seconds = 0;  // the second forward
  double tensor_seconds = 0;     // exposed collectives of tensor parallelism
  double expert_seconds = 0;     // exposed exchange of tokens
  double context_seconds = 0;    // exposed exchange of keys and values
  double pipeline_seconds = 0;   // bubble and transfers between stages
  double data_seconds = 0;       // exposed reductions and gathers of data parallelism
  double optimizer_seconds = 0;
  double step_seconds = 0;
};

// `workload` is valid (Validate).
TimePrice PriceTime(const Workload& workload);

}  // namespace trainctl::pricing
