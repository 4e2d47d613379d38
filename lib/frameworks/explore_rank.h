// Which of the priced candidates is better. Internal to the planner. Pure.
#pragma once

#include <limits>
#include <vector>

#include "frameworks/explore.h"
#include "frameworks/explore_axes.h"

namespace trainctl::frameworks {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Less is better: `major` first, and among equal ones `minor` within a hair. Of a lower bound of memory and
// time, a lower bound.
struct Score {
  double major = 0;
  double minor = 0;
  bool operator<(const Score& other) const {
    return major != other.major ? major < other.major : minor < other.minor;
  }
};
Score ScoreOf(const Goal& goal, int64_t num_gpus, double memory_bytes, double step_seconds);

// Step time that meets the goal's deadline; infinity where there is none.
double SlowestStep(const Goal& goal, const Workload& base);

struct Priced {
  LayoutPoint point;
  LayoutKey key;
  Score score;
  Choice choice;
};

// The best `keep`, best first: again and again the simplest of what is within `hair` of the best that is
// left. Does not depend on the order of `priced`.
std::vector<size_t> BestOf(const std::vector<Priced>& priced, const ExploreOptions& options);

}  // namespace trainctl::frameworks
