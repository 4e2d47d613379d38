// Schedules that split the backward pass and fill the bubble with weight gradients: ZB-H1 and ZB-H2
// (Qi et al., "Zero Bubble Pipeline Parallelism", arXiv 2401.10241) and their form with several
// stages per rank. Only forwards and input backwards depend on other ranks; their order is written
// down here, and weight backwards are filled in.

#include <algorithm>
#include <limits>

#include "base/status.h"
#include "schedule/pipeline_common.h"

namespace trainctl::schedule {
namespace {

constexpr int kNever = std::numeric_limits<int>::max();

// Plays the orders with passes of one unit; see FillWithWeightBackwards.
class Filler {
 public:
  Filler(PipelineSchedule& schedule, const std::vector<int>& max_in_flight)
      : place_(schedule.placement), max_in_flight_(max_in_flight) {
    const size_t passes =
        static_cast<size_t>(place_.num_stages) * static_cast<size_t>(place_.num_micro_batches);
    forward_end_.assign(passes, kNever);
    input_end_.assign(passes, kNever);
    ranks_.resize(schedule.actions.size());
    for (size_t r = 0; r < ranks_.size(); ++r) {
      ranks_[r].order.swap(schedule.actions[r]);
      schedule.actions[r].reserve(ranks_[r].order.size() / 2 * 3);
      ranks_[r].result = &schedule.actions[r];
      unfinished_ += ranks_[r].order.empty() ? 0 : 1;
    }
  }

  void Run() {
    for (int now = 0; unfinished_ > 0; ++now) {
      bool progress = false;
      for (size_t r = 0; r < ranks_.size(); ++r) progress = Step(r, now) || progress;
      TRAINCTL_CHECK_MSG(progress, "no rank of the pipeline can go on at time ", now);
    }
  }

 private:
  struct Rank {
    std::vector<PipelineAction> order;  // forwards and input backwards
    std::vector<PipelineAction>* result = nullptr;
    size_t next = 0;
    size_t next_weight = 0;  // position in `order` from which the oldest weight backward is searched
    int pending_weights = 0;
    int in_flight = 0;
  };

  size_t Index(const PipelineAction& action) const {
    return static_cast<size_t>(action.stage) * static_cast<size_t>(place_.num_micro_batches) +
           static_cast<size_t>(action.micro_batch);
  }

  bool Ready(const PipelineAction& action, int now) const {
    const size_t at = Index(action);
    const size_t stride = static_cast<size_t>(place_.num_micro_batches);
    if (action.op == PipelineOp::kForward) return action.stage == 0 || forward_end_[at - stride] <= now;
    if (forward_end_[at] > now) return false;
    return action.stage == place_.num_stages - 1 || input_end_[at + stride] <= now;
  }

  // Whether the forwards that follow one another from here fit. If they do not, weight backwards come
  // before the first of them rather than in between, where they would delay the ranks that wait for
  // the second; with none to run, one forward at a time has to do.
  static bool HasRoom(const Rank& rank, int max_in_flight) {
    if (rank.pending_weights == 0) return rank.in_flight < max_in_flight;
    int in_flight = rank.in_flight;
    for (size_t i = rank.next; i < rank.order.size() && rank.order[i].op == PipelineOp::kForward; ++i) {
      if (++in_flight > max_in_flight) return false;
    }
    return true;
  }

  // What rank `r` does at `now`, if anything; it lasts one unit.
  bool Step(size_t r, int now) {
    Rank& rank = ranks_[r];
    if (rank.next < rank.order.size()) {
      const PipelineAction& action = rank.order[rank.next];
      const bool forward = action.op == PipelineOp::kForward;
      if ((!forward || HasRoom(rank, max_in_flight_[r])) && Ready(action, now)) {
        (forward ? forward_end_ : input_end_)[Index(action)] = now + 1;
        ++(forward ? rank.in_flight : rank.pending_weights);
        rank.result->push_back(action);
        ++rank.next;
        return true;
      }
    }
    if (rank.pending_weights == 0) return false;
    while (rank.order[rank.next_weight].op == PipelineOp::kForward) ++rank.next_weight;
    const PipelineAction& input = rank.order[rank.next_weight++];
    rank.result->push_back({PipelineOp::kBackwardWeight, false, input.stage, input.micro_batch});
    --rank.pending_weights;
    --rank.in_flight;
    if (rank.next == rank.order.size() && rank.pending_weights == 0) --unfinished_;
    return true;
  }

