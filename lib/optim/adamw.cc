// Adam with decoupled weight decay (Loshchilov & Hutter 2019), as torch.optim.AdamW.

#include <cmath>

#include "optim/optimizer.h"

namespace trainctl::optim {
namespace {

constexpr StateKind kAdamWStates[] = {{"exp_avg", "first moments"}, {"exp_avg_sq", "second moments"}};
constexpr absl::string_view kAdamWFields[] = {"betas", "eps"};

void CorrectBias(int64_t update_number, kernels::UpdateOptions& options) {
  const auto n = static_cast<double>(update_number);
  options.bias_correction1 = static_cast<float>(1 - std::pow(static_cast<double>(options.beta1), n));
  options.bias_correction2 = static_cast<float>(1 - std::pow(static_cast<double>(options.beta2), n));
}

}  // namespace

constinit const Optimizer kAdamW = {
    .name = "adamw",
    .summary = "Adam with decoupled weight decay, like torch.optim.AdamW",
    .states = kAdamWStates,
    .fields = kAdamWFields,
    .defaults = {.lr = 3e-4, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8},
    .rule = kernels::UpdateRule::kAdamW,
    .prepare = CorrectBias,
};

}  // namespace trainctl::optim
