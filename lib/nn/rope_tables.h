// Angles of rotary positions, computed once for all segments.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "device/device.h"
#include "model/model_spec.h"

namespace trainctl::nn {

// cos and sin of every position up to max_position: [max_position, head_dim / 2] fp32 each.
struct RopeTables {
  at::Tensor cos, sin;
};
RopeTables MakeRopeTables(const device::Device& device, const model::ModelSpec& spec, int64_t max_position);

}  // namespace trainctl::nn
