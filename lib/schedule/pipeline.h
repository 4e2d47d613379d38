// Pipeline-parallel schedules as data: which rank runs which pass of which stage and micro-batch,
// in which order. Published schedules (pipeline_orders.h) are rebuilt here from their definitions;
// docs/design/schedules.md draws them and gives their closed forms. Pure functions, thread safe, no LibTorch.
//
//   ASSIGN(PipelineSchedule order, BuildPipeline(PipelineKind::k1F1B, {.ranks = 4, .num_micro_batches = 8}));
//   ASSIGN(Step step, BuildStep(spec, ledger, options, order, stages));   // build_step.h
//   RETURN_IF_ERROR(Check(step, ledger).status());                       // step.h
//
// Words: a *stage* is a chunk of consecutive blocks; a model has ranks * virtual_stages of them,
// numbered from the input. A *pass* is one of forward, backward, input backward, weight backward of
// one stage and one micro-batch. A DualPipe holds two *copies* of the model that run in opposite
// directions; every other schedule holds one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "schedule/pipeline_orders.h"

namespace trainctl::schedule {

// UsageError lists the names.
absl::StatusOr<PipelineKind> ParsePipelineKind(absl::string_view name);
std::vector<std::string> PipelineKindNames();

// UsageError says what is wrong with the shape and which would do.
absl::Status CheckPipelineShape(PipelineKind kind, const PipelineShape& shape);

enum class PipelineOp : uint8_t {
  kForward,         // F
  kBackward,        // B: gradients of the input and of the weights
  kBackwardInput,   // I: gradient of the input alone
  kBackwardWeight,  // W: gradients of the weights, after I
};
inline constexpr int kNumPipelineOps = 4;
absl::string_view PipelineOpName(PipelineOp op);  // "input backward"
char PipelinePassLetter(PipelineOp op);           // F, B, I, W

struct PipelineAction {
  PipelineOp op = PipelineOp::kForward;
  bool joined = false;  // a forward that overlaps with the next action, a backward of another micro-batch
  int stage = 0;
  int micro_batch = 0;
  bool operator==(const PipelineAction&) const = default;
};

// Where the stages lie. Copy c of the model sees the c-th part of the micro-batches.
struct PipelinePlacement {
  int num_ranks = 0;
  int num_stages = 0;  // of the model, ranks * virtual_stages
  int num_micro_batches = 0;
  int num_copies = 1;
  std::vector<int> stage_ranks;  // [copy * num_stages + stage] -> rank

  int CopyOf(int micro_batch) const {
    return num_copies == 1 ? 0 : static_cast<int>(int64_t{micro_batch} * num_copies / num_micro_batches);
  }
  int HolderOf(int copy, int stage) const {
    return stage_ranks[static_cast<size_t>(copy) * static_cast<size_t>(num_stages) +
                       static_cast<size_t>(stage)];
  }
  int RankOf(int stage, int micro_batch) const { return HolderOf(CopyOf(micro_batch), stage); }
  // Stages that `rank` holds the weights of, ascending, over all copies.
  std::vector<int> StagesOf(int rank) const;
  bool operator==(const PipelinePlacement&) const = default;
};

struct PipelineSchedule {
  std::string name;  // of the kind, or of the file
  PipelinePlacement placement;
  std::vector<std::vector<PipelineAction>> actions;  // by rank, in order
};

// The schedule of one step. UsageError as CheckPipelineShape.
absl::StatusOr<PipelineSchedule> BuildPipeline(PipelineKind kind, const PipelineShape& shape);
// Where its stages lie alone.
absl::StatusOr<PipelinePlacement> PlacePipeline(PipelineKind kind, const PipelineShape& shape);

// By rank: passes held at once, from the forward to the last backward of a stage and micro-batch.
std::vector<int> PeaksInFlight(const PipelineSchedule& schedule);

// "forward of stage 3, micro-batch 1"
std::string DescribePass(PipelineOp op, int stage, int micro_batch);

}  // namespace trainctl::schedule
