#include "frameworks/explore_front.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "frameworks/explore_bounder.h"

namespace trainctl::frameworks {
namespace {

// Candidates of one band that are kept; another walk finds the rest, should they be needed.
constexpr size_t kWaitingInBand = 1000;

// Candidates by bands of their memory bound, so that the fastest of those that may fit a lower limit are at
// hand. A band is as wide as the step between two points of the front.
class Bands : public BoundSink {
 public:
  Bands(const Question& question, double step, SearchCounts& counts)
      : question_(question), width_(-std::log(1 - step)), counts_(counts) {}

  void Consider(const LayerAxes& layer, const PipeAxes& pipe, const StateAxes& state, double seconds,
                double bytes) override {
    if (bytes > question_.memory_limit_bytes) {
      ++counts_.pruned_by_memory;
      return;
    }
    if (seconds > question_.slowest_step_s) return;
    const int band = static_cast<int>(std::log(std::max(1.0, bytes)) / width_);
    const auto it = bands_.try_emplace(band).first;
    it->second.list.Add({0, seconds}, bytes, layer, pipe, state);
  }

  struct Next {
    const Waiting* waiting = nullptr;  // of the least time bound; null: none is left
    double left_out_s = kInfinity;     // least time bound of those that no list holds
  };
  // Of the candidates that were not taken yet and may need at most `limit_bytes`.
  Next Peek(double limit_bytes) {
    Next next;
    least_ = nullptr;
    for (auto& [number, band] : bands_) {
      if (std::exp(number * width_) > limit_bytes) break;  // this one and those after it need more
      if (band.sorted == nullptr) band.sorted = &band.list.Sorted();
      const std::vector<Waiting>& sorted = *band.sorted;
      while (band.next < sorted.size() && sorted[band.next].bytes_bound > limit_bytes) ++band.next;
      if (band.list.ceiling().major == 0)
        next.left_out_s = std::min(next.left_out_s, band.list.ceiling().minor);
      if (band.next == sorted.size()) continue;
      if (next.waiting == nullptr || sorted[band.next].bound < next.waiting->bound) {
        next.waiting = &sorted[band.next];
        least_ = &band;
      }
    }
    return next;
  }
  void Take() { ++least_->next; }

 private:
  struct Band {
    WaitingList list{kWaitingInBand};
    const std::vector<Waiting>* sorted = nullptr;
    size_t next = 0;
  };

  const Question& question_;
  const double width_;
  SearchCounts& counts_;
  std::map<int, Band> bands_;
  Band* least_ = nullptr;  // whose candidate was seen last
};

Question FastestWithin(const Question& question, double limit_bytes) {
  Question fastest = question;
  fastest.goal.objective = Objective::kStepTime;
  fastest.memory_limit_bytes = limit_bytes;
  return fastest;
}

// Of what is priced, the best that needs at most `limit_bytes`.
const Priced* BestWithin(const std::vector<Priced>& priced, double limit_bytes, double hair) {
  const Priced* best = nullptr;
  double fastest_s = kInfinity;
  for (const Priced& p : priced) {
    if (p.choice.memory.upper_bytes <= limit_bytes) fastest_s = std::min(fastest_s, p.score.minor);
  }
  for (const Priced& p : priced) {
    if (p.choice.memory.upper_bytes > limit_bytes || p.score.minor > fastest_s * (1 + hair)) continue;
    if (best == nullptr || p.key < best->key) best = &p;
  }
  return best;
}

// Whatever was found: a later point of the front may be the candidate.
bool AlwaysMatters(const Score& /*bound*/) { return true; }

// Everything that is possible, priced.
struct PriceAll {
  const Workload& base;
  const Question& question;
  SearchCounts& counts;
  std::vector<Priced> priced;
  bool Layer(const LayerAxes&) { return true; }
  bool Pipe(const LayerAxes& layer, const PipeAxes& pipe, const std::vector<StateAxes>& states) {
    for (const StateAxes& state : states) {
      auto one = PriceCandidate(base, {layer, pipe, state}, question, AlwaysMatters, counts);
      if (one.has_value()) priced.push_back(*std::move(one));
    }
    return true;
  }
  void Refused() { ++counts.refused; }
};

}  // namespace

std::vector<Choice> MemoryFront(const Axes& axes, const Question& question, const ExploreOptions& options,
                                SearchCounts& counts, LayerTermsTable& terms) {
  const Workload& base = axes.space->base;
  std::vector<Choice> front;
  std::vector<Priced> priced;
  double limit_bytes = question.memory_limit_bytes;
  const Question any = FastestWithin(question, limit_bytes);
  Bands bands(any, options.pareto_step, counts);
  Bounder bounder(base, bands, counts, terms);
  LayoutWalk(axes).Run(bounder);
  for (;;) {
    // What was taken for an earlier point is priced, or needs more than the limit now.
    const Priced* best = nullptr;
    bool complete = false;
    while (!complete) {
      best = BestWithin(priced, limit_bytes, options.hair);
      const double matters_s = best == nullptr ? kInfinity : best->score.minor * (1 + options.hair);
      const Bands::Next next = bands.Peek(limit_bytes);
      const double least_s = next.waiting == nullptr ? kInfinity : next.waiting->bound.minor;
      complete = matters_s < std::min(least_s, next.left_out_s) ||
                 (std::isinf(least_s) && std::isinf(next.left_out_s));
      if (complete || next.left_out_s <= least_s) break;
      bands.Take();
      auto one = PriceCandidate(base, next.waiting->point, any, AlwaysMatters, counts);
      if (one.has_value()) priced.push_back(*std::move(one));
    }
    if (complete) {
      if (best == nullptr) break;
      front.push_back(best->choice);
    } else {
      // A band was too full: asked again, for this limit alone.
      const Question within = FastestWithin(question, limit_bytes);
      const ExploreOptions only{.keep = 1, .hair = options.hair};
      Finder finder(base, within, only, counts);
      FindByBound(axes, within, finder, counts, terms);
      const std::vector<Choice> found = finder.Best();
      if (found.empty()) break;
      front.push_back(found[0]);
    }
    limit_bytes = front.back().memory.upper_bytes * (1 - options.pareto_step);
  }
  return front;
}

std::vector<Choice> MemoryFrontOfAll(const Axes& axes, const Question& question,
                                     const ExploreOptions& options, SearchCounts& counts) {
  const Question any = FastestWithin(question, question.memory_limit_bytes);
  PriceAll all{axes.space->base, any, counts, {}};
  LayoutWalk(axes).Run(all);
  std::vector<Choice> front;
  double limit_bytes = question.memory_limit_bytes;
  for (;;) {
    const Priced* best = BestWithin(all.priced, limit_bytes, options.hair);
    if (best == nullptr) return front;
    front.push_back(best->choice);
    limit_bytes = best->choice.memory.upper_bytes * (1 - options.pareto_step);
  }
}

}  // namespace trainctl::frameworks
