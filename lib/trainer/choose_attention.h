// Which attention kernel of a device computes a run, where there are two: decided once a shape, by time, and
// kept in the run folder, so that a resumed run has the same bits.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "comm/group.h"
#include "device/device.h"
#include "nn/attention.h"
#include "recipe/recipe.h"

namespace trainctl::trainer {

// Collective, before the first pass. Rank 0 times the kernels on its device, unless `path` says what was
// chosen for this shape on a device of this name; the others follow. `say` is told by rank 0.
absl::Status ChooseAttention(const recipe::Recipe& recipe, const device::Device& device,
                             const nn::AttentionShape& shape, const std::string& path, comm::Group& world,
                             const std::function<void(const std::string&)>& say);

}  // namespace trainctl::trainer
