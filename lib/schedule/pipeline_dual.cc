// Schedules that run a forward and a backward of different micro-batches together, so that each
// hides the other's communication: DualPipe (DeepSeek-V3 technical report, arXiv 2412.19437) and
// DualPipeV, its half. Both follow one list of phases; they differ in where the second direction
// lies: another copy of the model, or the way back of a V.

#include <algorithm>
#include <array>
#include <deque>

#include "schedule/pipeline_common.h"

namespace trainctl::schedule {
namespace {

// One direction as seen from a rank. Direction 0 is the one whose micro-batches reach it first.
struct Direction {
  int stage = 0;
  int next_forward = 0;  // micro-batch
  int next_backward = 0;
};

class DualRank {
 public:
  DualRank(std::vector<PipelineAction>& actions, Direction first, Direction second)
      : actions_(actions), directions_{first, second} {}

  void Forward(int direction, bool joined = false) {
    Direction& d = directions_[static_cast<size_t>(direction)];
    actions_.push_back({PipelineOp::kForward, joined, d.stage, d.next_forward++});
  }
  void Backward(int direction) {
    Direction& d = directions_[static_cast<size_t>(direction)];
    actions_.push_back({PipelineOp::kBackward, false, d.stage, d.next_backward++});
  }
  void InputBackward(int direction) {
    Direction& d = directions_[static_cast<size_t>(direction)];
    actions_.push_back({PipelineOp::kBackwardInput, false, d.stage, d.next_backward++});
    waiting_.push_back(actions_.back());
  }
  void WeightBackward() {
    const PipelineAction input = waiting_.front();
    waiting_.pop_front();
    actions_.push_back({PipelineOp::kBackwardWeight, false, input.stage, input.micro_batch});
  }
  void ForwardWithBackward(int forward, int backward) {
    Forward(forward, true);
    Backward(backward);
  }

 private:
  std::vector<PipelineAction>& actions_;
  std::array<Direction, 2> directions_;
  std::deque<PipelineAction> waiting_;  // weight backwards
};

// `depth` is the rank's distance from the end where direction 0 enters, `num_deep` how many depths
// there are; the deepest ranks are those where the directions meet. `num_each` micro-batches go in
// each direction.
void BuildDualRank(int depth, int num_deep, int num_each, DualRank& rank) {
  const int to_middle = num_deep - 1 - depth;
  const bool middle = to_middle == 0;
  for (int i = 0; i < 2 * to_middle; ++i) rank.Forward(0);
  for (int i = 0; i < depth + 1; ++i) {
    rank.Forward(0);
    rank.Forward(1);
  }
  for (int i = 0; i < to_middle; ++i) {
    rank.InputBackward(1);
    rank.WeightBackward();
    rank.Forward(1);
  }
  const int num_steady = num_each - 2 * num_deep + depth + 1;
  for (int i = 0; i < num_steady; ++i) {
    // Where the directions meet, the first pair is not joined: its backward need not wait.
    rank.Forward(0, !(middle && i == 0));
    rank.Backward(1);
    rank.ForwardWithBackward(1, 0);
  }
  for (int i = 0; i < to_middle; ++i) {
    rank.Backward(1);
    rank.ForwardWithBackward(1, 0);
  }
  // The second half of these splits off its weight backwards, which fill what follows.
  for (int i = 0; i < 2 * (depth + 1); ++i) {
    const int direction = i % 2 == 0 ? 1 : 0;
    if (i < depth + 1) {
      rank.Backward(direction);
    } else {
      rank.InputBackward(direction);
    }
  }
  for (int i = 0; i < to_middle; ++i) {
    rank.WeightBackward();
    rank.InputBackward(0);
  }
  for (int i = 0; i < depth + 1; ++i) rank.WeightBackward();
}

void BuildDualPipe(PipelineSchedule& schedule) {
  const int p = schedule.placement.num_ranks;
  const int half = schedule.placement.num_micro_batches / 2;
  for (int r = 0; r < p; ++r) {
    // Copy 0 runs from rank 0 to the last one with the first half of the micro-batches, copy 1 back.
    const Direction down = {r, 0, 0};
    const Direction up = {p - 1 - r, half, half};
    const bool second_half = r >= p / 2;
    DualRank rank(schedule.actions[static_cast<size_t>(r)], second_half ? up : down, second_half ? down : up);
    BuildDualRank(std::min(r, p - 1 - r), p / 2, half, rank);
  }
}

void BuildDualPipeV(PipelineSchedule& schedule) {
  const int p = schedule.placement.num_ranks;
  for (int r = 0; r < p; ++r) {
    DualRank rank(schedule.actions[static_cast<size_t>(r)], {r, 0, 0}, {2 * p - 1 - r, 0, 0});
    BuildDualRank(r, p, schedule.placement.num_micro_batches, rank);
  }
}

// The first rank of a direction holds one more than there are ranks (deepseek-ai/DualPipe, README).
int64_t LeastDualPipe(const PipelineShape& shape) { return shape.ranks + 1; }
int64_t LeastDualPipeV(const PipelineShape& shape) { return 2 * shape.ranks + 1; }

int64_t MostJoinedDualPipe(const PipelineShape& shape) { return shape.num_micro_batches - shape.ranks - 1; }
int64_t MostJoinedDualPipeV(const PipelineShape& shape) {
  return 2 * shape.num_micro_batches - 2 * shape.ranks - 1;
}

}  // namespace

constinit const PipelineOrder kDualPipeOrder = {
    .name = "dualpipe",
    .limits = {.even_ranks = true, .even_micro_batches = true, .micro_batches_per_rank = 2},
    .layout = StageLayout::kBothEnds,
    .splits_backward = true,
    .build = BuildDualPipe,
    .least_in_flight = LeastDualPipe,
    .most_joined = MostJoinedDualPipe,
};

constinit const PipelineOrder kDualPipeVOrder = {
    .name = "dualpipev",
    .limits = {.min_virtual_stages = 2, .max_virtual_stages = 2, .micro_batches_per_rank = 2},
    .layout = StageLayout::kV,
    .splits_backward = true,
    .build = BuildDualPipeV,
    .least_in_flight = LeastDualPipeV,
    .most_joined = MostJoinedDualPipeV,
};

}  // namespace trainctl::schedule
