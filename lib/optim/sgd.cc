// Stochastic gradient descent with momentum, as torch.optim.SGD without dampening or Nesterov: weight decay
// is added to the (clipped) gradient, so that the momentum averages it too.

#include "optim/optimizer.h"

namespace trainctl::optim {
namespace {

constexpr StateKind kSgdStates[] = {{"momentum_buffer", "momentum"}};
constexpr absl::string_view kSgdFields[] = {"momentum"};

}  // namespace

extern const Optimizer kSgd;
constinit const Optimizer kSgd = {
    .name = "sgd",
    .summary = "gradient descent with momentum and coupled weight decay, like torch.optim.SGD",
    .states = kSgdStates,
    .fields = kSgdFields,
    .defaults = {.lr = 0.1, .weight_decay = 1e-4, .momentum = 0.9},
    .rule = kernels::UpdateRule::kSgd,
};

}  // namespace trainctl::optim
