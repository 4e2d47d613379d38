#include "frameworks/explore_finder.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "frameworks/price_memory.h"
#include "frameworks/price_time.h"

namespace trainctl::frameworks {
namespace {

// Candidates that wait for their simulation at a time; what comes after them is found by another walk.
constexpr size_t kWaiting = 20'000;

class ByScore : public BoundSink {
 public:
  ByScore(const Question& question, SearchCounts& counts)
      : question_(question), counts_(counts), list_(kWaiting) {}

  WaitingList& list() { return list_; }

  void Consider(const LayerAxes& layer, const PipeAxes& pipe, const StateAxes& state, double seconds,
                double bytes) override {
    if (bytes > question_.memory_limit_bytes) {
      ++counts_.pruned_by_memory;
      return;
    }
    if (seconds > question_.slowest_step_s) return;
    list_.Add(ScoreOf(question_.goal, pipe.num_gpus, bytes, seconds), bytes, layer, pipe, state);
  }

 private:
  const Question& question_;
  SearchCounts& counts_;
  WaitingList list_;
};

// What waits in host memory has to fit there too, where the node's is known.
bool FitsHost(const Choice& choice) {
  const cluster::Node& node = *choice.workload.node;
  const double ranks = static_cast<double>(std::min<int64_t>(node.gpus, choice.num_gpus()));
  return node.cpu_memory_bytes <= 0 ||
         choice.memory.host_bytes * ranks <= static_cast<double>(node.cpu_memory_bytes);
}

}  // namespace

std::optional<Priced> PriceCandidate(const Workload& base, const LayoutPoint& point, const Question& question,
                                     absl::FunctionRef<bool(const Score& bound)> may_matter,
                                     SearchCounts& counts) {
  Priced priced{.point = point, .key = KeyOf(point), .score = {}, .choice = {}};
  Choice& choice = priced.choice;
  choice.workload = WorkloadOf(base, point);
  if (!Validate(choice.workload).ok()) {
    ++counts.refused;
    return std::nullopt;
  }
  choice.memory = PriceMemory(choice.workload);
  choice.fits = true;
  if (choice.memory.upper_bytes > question.memory_limit_bytes) {
    ++counts.misfits;
    return std::nullopt;
  }
  if (!question.any_host && !FitsHost(choice)) {
    ++counts.misfits;
    return std::nullopt;
  }
  if (!may_matter(ScoreOf(question.goal, point.pipe.num_gpus, choice.memory.upper_bytes, 0))) {
    return std::nullopt;
  }
  ++counts.simulated;
  choice.time = PriceTime(choice.workload);
  // Never less than the step itself, so that bounds of that are bounds of this.
  const double seconds = EffectiveTimeOf(question.goal, choice).step_seconds;
  if (seconds > question.slowest_step_s) return std::nullopt;
  priced.score = ScoreOf(question.goal, point.pipe.num_gpus, choice.memory.upper_bytes, seconds);
  return priced;
}

void Finder::Price(const LayoutPoint& point) {
  std::optional<Priced> priced = PriceCandidate(
      base_, point, question_, [this](const Score& bound) { return MayMatter(bound); }, counts_);
  if (priced.has_value() && MayMatter(priced->score)) Keep(*std::move(priced));
}

std::vector<Choice> Finder::Best() const {
  std::vector<Choice> best;
  for (const size_t i : BestOf(priced_, options_)) best.push_back(priced_[i].choice);
  return best;
}

void Finder::Keep(Priced priced) {
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

namespace {

// Those of one schedule next to each other, and of these those with the same passes.
bool HasEarlierSchedule(const Waiting* a, const Waiting* b) {
  const auto key = [](const Waiting& waiting) {
    const LayerAxes& layer = waiting.point.layer;
    const PipeAxes& pipe = waiting.point.pipe;
    return std::make_tuple(pipe.kind, pipe.pp, pipe.virtual_stages, pipe.num_micro_batches, pipe.split,
                           pipe.recomputed_layers, layer.micro_batch, layer.tp, layer.cp, layer.ep, layer.etp,
                           layer.recompute);
  };
  return key(*a) < key(*b);
}

// A schedule is built once for all that come together (pipeline_time.cc). The first are as many as are kept,
// so that the next bounds are held against something.
void PriceInOrder(const std::vector<Waiting>& sorted, Finder& finder) {
  constexpr size_t kLeastTogether = 16, kMostTogether = 4096;
  size_t together = std::max(kLeastTogether, 2 * static_cast<size_t>(finder.keep()));
  std::vector<const Waiting*> batch;
  for (size_t next = 0; next < sorted.size() && finder.MayMatter(sorted[next].bound);) {
    batch.clear();
    for (; next < sorted.size() && batch.size() < together; ++next) batch.push_back(&sorted[next]);
    std::stable_sort(batch.begin(), batch.end(), HasEarlierSchedule);
    for (const Waiting* waiting : batch) {
      if (finder.MayMatter(waiting->bound)) finder.Price(waiting->point);
    }
    together = std::min(4 * together, kMostTogether);
  }
}

}  // namespace

void FindByBound(const Axes& axes, const Question& question, Finder& finder, SearchCounts& counts,
                 LayerTermsTable& terms) {
  SearchCounts again;   // later walks count nothing
  int64_t refused = 0;  // by the walk; what Validate refuses later has been bounded
  Score floor = {-std::numeric_limits<double>::infinity(), 0};
  for (bool first = true;; first = false) {
    SearchCounts& walk = first ? counts : again;
    ByScore by_score(question, walk);
    by_score.list().Start(floor);
    Bounder bounder(axes.space->base, by_score, walk, terms);
    LayoutWalk(axes).Run(bounder);
    if (first) {
      refused = counts.refused;
      counts.enumerated = counts.refused + counts.bounded;
    }
    PriceInOrder(by_score.list().Sorted(), finder);
    floor = by_score.list().ceiling();
    if (std::isinf(floor.major) || !finder.MayMatter(floor)) break;
  }
  counts.pruned_by_time = counts.bounded - counts.pruned_by_memory - counts.simulated - counts.misfits -
                          (counts.refused - refused);
}

}  // namespace trainctl::frameworks
