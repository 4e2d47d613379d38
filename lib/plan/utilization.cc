#include "plan/utilization.h"

#include "absl/strings/str_cat.h"
#include "cluster/catalogue.h"

namespace trainctl::plan {

Peak PeakOfWorker(absl::string_view device, DType compute_dtype, const simulate::Rates& rates) {
  const absl::StatusOr<cluster::DeviceMatch> match = cluster::FindDevice(device);
  if (!match.ok()) {
    const double seconds_per_flop = rates[simulate::Resource::kMatmulFlops];
    if (!rates.measured || seconds_per_flop <= 0) return {};
    return {1 / seconds_per_flop, "the rate of matrix products that trainctl calibrate measured"};
  }
  const cluster::Device& found = *match->device;
  const bool is_half = compute_dtype == DType::kBF16;
  const double flops = is_half ? found.half_flops.value : found.single_flops.value;
  if (flops <= 0 || (is_half && !found.has_bf16)) return {};
  return {flops, absl::StrCat(found.name, ", dense ", is_half ? "bf16" : "fp32 (TF32 where it has that)",
                              ", of the catalogue")};
}

bool HasTimes(const Plan& plan) {
  return plan.device == "cpu" || plan.rates.measured || !plan.hardware.empty();
}

double PeakTokensPerSecond(const Plan& plan) {
  if (plan.peak_flops <= 0 || plan.flops_per_token <= 0) return 0;
  return static_cast<double>(plan.layout.mesh.world_size()) * plan.peak_flops / plan.flops_per_token;
}

}  // namespace trainctl::plan
