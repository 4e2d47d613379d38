// Prices candidates and finds the best. Internal to the planner. Not thread safe.
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "frameworks/explore.h"
#include "frameworks/explore_axes.h"
#include "frameworks/explore_bounder.h"
#include "frameworks/explore_rank.h"

namespace trainctl::frameworks {

// What must hold, and what is best.
struct Question {
  Goal goal;
  double memory_limit_bytes = 0;
  double slowest_step_s = std::numeric_limits<double>::infinity();
  bool any_host = false;  // what waits in host memory need not fit there
};

// The candidate's prices; empty where it is refused, does not fit, is too slow or does not matter: a lower
// bound of its score is asked for, once its memory is priced and its time is not.
std::optional<Priced> PriceCandidate(const Workload& base, const LayoutPoint& point, const Question& question,
                                     absl::FunctionRef<bool(const Score& bound)> may_matter,
                                     SearchCounts& counts);

// Remembers the best candidates and which score still matters.
class Finder {
 public:
  Finder(const Workload& base, const Question& question, const ExploreOptions& options, SearchCounts& counts)
      : base_(base), question_(question), options_(options), counts_(counts) {}

  bool MayMatter(const Score& bound) const { return !(worst_ < bound); }
  int keep() const { return options_.keep; }
  void Price(const LayoutPoint& point);
  // Best first.
  std::vector<Choice> Best() const;

 private:
  void Keep(Priced priced);

  const Workload& base_;
  const Question& question_;
  const ExploreOptions& options_;
  SearchCounts& counts_;
  std::vector<Priced> priced_;
  std::vector<Score> scores_;  // the best `keep`
  Score worst_ = {std::numeric_limits<double>::infinity(), 0};
  size_t forgotten_at_ = 1000;
};

// Prices candidates in the order of their bounds, some hundred at a time, until the next bound cannot matter.
// `terms` of other walks with the same base.
void FindByBound(const Axes& axes, const Question& question, Finder& finder, SearchCounts& counts,
                 LayerTermsTable& terms);

}  // namespace trainctl::frameworks
