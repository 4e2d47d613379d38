#include "planner/explore.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "planner/explore_axes.h"
#include "planner/explore_rank.h"
#include "pricing/bounds.h"

namespace trainctl::planner {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Candidates that wait for their simulation at a time; what comes after them is found by another walk.
constexpr size_t kWaiting = 20'000;

// One question: what must hold, and what is best.
struct Question {
  Goal goal;
  double memory_limit_bytes = 0;
  double slowest_step_s = kInfinity;
};

struct Waiting {
  Score bound;
  double memory_bound = 0;
  LayoutPoint point;
};

// Prices candidates and remembers which score still matters.
class Finder {
 public:
  Finder(const SearchSpace& space, const Question& question, const ExploreOptions& options,
         SearchCounts& counts)
      : space_(space), question_(question), options_(options), counts_(counts) {}

  bool MayMatter(const Score& bound) const { return !(worst_ < bound); }

  void Price(const LayoutPoint& point) {
    Priced priced{.point = point, .key = KeyOf(point), .score = {}, .choice = {}};
    priced.choice.workload = WorkloadOf(space_.base, point);
    if (!pricing::Validate(priced.choice.workload).ok()) {
      ++counts_.refused;
      return;
    }
    priced.choice.memory = pricing::PriceMemory(priced.choice.workload);
    if (priced.choice.memory.upper_bytes > question_.memory_limit_bytes) {
      ++counts_.misfits;
      return;
    }
    ++counts_.simulated;
    priced.choice.time = pricing::PriceTime(priced.choice.workload);
    if (priced.choice.time.step_seconds > question_.slowest_step_s) return;
    priced.score = ScoreOf(question_.goal, point.pipe.num_gpus, priced.choice.memory.upper_bytes,
                           priced.choice.time.step_seconds);
    if (MayMatter(priced.score)) Keep(std::move(priced));
  }

  std::vector<Choice> Best() const {
    std::vector<Choice> best;
    for (const size_t i : BestOf(priced_, options_)) best.push_back(priced_[i].choice);
    return best;
  }

 private:
  void Keep(Priced priced) {
    const auto at = std::upper_bound(scores_.begin(), scores_.end(), priced.score);
    scores_.insert(at, priced.score);
    if (scores_.size() > static_cast<size_t>(options_.keep)) scores_.pop_back();
    if (scores_.size() == static_cast<size_t>(options_.keep)) {
      worst_ = {scores_.back().major, scores_.back().minor * (1 + options_.hair)};
    }
    priced_.push_back(std::move(priced));
    // What no longer matters goes, now and then.
    if (priced_.size() > 2 * forgotten_at_) {
      std::erase_if(priced_, [&](const Priced& p) { return worst_ < p.score; });
      forgotten_at_ = std::max<size_t>(1000, priced_.size());
    }
  }

  const SearchSpace& space_;
  const Question& question_;
  const ExploreOptions& options_;
  SearchCounts& counts_;
  std::vector<Priced> priced_;
  std::vector<Score> scores_;  // the best `keep`
  Score worst_ = {kInfinity, kInfinity};
  size_t forgotten_at_ = 1000;
};

// Evaluates the bounds of all candidates and keeps those with the least ones from `floor` on.
class Bounder {
 public:
  Bounder(const SearchSpace& space, const Question& question, SearchCounts& counts)
      : space_(space), question_(question), counts_(counts) {}

  void Start(const Score& floor) {
    floor_ = floor;
    ceiling_ = {kInfinity, kInfinity};
    waiting_.clear();
  }

  bool Layer(const LayerAxes& layer) {
    const pricing::Workload w = WorkloadOf(space_.base, {layer, {}, {}});
    time_ = pricing::TimeTermsOf(w);
    return true;
  }

  bool Pipe(const LayerAxes&, const PipeAxes& pipe) {
    pipeline_s_ = pricing::PipelineSeconds(time_, StageCountsFor(pipe), pipe.kind, pipe.num_micro_batches);
    return true;
  }

  bool State(const LayerAxes& layer, const PipeAxes& pipe, const StateAxes& state) {
    ++counts_.bounded;
    const double seconds = pipeline_s_;
    const double bytes = 0;
    if (bytes > question_.memory_limit_bytes) {
      ++counts_.pruned_by_memory;
      return true;
    }
    const Score bound = ScoreOf(question_.goal, pipe.num_gpus, bytes, seconds);
    if (seconds > question_.slowest_step_s || bound < floor_ || !(bound < ceiling_)) return true;
    waiting_.push_back({bound, bytes, {layer, pipe, state}});
    if (waiting_.size() >= 2 * kWaiting) Shorten();
    return true;
  }

  void Refused() { ++counts_.refused; }

  std::vector<Waiting>& Sorted() {
    std::sort(waiting_.begin(), waiting_.end(), Less);
    return waiting_;
  }
  const Score& ceiling() const { return ceiling_; }

 private:
  static bool Less(const Waiting& a, const Waiting& b) { return a.bound < b.bound; }

  // Keeps the better half; ties with the first one that goes go with it, for the next walk.
  void Shorten() {
    const auto middle = waiting_.begin() + kWaiting;
    std::nth_element(waiting_.begin(), middle, waiting_.end(), Less);
    const Score cut = middle->bound;
    const auto end =
        std::partition(waiting_.begin(), waiting_.end(), [&](const Waiting& w) { return w.bound < cut; });
    if (end == waiting_.begin()) return;  // all the same: they stay together
    waiting_.erase(end, waiting_.end());
    ceiling_ = cut;
  }

