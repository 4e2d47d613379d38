#include "optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trainctl::optim {

double LearningRate(const LrSchedule& s, int64_t step) {
  if (step < s.warmup_steps)
    return s.lr * static_cast<double>(step + 1) / static_cast<double>(s.warmup_steps);
  if (s.kind == "constant") return s.lr;
  double begin = static_cast<double>(s.warmup_steps);
  const double end = static_cast<double>(std::max(s.decay_steps, s.warmup_steps + 1));
  if (s.kind == "wsd") begin = std::max(begin, end - s.decay_fraction * static_cast<double>(s.decay_steps));
  const double progress =
      std::clamp((static_cast<double>(step) - begin) / std::max(1.0, end - begin), 0.0, 1.0);
  const double share = s.kind == "cosine" ? 0.5 * (1 + std::cos(std::numbers::pi * progress)) : 1 - progress;
  return s.min_lr + (s.lr - s.min_lr) * share;
}

}  // namespace trainctl::optim
