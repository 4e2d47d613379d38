// Time of a step of any job that can be described: each layer's products, attention and memory passes on
// the device's roofline (operator_time.h), the exchanges inside and between layers with what they take from
// the compute beside them (layer_time.h), the pipeline's schedule (pipeline_time.h), data parallelism as the
// framework places it (data_parallel_time.h), the update (update_time.h). Data-sheet and published constants
// only; nothing is fitted to the runs that it is scored on. Pure; thread safe.
#pragma once

#include <vector>

#include "frameworks/workload.h"
#include "simulate/stage_costs.h"

namespace trainctl::frameworks {

struct TimeOptions {
  // Collectives slow the compute that they run beside. Off: overlap is free.
  bool contention = true;
};

// Seconds of one optimizer step; the parts sum to step_seconds. An exchange counts with what it takes beyond
// the compute beside it, the slower compute included.
struct TimePrice {
  double compute_seconds = 0;    // forward and backward of all micro-batches on the slowest stage
  double recompute_seconds = 0;  // the second forward
  double tensor_seconds = 0;     // exposed collectives of tensor parallelism
  double expert_seconds = 0;     // exposed exchange of tokens
  double context_seconds = 0;    // exposed exchange of keys and values
  double pipeline_seconds = 0;   // bubble and transfers between stages
  double data_seconds = 0;       // exposed reductions and gathers of data parallelism
  double optimizer_seconds = 0;  // norm, clipping and update
  double offload_seconds = 0;    // exposed copies of activations to the host and back
  double step_seconds = 0;
};

// One micro-batch through one stage: computing, and the exchanges that it waits for.
struct StageSeconds {
  double forward = 0, backward = 0, recompute = 0, tensor = 0, expert = 0, context = 0;
  double total() const { return forward + backward + recompute + tensor + expert + context; }
  void Add(const StageSeconds& o) {
    forward += o.forward;
    backward += o.backward;
    recompute += o.recompute;
    tensor += o.tensor;
    expert += o.expert;
    context += o.context;
  }
};

// What a step is made of, for whoever draws it.
struct StepParts {
  TimePrice price;
  std::vector<StageSeconds> stages;  // pp * virtual_stages of them, in the order of the model
  simulate::PipelineCosts pipeline;  // what the schedule is played with
  // Of data parallelism, in all and the part that nothing covers. What data_seconds has beyond the two
  // exposed ones is exposed bit by bit throughout the passes.
  double gather_seconds = 0, exposed_gather_seconds = 0;  // parameters, before the first forward
  double reduce_seconds = 0, exposed_reduce_seconds = 0;  // gradients, after the last backward
};

// `workload` is valid (Validate).
TimePrice PriceTime(const Workload& workload, const TimeOptions& options = {});
StepParts PartsOfStep(const Workload& workload, const TimeOptions& options = {});

}  // namespace trainctl::frameworks
