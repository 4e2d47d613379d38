// Time of the passes of one layer for one micro-batch on one rank: its operators (operator_time.h), the
// collectives inside it (tensor, context and expert parallelism) and how much of them nothing covers. Pure;
// thread safe.
#pragma once

#include "frameworks/layer_work.h"
#include "frameworks/workload.h"

namespace trainctl::frameworks {

// Of one layer or one stage, one micro-batch, in seconds. Exchanges count with what they cost beyond compute.
struct PassTimes {
  double forward = 0;
  double input_backward = 0;   // gradient of the input
  double weight_backward = 0;  // gradients of the weights
  double recompute = 0;        // second forward, in the backward
  double tensor_forward = 0, tensor_backward = 0;
  double expert_forward = 0, expert_backward = 0;
  double context_forward = 0, context_backward = 0;
  double offload_forward = 0, offload_backward = 0;  // copies of activations to the host and back

  double ForwardPass() const {
    return forward + tensor_forward + expert_forward + context_forward + offload_forward;
  }
  double InputBackwardPass() const {
    return input_backward + recompute + tensor_backward + expert_backward + context_backward +
           offload_backward;
  }
  double BackwardPass() const { return InputBackwardPass() + weight_backward; }
  double compute() const { return forward + input_backward + weight_backward; }
  double tensor() const { return tensor_forward + tensor_backward; }
  double expert() const { return expert_forward + expert_backward; }
  double context() const { return context_forward + context_backward; }
  double offload() const { return offload_forward + offload_backward; }
  double total() const { return ForwardPass() + BackwardPass(); }
  void Add(const PassTimes& other);
  PassTimes Times(double count) const;
};

// Where the layers of a rank differ.
struct LayerSwitches {
  bool recomputed = true;  // under full recompute: this layer is among those that are
  bool offloaded = false;  // what it keeps for the backward waits in host memory
};
PassTimes LayerPassTimes(const Workload& workload, int64_t layer, const LayerSwitches& switches,
                         bool contention);
// Output matrix and loss, with the exchanges of a vocabulary that is cut.
PassTimes HeadPassTimes(const Workload& workload);

}  // namespace trainctl::frameworks
