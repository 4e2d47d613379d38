#include "frameworks/explore.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "frameworks/explore_axes.h"
#include "frameworks/explore_finder.h"
#include "frameworks/explore_front.h"
#include "frameworks/explore_rank.h"

namespace trainctl::frameworks {
namespace {

// Some hundred million candidates would be weighed for hours.
constexpr int64_t kMostGpus = int64_t{1} << 22;

// Prices everything.
struct PriceEach {
  Finder& finder;
  SearchCounts& counts;
  bool Layer(const LayerAxes&) { return true; }
  bool Pipe(const LayerAxes& layer, const PipeAxes& pipe, const std::vector<StateAxes>& states) {
    for (const StateAxes& state : states) {
      ++counts.enumerated;
      finder.Price({layer, pipe, state});
    }
    return true;
  }
  void Refused() { ++counts.refused; }
};

class Explorer {
 public:
  Explorer(const SearchSpace& space, const Goal& goal, const ExploreOptions& options, bool all)
      : space_(space), goal_(goal), options_(options), all_(all) {}

  absl::StatusOr<SearchResult> Run() {
    TRAINCTL_RETURN_IF_ERROR(Check());
    const auto start = std::chrono::steady_clock::now();
    SearchResult result;
    Question question{.goal = goal_,
                      .memory_limit_bytes = space_.memory_limit_bytes > 0
                                                ? space_.memory_limit_bytes
                                                : space_.base.device->memory_bytes.value,
                      .slowest_step_s = SlowestStep(goal_, space_.base)};
    bool any = false;
    Axes axes;
    for (const bool wide : {false, true}) {
      if (wide && !CanWiden(space_)) break;
      TRAINCTL_ASSIGN_OR_RETURN(axes, ResolveAxes(space_, goal_, wide));
      SearchCounts counts;
      result.best = Answer(axes, question, options_, counts);
      any = any || counts.bounded + counts.simulated + counts.misfits > 0;
      AddUp(counts, result.counts);
      if (!result.best.empty()) {
        if (options_.pareto_step > 0) result.pareto = Front(axes, question);
        break;
      }
    }
    if (result.best.empty()) result.nearest = Nearest(axes, question);
    if (!any || (result.best.empty() && !result.nearest.has_value())) {
      return UsageError(WhatExcludesAll(space_, goal_));
    }
    result.counts.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return result;
  }

 private:
  absl::Status Check() const {
    const Workload& base = space_.base;
    if (base.device == nullptr || base.node == nullptr || base.framework == nullptr) {
      return UsageError("a search needs a device, a node and a framework");
    }
    TRAINCTL_RETURN_IF_ERROR(model::Validate(base.model));
    const std::pair<const char*, int64_t> positive[] = {
        {"seq_len", base.seq_len}, {"global_batch", base.global_batch}, {"num_gpus", space_.num_gpus}};
    for (const auto& [name, value] : positive) {
      if (value <= 0 || value > 1'000'000'000) {
        return UsageError(absl::StrCat(name, " is ", value, "; it is between 1 and 1e9"));
      }
    }
    for (const int64_t count : space_.gpu_counts) {
      if (count > kMostGpus)
        return UsageError(absl::StrCat("gpu_counts has ", count, "; no cluster has as many"));
    }
    if (space_.num_gpus > kMostGpus) {
      return UsageError(
          absl::StrCat("num_gpus is ", space_.num_gpus, "; no cluster has more than ", kMostGpus));
    }
    const std::pair<const char*, double> non_negative[] = {{"memory_limit_bytes", space_.memory_limit_bytes},
                                                           {"price_per_gpu_hour", goal_.price_per_gpu_hour},
                                                           {"deadline_seconds", goal_.deadline_seconds},
                                                           {"tokens", static_cast<double>(goal_.tokens)},
                                                           {"hair", options_.hair},
                                                           {"pareto_step", options_.pareto_step}};
    for (const auto& [name, value] : non_negative) {
      if (!std::isfinite(value) || value < 0) {
        return UsageError(absl::StrCat(name, " is ", value, "; it is a number of at least 0"));
      }
    }
    if ((goal_.deadline_seconds > 0) != (goal_.tokens > 0)) {
      return UsageError(
          "a deadline needs the number of tokens that are to be trained by then, and the other "
          "way round");
    }
    if (options_.pareto_step >= 1) {
      return UsageError(absl::StrCat("pareto_step is ", options_.pareto_step, "; it is a share, below 1"));
    }
    if (options_.keep < 1) return UsageError(absl::StrCat("keep is ", options_.keep, "; at least 1"));
    return absl::OkStatus();
  }

