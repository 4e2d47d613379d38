// Computes the model FLOP utilization (MFU), the fraction of the devices' peak compute that the model uses:
//
//   MFU = tokens per second * FLOPs per token / (number of workers * dense peak FLOP/s of one worker)
//
// The FLOPs per token are model::FlopsPerToken: 6 N' + 6 L h s, with h = heads * head_dim. This is three
// times the forward's 2 N' + 2 L h s, and excludes recomputation. Appendix B of the PaLM paper (arXiv
// 2204.02311) counts 6 N + 12 L h s instead. That includes all attention scores, although a causal mask needs
// only half of them, and every parameter, although the embedding lookup multiplies nothing. The MFU here is
// therefore lower, and does not overstate the utilization for long sequences. Pure; thread-safe.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "base/dtype.h"
#include "plan/plan.h"
#include "simulate/cost.h"

namespace trainctl::plan {

struct Peak {
  double flops = 0;    // FLOP/s of one worker; 0 if unknown
  std::string source;  // "h100-sxm-80gb, dense bf16, of the catalogue"; empty if unknown
};

// Returns the peak compute rate of one worker. `device` is "cpu" or the name of a device. If the catalogue
// has the device, returns its dense peak, which is unknown for bf16 if the device does not support it.
// Otherwise, returns the rate of matrix products that `trainctl calibrate` measured, or unknown if it was not
// measured.
Peak PeakOfWorker(absl::string_view device, DType compute_dtype, const simulate::Rates& rates);

// Returns whether the plan's rates are those of its device. If not, its times are only useful to compare
// layouts.
bool HasTimes(const Plan& plan);

// Returns the number of tokens per second, over all workers, at which the MFU is 1. Returns 0 if the peak is
// unknown.
double PeakTokensPerSecond(const Plan& plan);

}  // namespace trainctl::plan
