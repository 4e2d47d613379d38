// Tables of the angles of rotary positions, computed once and shared by all segments.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "device/device.h"

namespace trainctl::model {
struct AngleTable;
}

namespace trainctl::nn {

// Cosine and sine of each position below max_position: [max_position, rotated_dim / 2] each, fp32, in device
// memory.
struct RopeTables {
  at::Tensor cos, sin;
};
// Computes the tables on the CPU and copies them to the device. Uses the same sequence of fp32 operations as
// Hugging Face transformers, including Llama 3 frequency scaling.
RopeTables MakeRopeTables(const device::Device& device, const model::AngleTable& table, int64_t max_position);
// The same for each of several tables.
std::vector<RopeTables> MakeRopeTables(const device::Device& device,
                                       const std::vector<model::AngleTable>& tables, int64_t max_position);

}  // namespace trainctl::nn
