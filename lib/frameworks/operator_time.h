// Time of one operator alone on a device, with the kernels that the workload's framework runs: matrix
// products (simulate/device_matmul.h), attention (attention_time.h), and passes over memory by the bytes that
// they move. Data-sheet and published constants only, shared by all devices and frameworks. Pure; thread
// safe.
#pragma once

#include "frameworks/attention_time.h"
#include "frameworks/layer_work.h"
#include "frameworks/workload.h"

namespace trainctl::frameworks {

// What the host takes to launch one operator of PyTorch: NVIDIA/TransformerEngine#2053, CPU runtime of a bf16
// Linear on a DGX H100.
inline constexpr double kHostOperatorSeconds = 13.48e-6;

// One row of a layer's table, with the kernels of the workload's framework.
ForwardBackward OperatorSeconds(const WorkItem& item, const Workload& workload);

// What the host adds to so many kernels where it waits for each one.
double LaunchSeconds(const Workload& workload, double kernels);

// Adding the gradients of `elements` weights to those of the micro-batches before, by kernels of its own; of
// the micro-batches' mean, as the first one has nothing to add to.
double GradientAdditionSeconds(const Workload& workload, double elements);

// Head and loss of one micro-batch: the product with the vocabulary and the passes over the logits.
ForwardBackward HeadSeconds(const Workload& workload);

// One optimizer step over `elements` parameters of this rank: norm and clipping of the gradients, the update,
// the copy for the products, and the clearing of the gradients.
double OptimizerSeconds(const Workload& workload, double elements);

}  // namespace trainctl::frameworks
