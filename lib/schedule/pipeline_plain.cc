// Schedules whose backward is one pass: GPipe, 1F1B and their forms with several stages per rank.

#include <algorithm>

#include "schedule/pipeline_common.h"

namespace trainctl::schedule {

DepthFirstOrder::DepthFirstOrder(int num_ranks, int num_micro_batches, int num_chunks)
    : num_chunks_(num_chunks) {
  const int num_groups = std::max(1, num_micro_batches / num_ranks);
  const int base = num_micro_batches / num_groups;
  const int larger = num_micro_batches % num_groups;
  largest_group_ = base + (larger > 0 ? 1 : 0);
  forward_.reserve(static_cast<size_t>(num_micro_batches) * static_cast<size_t>(num_chunks));
  int first = 0;
  for (int group = 0; group < num_groups; ++group) {
    const int end = first + base + (group < larger ? 1 : 0);
    for (int chunk = 0; chunk < num_chunks; ++chunk) {
      for (int m = first; m < end; ++m) forward_.push_back({chunk, m});
    }
    first = end;
  }
}

namespace {

int64_t AllInFlight(const PipelineShape& shape, int64_t rank) {
  return shape.num_micro_batches * shape.virtual_stages;
}

// Lamy-Poirier, "Breadth-First Pipeline Parallelism" (arXiv 2211.05953): every micro-batch through
// one stage, then through the next; with one stage per rank it is GPipe (arXiv 1811.06965).
void BuildLoopedBreadthFirst(PipelineSchedule& schedule) {
  const PipelinePlacement& place = schedule.placement;
  for (int rank = 0; rank < place.num_ranks; ++rank) {
    std::vector<PipelineAction>& actions = schedule.actions[static_cast<size_t>(rank)];
    for (int stage = rank; stage < place.num_stages; stage += place.num_ranks) {
      for (int m = 0; m < place.num_micro_batches; ++m) {
        actions.push_back({PipelineOp::kForward, false, stage, m});
      }
    }
    for (int stage = place.num_stages - place.num_ranks + rank; stage >= 0; stage -= place.num_ranks) {
      for (int m = 0; m < place.num_micro_batches; ++m) {
        actions.push_back({PipelineOp::kBackward, false, stage, m});
      }
    }
  }
}

// One micro-batch less for each rank on (arXiv 2104.04473, section 2.2).
int64_t InFlight1F1B(const PipelineShape& shape, int64_t rank) {
  return std::min(shape.num_micro_batches, shape.ranks - rank);
}

// PipeDream-Flush (arXiv 2006.09503), as in Megatron-LM (arXiv 2104.04473, figure 4 top).
void Build1F1B(PipelineSchedule& schedule) {
  const PipelinePlacement& place = schedule.placement;
  for (int rank = 0; rank < place.num_ranks; ++rank) {
    std::vector<PipelineAction>& actions = schedule.actions[static_cast<size_t>(rank)];
    const int warm_up = std::min(place.num_ranks - 1 - rank, place.num_micro_batches);
    for (int m = 0; m < place.num_micro_batches + warm_up; ++m) {
      if (m < place.num_micro_batches) actions.push_back({PipelineOp::kForward, false, rank, m});
      if (m >= warm_up) actions.push_back({PipelineOp::kBackward, false, rank, m - warm_up});
    }
  }
}

// Megatron-LM's warm-up: two stages less for each rank on, and all stages but the last of as many
// micro-batches as there are ranks.
int64_t InFlightInterleaved(const PipelineShape& shape, int64_t rank) {
  return std::min(shape.num_micro_batches * shape.virtual_stages,
                  (shape.ranks - rank - 1) * 2 + (shape.virtual_stages - 1) * shape.ranks + 1);
}

// Megatron-LM (arXiv 2104.04473, figure 4 bottom). The warm-up covers the largest group in all
// chunks but the last, and two forwards for each rank that follows.
void BuildInterleaved1F1B(PipelineSchedule& schedule) {
  const PipelinePlacement& place = schedule.placement;
  const int num_chunks = place.num_stages / place.num_ranks;
  const DepthFirstOrder order(place.num_ranks, place.num_micro_batches, num_chunks);
  for (int rank = 0; rank < place.num_ranks; ++rank) {
    std::vector<PipelineAction>& actions = schedule.actions[static_cast<size_t>(rank)];
    const int warm_up = std::min((num_chunks - 1) * order.largest_group() + 2 * (place.num_ranks - 1 - rank),
                                 order.num_passes());
    for (int i = 0; i < order.num_passes() + warm_up; ++i) {
      if (i < order.num_passes()) {
        const DepthFirstOrder::Place at = order.Forward(i);
        actions.push_back({PipelineOp::kForward, false, at.chunk * place.num_ranks + rank, at.micro_batch});
      }
      if (i >= warm_up) {
        const DepthFirstOrder::Place at = order.Backward(i - warm_up);
        actions.push_back({PipelineOp::kBackward, false, at.chunk * place.num_ranks + rank, at.micro_batch});
      }
    }
  }
}

constexpr PipelineLimits kSeveralStages = {.min_virtual_stages = 2, .max_virtual_stages = kAnyNumberOfStages};

}  // namespace

// Megatron-LM sends between the passes under plain 1F1B and GPipe, beside them under its other orders.
constinit const PipelineOrder kGPipeOrder = {
    .name = "gpipe",
    .forwards_first = true,
    .sends_between_passes = true,
    .build = BuildLoopedBreadthFirst,
    .in_flight = AllInFlight,
};

constinit const PipelineOrder k1F1BOrder = {
    .name = "1f1b",
    .sends_between_passes = true,
    .build = Build1F1B,
    .in_flight = InFlight1F1B,
};

constinit const PipelineOrder kInterleaved1F1BOrder = {
    .name = "interleaved-1f1b",
    .limits = kSeveralStages,
    .with_one_stage = "1f1b",
    .build = BuildInterleaved1F1B,
    .in_flight = InFlightInterleaved,
};

constinit const PipelineOrder kLoopedBreadthFirstOrder = {
    .name = "looped-bfs",
    .limits = kSeveralStages,
    .with_one_stage = "gpipe",
    .forwards_first = true,
    .build = BuildLoopedBreadthFirst,
    .in_flight = AllInFlight,
};

}  // namespace trainctl::schedule
