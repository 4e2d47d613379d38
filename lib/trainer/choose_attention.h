// Chooses the attention kernel for a run on a device that has two (flash attention and cuDNN's). The faster
// one is chosen by measurement, once per shape and device name, and recorded in the run folder. A resumed run
// uses the recorded choice and so computes the same bits.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "comm/group.h"
#include "device/device.h"
#include "model/graph.h"
#include "nn/attention.h"
#include "recipe/recipe.h"

namespace trainctl::trainer {

// Returns the attention shape for which the kernels are compared, on the rank that runs `graph`. It is the
// shape of the first layer without a soft cap and without a window shorter than the sequences, because a
// device has a choice only for such layers. Returns the shape of the first layer if there is no such layer.
nn::AttentionShape AttentionToChoose(const model::Graph& graph);

// Collective over `world`; call it before the first pass. Sets the kernel for this process. Does nothing on
// the CPU.
//
// Measures only if run.attention is "auto", run.deterministic is off and data.packing is "continuous". In all
// other cases the kernel follows from the recipe. Rank 0 times the kernels on its device, for the `shape` of
// one layer's micro-batch, and passes the times to `say`. It does not measure if the file at `path`
// (run/attention_choices.h) has a choice for this shape and device name. The other ranks use the same kernel.
//
// Returns WorkerError if the kernels cannot be timed, and BadDataError on rank 0 if the file is damaged.
absl::Status ChooseAttention(const recipe::Recipe& recipe, const device::Device& device,
                             const nn::AttentionShape& shape, const std::string& path, comm::Group& world,
                             const std::function<void(const std::string&)>& say);

}  // namespace trainctl::trainer
