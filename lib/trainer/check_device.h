// Whether a device computes what the CPU does, operator by operator: for `trainctl-worker check-device`.
#pragma once

#include <string>
#include <vector>

#include "device/device.h"

namespace trainctl::trainer {

struct OperatorCheck {
  std::string name;  // "rms_norm_backward bf16 n=96 h=4096"
  // Largest difference over the largest magnitude of the CPU's result; NaN where only one of them has a NaN.
  double error = 0;
  double bound = 0;
  bool deterministic = false;  // a second run gave the same bits
  bool must_be_deterministic = true;
  bool ok() const { return (deterministic || !must_be_deterministic) && error <= bound; }
};

// Every kernel of kernels.h in fp32 and bf16, matrix products, attention and its gradient. The bounds are
// what another order of sums and the last bit of exp may change: 2e-5 in fp32, 2^-7 (two units in the last
// place) where the result is rounded to bf16.
std::vector<OperatorCheck> CheckOperators(const device::Device& device);

}  // namespace trainctl::trainer
