// Learning-rate schedules. Pure; thread-safe.
//
//   double lr = optim::LearningRate({.kind = "cosine", .lr = 3e-4, .decay_steps = 1000}, step);
#pragma once

#include <cstdint>
#include <string>

namespace trainctl::optim {

struct LrSchedule {
  std::string kind = "cosine";  // cosine | linear | wsd | constant
  double lr = 3e-4;
  double min_lr = 0;
  int64_t warmup_steps = 0;
  // Step at which the rate reaches min_lr, which it then keeps. Fixed at the first launch. Not used by
  // "constant".
  int64_t decay_steps = 0;
  double decay_fraction = 0.2;  // fraction of decay_steps, at the end, over which "wsd" decays the rate

  bool operator==(const LrSchedule&) const = default;
};

// Returns the learning rate of `step`, which counts from 0. During warm-up, the rate increases linearly from
// lr / warmup_steps to lr. The decay is linear, except for "cosine".
double LearningRate(const LrSchedule& schedule, int64_t step);

}  // namespace trainctl::optim
