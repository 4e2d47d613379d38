// Lion (Chen et al. 2023, arXiv 2302.06675). Its steps are larger than AdamW's, as every element moves by lr:
// the paper takes a learning rate 3 to 10 times smaller and a weight decay as many times larger. The defaults
// are AdamW's changed so, and the paper's betas.

#include "optim/optimizer.h"

namespace trainctl::optim {
namespace {

constexpr StateKind kLionStates[] = {{"exp_avg", "first moments"}};
constexpr absl::string_view kLionFields[] = {"betas"};

}  // namespace

extern const Optimizer kLion;
constinit const Optimizer kLion = {
    .name = "lion",
    .summary = "updates by the sign of an averaged gradient, with decoupled weight decay (arXiv 2302.06675)",
    .states = kLionStates,
    .fields = kLionFields,
    .defaults = {.lr = 1e-4, .weight_decay = 0.3, .beta1 = 0.9, .beta2 = 0.99},
    .rule = kernels::UpdateRule::kLion,
};

}  // namespace trainctl::optim
