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

// Cosine and sine of each position, multiplied by the attention factor (model::AttentionFactorOf): [seq_len,
// rotated_dim / 2] each, fp32, in device memory. Operators that rotate back with these tables multiply by
// that factor again, which is right for gradients, but does not restore values.
struct RopeTables {
  at::Tensor cos, sin;
};
// Computes the tables on the CPU and copies them to the device. Uses the same sequence of fp32 operations as
// Hugging Face transformers. `seq_len` is the length of the sequences, in tokens. With LongRoPE it decides
// which frequencies all of them have, also if the documents in them are shorter.
RopeTables MakeRopeTables(const device::Device& device, const model::AngleTable& table, int64_t seq_len);
// The same for each of several tables.
std::vector<RopeTables> MakeRopeTables(const device::Device& device,
                                       const std::vector<model::AngleTable>& tables, int64_t seq_len);

}  // namespace trainctl::nn
