// Pipeline-parallel schedules as data: the order in which each rank runs its passes. Published schedules
// (pipeline_orders.h) are built here from their definitions. docs/design/schedules.md has drawings and closed
// forms. Pure functions; thread-safe. Does not use LibTorch.
//
//   TRAINCTL_ASSIGN_OR_RETURN(const PipelineSchedule order,
//                             BuildPipeline(PipelineKind::k1F1B, {.ranks = 4, .num_micro_batches = 8}));
//   TRAINCTL_ASSIGN_OR_RETURN(const Step step,
//                             BuildStep(graph, ledger, options, order, stage_begin));  // build_step.h
//   TRAINCTL_RETURN_IF_ERROR(Check(step, ledger).status());                            // step.h
//
// Terms: a *stage* is a chunk of consecutive blocks. A model has ranks * virtual_stages stages, numbered from
// the input. A *pass* is a forward, backward, input backward or weight backward of one stage for one
// micro-batch. DualPipe holds two *copies* of the model, which run in opposite directions. Every other
// schedule holds one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "schedule/pipeline_orders.h"

namespace trainctl::schedule {

// Returns the kind with this name ("1f1b"), or a UsageError that lists all names.
absl::StatusOr<PipelineKind> ParsePipelineKind(absl::string_view name);
std::vector<std::string> PipelineKindNames();

// Returns UsageError if the schedule cannot be built for this shape. The message says why and, if
// possible, suggests a shape or schedule that works.
absl::Status CheckPipelineShape(PipelineKind kind, const PipelineShape& shape);

enum class PipelineOp : uint8_t {
  kForward,         // F
  kBackward,        // B: gradients of the input and of the weights
  kBackwardInput,   // I: gradient of the input only
  kBackwardWeight,  // W: gradients of the weights, after I
};
inline constexpr int kNumPipelineOps = 4;
absl::string_view PipelineOpName(PipelineOp op);  // "input backward"
char PipelinePassLetter(PipelineOp op);           // F, B, I or W

// One pass of a rank.
struct PipelineAction {
  PipelineOp op = PipelineOp::kForward;
  // Whether this is a forward that runs together with the next action, a backward of another stage or
  // micro-batch.
  bool joined = false;
  int stage = 0;
  int micro_batch = 0;
  bool operator==(const PipelineAction&) const = default;
};

// Assigns the stages to ranks. If there are two copies of the model, copy 0 processes the first half of the
// micro-batches, and copy 1 the second half.
struct PipelinePlacement {
  int num_ranks = 0;
  int num_stages = 0;  // stages of the model: ranks * virtual_stages
  int num_micro_batches = 0;
  int num_copies = 1;
  std::vector<int> stage_ranks;  // [copy * num_stages + stage], the rank

  // The copy of the model that processes a micro-batch.
  int CopyOf(int micro_batch) const {
    return num_copies == 1 ? 0 : static_cast<int>(int64_t{micro_batch} * num_copies / num_micro_batches);
  }
  // The rank that holds a stage of a copy.
  int HolderOf(int copy, int stage) const {
    return stage_ranks[static_cast<size_t>(copy) * static_cast<size_t>(num_stages) +
                       static_cast<size_t>(stage)];
  }
  // The rank that runs a stage for a micro-batch.
  int RankOf(int stage, int micro_batch) const { return HolderOf(CopyOf(micro_batch), stage); }
  // The stages whose weights `rank` holds, over all copies, in ascending order.
  std::vector<int> StagesOf(int rank) const;
  bool operator==(const PipelinePlacement&) const = default;
};

struct PipelineSchedule {
  std::string name;  // name of the PipelineKind or of the file
  PipelinePlacement placement;
  std::vector<std::vector<PipelineAction>> actions;  // [rank], in the order in which they run
};

// Builds the schedule of one step. Returns UsageError as CheckPipelineShape does.
absl::StatusOr<PipelineSchedule> BuildPipeline(PipelineKind kind, const PipelineShape& shape);
// Builds only the placement of that schedule. Returns the same errors.
absl::StatusOr<PipelinePlacement> PlacePipeline(PipelineKind kind, const PipelineShape& shape);

// Returns, for each rank, the maximum number of forward passes whose activations it holds at the same time. A
// pass holds them until the last backward of its stage and micro-batch, which is the weight backward if it is
// split.
std::vector<int> PeaksInFlight(const PipelineSchedule& schedule);

// "forward of stage 3, micro-batch 1"
std::string DescribePass(PipelineOp op, int stage, int micro_batch);

}  // namespace trainctl::schedule