  static void AddUp(const SearchCounts& more, SearchCounts& counts) {
    counts.enumerated += more.enumerated;
    counts.refused += more.refused;
    counts.bounded += more.bounded;
    counts.pruned_by_memory += more.pruned_by_memory;
    counts.pruned_by_time += more.pruned_by_time;
    counts.misfits += more.misfits;
    counts.simulated += more.simulated;
  }

  std::vector<Choice> Answer(const Axes& axes, const Question& question, const ExploreOptions& options,
                             SearchCounts& counts) {
    Finder finder(space_.base, question, options, counts);
    if (all_) {
      PriceEach each{finder, counts};
      LayoutWalk(axes).Run(each);
    } else {
      FindByBound(axes, question, finder, counts, terms_);
    }
    return finder.Best();
  }

  std::vector<Choice> Front(const Axes& axes, const Question& question) {
    SearchCounts ignored;
    if (goal_.objective != Objective::kFewestGpus) {
      return all_ ? MemoryFrontOfAll(axes, question, options_, ignored)
                  : MemoryFront(axes, question, options_, ignored, terms_);
    }
    // The fastest on each number of GPUs, as long as fewer of them are slower.
    std::vector<Choice> front;
    std::vector<int64_t> counts = axes.gpu_counts;
    std::sort(counts.begin(), counts.end());
    const ExploreOptions one{.keep = 1, .hair = options_.hair};
    for (const int64_t count : counts) {
      Axes on = axes;
      on.gpu_counts = {count};
      const std::vector<Choice> best = Answer(on, question, one, ignored);
      if (best.empty()) continue;
      if (front.empty() || best[0].time.step_seconds < front.back().time.step_seconds)
        front.push_back(best[0]);
    }
    std::reverse(front.begin(), front.end());
    return front;
  }

  // The layout that needs least memory, whatever is there; or the fastest that fits where only the deadline
  // is missed; or one that fits the devices and not the host's memory. Empty: no layout is possible.
  std::optional<Choice> Nearest(const Axes& axes, const Question& question) {
    const ExploreOptions one{.keep = 1, .hair = options_.hair};
    SearchCounts ignored;
    if (!std::isinf(question.slowest_step_s)) {
      Question in_time = question;
      in_time.goal.objective = Objective::kStepTime;
      in_time.slowest_step_s = kInfinity;
      const std::vector<Choice> fastest = Answer(axes, in_time, one, ignored);
      if (!fastest.empty()) return fastest[0];
    }
    Question least = question;
    least.goal.objective = Objective::kHeadroom;
    least.slowest_step_s = kInfinity;
    least.any_host = true;
    std::vector<Choice> smallest = Answer(axes, least, one, ignored);
    if (smallest.empty()) {
      least.memory_limit_bytes = kInfinity;
      smallest = Answer(axes, least, one, ignored);
    }
    if (smallest.empty()) return std::nullopt;
    smallest[0].fits = false;
    return smallest[0];
  }

  const SearchSpace& space_;
  const Goal& goal_;
  const ExploreOptions& options_;
  const bool all_;
  LayerTermsTable terms_;
};

}  // namespace

absl::StatusOr<SearchResult> Explore(const SearchSpace& space, const Goal& goal,
                                     const ExploreOptions& options) {
  return Explorer(space, goal, options, /*all=*/false).Run();
}

absl::StatusOr<SearchResult> ExploreAll(const SearchSpace& space, const Goal& goal,
                                        const ExploreOptions& options) {
  return Explorer(space, goal, options, /*all=*/true).Run();
}

}  // namespace trainctl::frameworks
