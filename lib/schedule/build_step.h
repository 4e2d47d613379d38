// Builds steps: turns a model, a layout and a pipeline schedule into the program of every class of ranks.
// Pure functions; thread-safe.
//
// A pipeline schedule (also called an order) lists the passes of each rank: a forward or backward of one
// stage for one micro-batch. The builder expands each pass into the instructions of its blocks, and adds the
// gathers, reductions, messages and storage that they need. Data parallelism is the schedule of one rank with
// one stage: forward, backward, forward, backward, and so on.
//
// Most callers use layout_step.h, which builds the ledger, graph, schedule and step of a layout.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "layout/layout.h"
#include "layout/ledger.h"
#include "model/graph.h"
#include "optim/optimizer.h"
#include "schedule/pipeline.h"
#include "schedule/step.h"

namespace trainctl::schedule {

// Settings of a step that are not part of the model or the layout.
struct StepSetting {
  int64_t seq_len = 0;  // tokens per sequence
  Types types;
  // Gather the next block's parameters while the current block computes. If a rank has several layers, they
  // then use two parameter slots (ZeRO-3) and two gradient slots (ZeRO-2 and 3) instead of one.
  bool prefetch = true;
  // Reserve memory for a copy of the master parameters and optimizer state, which a background save writes to
  // the checkpoint during training. Has no effect with `on_device`.
  bool checkpoint_copy = false;
  // Whether the memory is that of a device (GPU). The device's communication library sums in its own buffers,
  // checkpoints are copied to the host, and the step's tokens are copied to the device.
  bool on_device = false;
  int64_t workspace_bytes = 0;  // memory that the device's matrix library keeps as workspace
  int64_t threads = 1;          // CPU threads per worker, each of which needs kernel memory; 1 on a device
  const optim::Optimizer* optimizer = &optim::kAdamW;
  bool operator==(const StepSetting&) const = default;
};

struct BuildOptions {
  int64_t micro_batch = 1;  // sequences per micro-batch
  int num_micro_batches = 1;
  // Number of micro-batches of the whole step if this is a shortened step that stands in for it. A device
  // holds the tokens of the whole step. 0 means num_micro_batches.
  int64_t micro_batches_of_step = 0;
  layout::Recompute recompute = layout::Recompute::kNone;
  std::vector<int64_t> recomputed_layers;  // as Layout::recomputed_layers
  StepSetting setting;

  model::MicroBatchShape shape() const { return {micro_batch, setting.seq_len}; }
  // Returns the options of the operator tables (model::Segment) for the blocks of one tp coordinate. The
  // tables of coordinate 0 are the largest.
  model::SegmentOptions segment(const layout::Ledger& ledger, int tensor_index = 0) const {
    return {shape(),
            setting.types.compute,
            setting.threads,
            setting.on_device,
            {ledger.mesh().tp, tensor_index, ledger.sequence_parallel()},
            recompute == layout::Recompute::kSelective || recompute == layout::Recompute::kAttention,
            recompute == layout::Recompute::kAttention};
  }
};

// Returns how many of a stage's `num_layers` layers run their forward again before the backward (full
// recompute). They are the first layers of the stage.
int64_t NumRecomputed(const BuildOptions& options, size_t stage, int64_t num_layers);

// Returns the options of a layout's step, limited to `max_micro_batches` micro-batches.
BuildOptions OptionsOf(const layout::Layout& layout, const StepSetting& setting,
                       int64_t max_micro_batches = std::numeric_limits<int>::max());

// Returns the graph that a step with these options runs on tp coordinate 0, which has the largest tables. The
// ledger must have the model's inventory.
std::shared_ptr<const model::Graph> GraphOf(const model::Architecture& spec, const layout::Ledger& ledger,
                                            const BuildOptions& options);

// Builds the step of a layout without a pipeline. It has one class.
Step BuildStep(std::shared_ptr<const model::Graph> graph, const layout::Ledger& ledger,
               const BuildOptions& options);

// Builds the step of a layout with a pipeline. `stage_begin` is the first block of each stage of the
// schedule, followed by the number of blocks. Returns UsageError if a stage has no block or the schedule is
// for a different number of micro-batches than options.num_micro_batches. Returns BadDataError if the
// schedule cannot run, naming the rank and the pass, or if its placement is invalid.
absl::StatusOr<Step> BuildStep(std::shared_ptr<const model::Graph> graph, const layout::Ledger& ledger,
                               const BuildOptions& options, const PipelineSchedule& order,
                               std::vector<int> stage_begin);

// Returns the classes that run each block, in ascending order. Construct the ledger of such a step with them.
std::vector<std::vector<int>> OwnersOf(const PipelineSchedule& order, const std::vector<int>& stage_begin);

// Builds an evaluation: the forward and loss of every micro-batch. Uses the parameter slots of the training
// step.
Step BuildForwardOnly(std::shared_ptr<const model::Graph> graph, const layout::Ledger& ledger,
                      const BuildOptions& options);
// The same for a layout with a pipeline, running the forwards of its schedule. Returns the same errors as
// BuildStep.
absl::StatusOr<Step> BuildForwardOnly(std::shared_ptr<const model::Graph> graph, const layout::Ledger& ledger,
                                      const BuildOptions& options, const PipelineSchedule& order,
                                      std::vector<int> stage_begin);

// Builds a step of only a schedule's passes and messages, in order to time it, draw it, or check whether it
// can run. Each stage is one block, values have no bytes, and there are no parameters. Sends overlap with the
// passes, or, with `sends_on_compute`, run between them on the compute stream. Returns BadDataError as
// BuildStep does.
absl::StatusOr<Step> ExpandOrder(const PipelineSchedule& order, bool sends_on_compute = false);

// The same without keeping a step: calls `visit` with the program of each class in turn. `visit` may move the
// program out.
absl::Status ExpandOrderByClass(const PipelineSchedule& order, bool sends_on_compute,
                                absl::FunctionRef<void(int own_class, Program& program)> visit);

}  // namespace trainctl::schedule
