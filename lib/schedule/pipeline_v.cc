// Schedules on a V: rank r holds stage r on the way down and stage 2p - 1 - r on the way back, so
// that the first and the last stage share a rank and memory is even over the ranks.
// ZBV: arXiv 2401.10241, section 6. V-Half and V-Min: Qi et al., "Pipeline Parallelism with
// Controllable Memory" (arXiv 2405.15362), which builds a schedule by repeating one micro-batch's
// block of passes at an interval, whose length divided by the interval is the memory.

#include <algorithm>
#include <array>

#include "schedule/pipeline_common.h"

namespace trainctl::schedule {
namespace {

// The passes of one micro-batch on one rank that other ranks wait for, in dependency order.
enum BlockPass { kDownForward, kUpForward, kDownInput, kUpInput };
constexpr int kNumBlockPasses = 4;
// One micro-batch costs a rank six units: three passes of two stages.
constexpr int kInterval = 6;

using Block = std::array<int, kNumBlockPasses>;  // start of each pass on one rank, micro-batch 0

PipelineAction ActionOf(int pass, int rank, int num_ranks, int micro_batch) {
  // Backward enters at the last stage, which lies on the way back.
  const bool second_stage = pass == kUpForward || pass == kDownInput;
  const bool forward = pass == kDownForward || pass == kUpForward;
  return {forward ? PipelineOp::kForward : PipelineOp::kBackwardInput, false,
          second_stage ? 2 * num_ranks - 1 - rank : rank, micro_batch};
}

// The order in which the repeated block runs; starts of one rank differ modulo the interval.
void RepeatBlock(int rank, int num_ranks, int num_micro_batches, const Block& starts,
                 std::vector<PipelineAction>& actions) {
  std::array<int, kNumBlockPasses> by_phase = {0, 1, 2, 3};
  std::sort(by_phase.begin(), by_phase.end(), [&](int a, int b) {
    return starts[static_cast<size_t>(a)] % kInterval < starts[static_cast<size_t>(b)] % kInterval;
  });
  const int rounds = num_micro_batches + starts[kUpInput] / kInterval;
  for (int round = 0; round < rounds; ++round) {
    for (int pass : by_phase) {
      const int m = round - starts[static_cast<size_t>(pass)] / kInterval;
      if (m >= 0 && m < num_micro_batches) actions.push_back(ActionOf(pass, rank, num_ranks, m));
    }
  }
}

// A pass follows its predecessor by one unit on the way down and on the way back; where the number
// of ranks would make two passes of a rank collide, the backward starts two units later.
void BuildVMin(PipelineSchedule& schedule) {
  const int p = schedule.placement.num_ranks;
  const int shift = p % 3 == 0 ? 2 : 0;
  for (int r = 0; r < p; ++r) {
    const Block starts = {r, 2 * p - 1 - r, 2 * p + shift + r, 4 * p + shift - 1 - r};
    RepeatBlock(r, p, schedule.placement.num_micro_batches, starts, schedule.actions[static_cast<size_t>(r)]);
  }
  FillWithWeightBackwards(schedule, std::vector<int>(static_cast<size_t>(p), 2 * ((p + 4) / 3)));
}

int64_t LeastVMin(const PipelineShape& shape) {
  return std::min(shape.num_micro_batches + 1, (2 * shape.ranks + 5) / 3);
}

// Two units on the way down, one on the way back, in both directions.
void BuildVHalf(PipelineSchedule& schedule) {
  const int p = schedule.placement.num_ranks;
  const int shift = p % 2 == 0 ? 3 : 0;
  for (int r = 0; r < p; ++r) {
    const Block starts = {2 * r, 3 * p - 2 - r, 3 * p - 1 + shift + 2 * r, 6 * p - 2 + shift - r};
    RepeatBlock(r, p, schedule.placement.num_micro_batches, starts, schedule.actions[static_cast<size_t>(r)]);
  }
  FillWithWeightBackwards(schedule, std::vector<int>(static_cast<size_t>(p), 2 * ((p + 2) / 2)));
}

int64_t LeastVHalf(const PipelineShape& shape) {
  return std::min(shape.num_micro_batches + 1, (shape.ranks + 2) / 2 * 2);
}

// Warm-up on the way down; then, as micro-batches come back, both ways in turns; then the second
// stages with their backward, and from the first gradient on all six passes in a circle. Written
// for at least 2p - 1 micro-batches; of fewer, those that are left out are not there.
void BuildZbv(PipelineSchedule& schedule) {
  const int p = schedule.placement.num_ranks;
  const int m = schedule.placement.num_micro_batches;
  const int full = std::max(m, 2 * p - 1);
  for (int r = 0; r < p; ++r) {
    std::vector<PipelineAction>& actions = schedule.actions[static_cast<size_t>(r)];
    std::array<int, kNumBlockPasses> count = {0, 0, 0, 0};
    const auto add = [&](int pass) {
      const int micro_batch = count[static_cast<size_t>(pass)]++;
      if (micro_batch < m) actions.push_back(ActionOf(pass, r, p, micro_batch));
    };
    for (int i = 0; i < 2 * (p - r) - 1; ++i) add(kDownForward);
    for (int i = 0; i < r; ++i) {
      add(kUpForward);
      add(kDownForward);
    }
    for (int i = 0; i < p - r; ++i) {
      add(kUpForward);
      add(kDownInput);
    }
    while (count[kUpForward] < full) {
      if (count[kDownForward] < full) add(kDownForward);
      add(kUpInput);
      add(kUpForward);
      add(kDownInput);
    }
    while (count[kUpInput] < full) {
      add(kUpInput);
      if (count[kDownInput] < full) add(kDownInput);
    }
  }
  FillWithWeightBackwards(schedule, std::vector<int>(static_cast<size_t>(p), 2 * p));
}

// Activations of 1F1B (arXiv 2401.10241, section 6).
int64_t LeastZbv(const PipelineShape& shape) { return 2 * std::min(shape.num_micro_batches, shape.ranks); }

constexpr PipelineLimits kTwoStages = {.min_virtual_stages = 2, .max_virtual_stages = 2};

}  // namespace

constinit const PipelineOrder kZbvOrder = {
    .name = "zbv",
    .limits = kTwoStages,
    .layout = StageLayout::kV,
    .splits_backward = true,
    .build = BuildZbv,
    .least_in_flight = LeastZbv,
};

constinit const PipelineOrder kVHalfOrder = {
    .name = "v-half",
    .limits = kTwoStages,
    .layout = StageLayout::kV,
    .splits_backward = true,
    .build = BuildVHalf,
    .least_in_flight = LeastVHalf,
};

constinit const PipelineOrder kVMinOrder = {
    .name = "v-min",
    .limits = kTwoStages,
    .layout = StageLayout::kV,
    .splits_backward = true,
    .build = BuildVMin,
    .least_in_flight = LeastVMin,
};

}  // namespace trainctl::schedule
