// Model FLOP utilization (MFU): the share of what the devices could compute at best that the model itself
// needed. Tokens per second times model FLOP per token, over workers times the dense peak of one. Pure.
//
// Model FLOP per token are model::FlopsPerToken, 6 N' + 6 L h s, h being heads x head_dim: three times the
// forward's 2 N' + 2 L h s; no recompute. Appendix B of the PaLM paper (arXiv 2204.02311) counts 6 N + 12 L h
// s: all scores, where a causal mask needs half of them, and every parameter, where the look-up of the
// embedding multiplies nothing. So this number is the smaller of the two, and honest for long sequences.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "base/dtype.h"
#include "plan/plan.h"
#include "simulate/cost.h"

namespace trainctl::plan {

struct Peak {
  double flops = 0;    // FLOP/s of one worker; 0: unknown
  std::string source;  // "h100-sxm-80gb, dense bf16, of the catalogue"; empty: unknown
};

// `device`: as in a recipe. Of the catalogue where it names one; of a CPU, or of a device that it does not
// name, the rate of matrix products that `trainctl calibrate` measured; else unknown.
Peak PeakOfWorker(absl::string_view device, DType compute_dtype, const simulate::Rates& rates);

// Whether the plan has rates of its device. Without them, its times only order layouts.
bool HasTimes(const Plan& plan);

// Tokens per second at which the MFU of the plan would be 1; 0: its peak is unknown.
double PeakTokensPerSecond(const Plan& plan);

}  // namespace trainctl::plan
