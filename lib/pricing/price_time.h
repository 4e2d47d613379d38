// Time of a step of any job that can be described: each layer's products, attention and memory passes on
// the device's roofline with tile and wave quantisation, collectives by algorithm and placement, the
// pipeline's bubble, the optimizer. Data-sheet and published constants only; nothing is fitted to the
// runs that it is scored on. Pure; thread safe.
#pragma once

#include <vector>

#include "pricing/layer_work.h"
#include "pricing/workload.h"
#include "schedule/pipeline_simulate.h"

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
  schedule::PipelineCosts pipeline;  // what the schedule is played with
  // Of data parallelism, in all and the part that nothing covers. What data_seconds has beyond the two
  // exposed ones is exposed bit by bit throughout the passes.
  double gather_seconds = 0, exposed_gather_seconds = 0;  // parameters, before the first forward
  double reduce_seconds = 0, exposed_reduce_seconds = 0;  // gradients, after the last backward
};

// `workload` is valid (Validate).
TimePrice PriceTime(const Workload& workload);
StepParts PartsOfStep(const Workload& workload);

}  // namespace trainctl::pricing