  const PipelinePlacement& place_;
  const std::vector<int>& max_in_flight_;
  std::vector<int> forward_end_;  // [stage * micro-batches + micro-batch]
  std::vector<int> input_end_;
  std::vector<Rank> ranks_;
  int unfinished_ = 0;
};

// 1F1B's order after `warm_up` forwards, with input backwards.
void OneForwardOneInputBackward(int rank, int num_micro_batches, int warm_up,
                                std::vector<PipelineAction>& actions) {
  warm_up = std::min(warm_up, num_micro_batches);
  for (int m = 0; m < num_micro_batches + warm_up; ++m) {
    if (m < num_micro_batches) actions.push_back({PipelineOp::kForward, false, rank, m});
    if (m >= warm_up) actions.push_back({PipelineOp::kBackwardInput, false, rank, m - warm_up});
  }
}

}  // namespace

void FillWithWeightBackwards(PipelineSchedule& schedule, const std::vector<int>& max_in_flight) {
  Filler(schedule, max_in_flight).Run();
}

namespace {

// Every rank may hold as many micro-batches as rank 0 of 1F1B.
int64_t MostOfZbH1(const PipelineShape& shape) { return shape.ranks; }
int64_t LeastOfZbH1(const PipelineShape& shape) {
  return std::min(shape.num_micro_batches, MostOfZbH1(shape));
}

void BuildZbH1(PipelineSchedule& schedule) {
  const int p = schedule.placement.num_ranks;
  for (int rank = 0; rank < p; ++rank) {
    OneForwardOneInputBackward(rank, schedule.placement.num_micro_batches, p - 1 - rank,
                               schedule.actions[static_cast<size_t>(rank)]);
  }
  FillWithWeightBackwards(schedule, std::vector<int>(static_cast<size_t>(p), p));
}

int64_t MostOfZbH2(const PipelineShape& shape) { return 2 * shape.ranks - 1; }
int64_t LeastOfZbH2(const PipelineShape& shape) {
  return std::min(shape.num_micro_batches, MostOfZbH2(shape));
}

// Twice the warm-up: forwards fill the time in which the first micro-batch comes back.
void BuildZbH2(PipelineSchedule& schedule) {
  const int p = schedule.placement.num_ranks;
  for (int rank = 0; rank < p; ++rank) {
    OneForwardOneInputBackward(rank, schedule.placement.num_micro_batches, 2 * (p - 1 - rank),
                               schedule.actions[static_cast<size_t>(rank)]);
  }
  FillWithWeightBackwards(schedule, std::vector<int>(static_cast<size_t>(p), 2 * p - 1));
}

int64_t LeastInterleaved(const PipelineShape& shape) {
  return shape.virtual_stages * std::min(shape.num_micro_batches, shape.ranks);
}

// The interleaved order with ZB-H1's warm-up, one forward for each rank that follows instead of
// two: input backwards come back twice as fast. Every rank may hold what rank 0 must.
void BuildInterleavedZeroBubble(PipelineSchedule& schedule) {
  const PipelinePlacement& place = schedule.placement;
  const int p = place.num_ranks;
  const int num_chunks = place.num_stages / p;
  const DepthFirstOrder order(p, place.num_micro_batches, num_chunks);
  for (int rank = 0; rank < p; ++rank) {
    std::vector<PipelineAction>& actions = schedule.actions[static_cast<size_t>(rank)];
    const int warm_up = std::min((num_chunks - 1) * order.largest_group() + p - 1 - rank, order.num_passes());
    for (int i = 0; i < order.num_passes() + warm_up; ++i) {
      if (i < order.num_passes()) {
        const DepthFirstOrder::Place at = order.Forward(i);
        actions.push_back({PipelineOp::kForward, false, at.chunk * p + rank, at.micro_batch});
      }
      if (i >= warm_up) {
        const DepthFirstOrder::Place at = order.Backward(i - warm_up);
        actions.push_back({PipelineOp::kBackwardInput, false, at.chunk * p + rank, at.micro_batch});
      }
    }
  }
  const int most = (num_chunks - 1) * order.largest_group() + p;
  FillWithWeightBackwards(schedule, std::vector<int>(static_cast<size_t>(p), most));
}

}  // namespace

// What waits for its weight backward is held: the builder lets a rank hold no more than so many.
constinit const PipelineOrder kZbH1Order = {
    .name = "zb-h1",
    .splits_backward = true,
    .build = BuildZbH1,
    .least_in_flight = LeastOfZbH1,
    .most_waiting = MostOfZbH1,
};

constinit const PipelineOrder kZbH2Order = {
    .name = "zb-h2",
    .splits_backward = true,
    .build = BuildZbH2,
    .least_in_flight = LeastOfZbH2,
    .most_waiting = MostOfZbH2,
};

constinit const PipelineOrder kInterleavedZeroBubbleOrder = {
    .name = "interleaved-zb",
    .limits = {.min_virtual_stages = 2, .max_virtual_stages = kAnyNumberOfStages},
    .with_one_stage = "zb-h1",
    .splits_backward = true,
    .build = BuildInterleavedZeroBubble,
    .least_in_flight = LeastInterleaved,
};

}  // namespace trainctl::schedule