  const pricing::StageCounts& StageCountsFor(const PipeAxes& pipe) {
    const std::array<int64_t, 3> key = {pipe.pp, pipe.virtual_stages, static_cast<int64_t>(pipe.split)};
    const auto it = stage_counts_.find(key);
    if (it != stage_counts_.end()) return it->second;
    const pricing::Workload w = WorkloadOf(space_.base, {{}, pipe, {}});
    return stage_counts_.emplace(key, pricing::StageCountsOf(w)).first->second;
  }

  const SearchSpace& space_;
  const Question& question_;
  SearchCounts& counts_;
  Score floor_, ceiling_;
  std::vector<Waiting> waiting_;
  std::map<std::array<int64_t, 3>, pricing::StageCounts> stage_counts_;
  pricing::TimeTerms time_;
  double pipeline_s_ = 0;
};

// Prices everything.
struct PriceEach {
  Finder& finder;
  SearchCounts& counts;
  bool Layer(const LayerAxes&) { return true; }
  bool Pipe(const LayerAxes&, const PipeAxes&) { return true; }
  bool State(const LayerAxes& layer, const PipeAxes& pipe, const StateAxes& state) {
    ++counts.enumerated;
    finder.Price({layer, pipe, state});
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
    for (const bool wide : {false, true}) {
      if (wide && !CanWiden(space_)) break;
      TRAINCTL_ASSIGN_OR_RETURN(const Axes axes, ResolveAxes(space_, goal_, wide));
      SearchCounts counts;
      result.best = Answer(axes, question, options_, counts);
      any = any || counts.bounded + counts.simulated + counts.misfits > 0;
      AddUp(counts, result.counts);
      if (!result.best.empty()) break;
      TRAINCTL_ASSIGN_OR_RETURN(result.nearest, Nearest(axes, question));
    }
    if (!any || (result.best.empty() && !result.nearest.has_value())) {
      return UsageError(WhatExcludesAll(space_, goal_));
    }
    if (!result.best.empty()) result.nearest.reset();
    result.counts.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return result;
  }

 private:
  absl::Status Check() const {
    const pricing::Workload& base = space_.base;
    if (base.device == nullptr || base.node == nullptr || base.framework == nullptr) {
      return UsageError("a search needs a device, a node and a framework");
    }
    TRAINCTL_RETURN_IF_ERROR(pricing::Validate(base.model));
    const std::pair<const char*, int64_t> positive[] = {
        {"seq_len", base.seq_len}, {"global_batch", base.global_batch}, {"num_gpus", space_.num_gpus}};
    for (const auto& [name, value] : positive) {
      if (value <= 0 || value > 1'000'000'000) {
        return UsageError(absl::StrCat(name, " is ", value, "; it is between 1 and 1e9"));
      }
    }
    const std::pair<const char*, double> non_negative[] = {{"memory_limit_bytes", space_.memory_limit_bytes},
                                                           {"price_per_gpu_hour", goal_.price_per_gpu_hour},
                                                           {"deadline_seconds", goal_.deadline_seconds},
                                                           {"tokens", static_cast<double>(goal_.tokens)},
                                                           {"hair", options_.hair}};
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
                             SearchCounts& counts) const {
    Finder finder(space_, question, options, counts);
    if (all_) {
      PriceEach each{finder, counts};
      LayoutWalk(axes).Run(each);
      counts.enumerated += counts.refused;
    } else {
      PriceByBound(axes, question, finder, counts);
    }
    std::vector<Choice> best = finder.Best();
    for (Choice& choice : best) choice.fits = true;
    return best;
  }

  void PriceByBound(const Axes& axes, const Question& question, Finder& finder, SearchCounts& counts) const {
    SearchCounts again;  // later walks count nothing
    Score floor = {-kInfinity, -kInfinity};
    for (bool first = true;; first = false) {
      Bounder bounder(space_, question, first ? counts : again);
      bounder.Start(floor);
      LayoutWalk(axes).Run(bounder);
      if (first) counts.enumerated = counts.refused + counts.bounded;
      for (const Waiting& waiting : bounder.Sorted()) {
        if (!finder.MayMatter(waiting.bound)) break;
        finder.Price(waiting.point);
      }
      floor = bounder.ceiling();
      if (std::isinf(floor.minor) || !finder.MayMatter(floor)) break;
    }
    counts.pruned_by_time = counts.bounded - counts.pruned_by_memory - counts.simulated - counts.misfits;
  }

  // The layout that needs least memory, whatever is there; or the fastest that fits where only the deadline
  // is missed. Empty: no layout is possible.
  absl::StatusOr<std::optional<Choice>> Nearest(const Axes& axes, const Question& question) const {
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
    least.memory_limit_bytes = kInfinity;
    least.slowest_step_s = kInfinity;
    std::vector<Choice> smallest = Answer(axes, least, one, ignored);
    if (smallest.empty()) return std::optional<Choice>();
    smallest[0].fits = false;
    return smallest[0];
  }

  const SearchSpace& space_;
  const Goal& goal_;
  const ExploreOptions& options_;
  const bool all_;
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

}  // namespace trainctl::planner
