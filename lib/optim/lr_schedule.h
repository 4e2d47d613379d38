// Learning-rate schedules. Pure; thread safe.
#pragma once

#include <cstdint>
#include <string>

namespace trainctl::optim {

struct LrSchedule {
  std::string kind = "cosine";  // cosine | linear | wsd | constant
  double lr = 3e-4;
  double min_lr = 0;
  int64_t warmup_steps = 0;
  int64_t decay_steps = 0;      // fixed at the first launch; past it the rate stays at its end value
  double decay_fraction = 0.2;  // wsd: the last share of decay_steps is the decay
};

// The rate of `step` (0-based). Warm-up is linear from lr / warmup_steps.
double LearningRate(const LrSchedule& schedule, int64_t step);

}  // namespace trainctl::optim
