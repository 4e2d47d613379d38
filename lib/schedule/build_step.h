// Builders of steps: from (model, layout, order) to the programs of every class of ranks. Pure; thread safe.
//
// A pipeline order says in which order each rank passes micro-batches through its stages, forwards and
// backwards; here every pass becomes the instructions of its blocks, with the gathers, reductions, messages
// and storage that they need. Data parallelism is the order of one rank with one stage: forward, backward,
// and again.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "layout/layout.h"
#include "layout/ledger.h"
#include "model/segment.h"
#include "optim/optimizer.h"
#include "schedule/pipeline.h"
#include "schedule/step.h"

namespace trainctl::schedule {

// What a step is built from besides the model and the layout.
struct StepSetting {
  int64_t seq_len = 0;  // tokens
  Types types;
  bool prefetch = true;          // gather the next block while this one computes; two slots a kind
  bool checkpoint_copy = false;  // room for a copy of the optimizer's part, which is written during training
  // The memory is a device's: its library sums in its own buffers, checkpoints are copied to the host, and
  // the step's tokens are copied from there.
  bool on_device = false;
  int64_t workspace_bytes = 0;  // that a device's library keeps for products
  int64_t threads = 1;          // of one worker on a CPU, whose kernels need memory for each; 1 on a device
  const optim::Optimizer* optimizer = &optim::kAdamW;
  bool operator==(const StepSetting&) const = default;
};

struct BuildOptions {
  int64_t micro_batch = 1;  // sequences
  int num_micro_batches = 1;
  // Of the whole step, where num_micro_batches is a part that stands for it: a device holds the tokens of
  // all. 0: as num_micro_batches.
  int64_t micro_batches_of_step = 0;
  layout::Recompute recompute = layout::Recompute::kNone;
  std::vector<int64_t> recomputed_layers;  // as the layout's
  StepSetting setting;

  model::MicroBatchShape shape() const { return {micro_batch, setting.seq_len}; }
  // Of the tables that the blocks of a coordinate on tp are; those of the first are the largest.
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

// Layers of a stage of `num_layers` whose forward runs again: its first.
int64_t NumRecomputed(const BuildOptions& options, size_t stage, int64_t num_layers);

// The options of a layout's step, with at most `max_micro_batches`.
BuildOptions OptionsOf(const layout::Layout& layout, const StepSetting& setting,
                       int64_t max_micro_batches = std::numeric_limits<int>::max());

// The step of a data-parallel layout: one class.
Step BuildStep(const model::ModelSpec& spec, const layout::Ledger& ledger, const BuildOptions& options);

// The step of a layout with a pipeline. stage_begin: the first block of each stage of the order, then the
// number of blocks. BadDataError names the rank and the pass of an order that cannot run; UsageError: a stage
// without a block, or options.num_micro_batches that are not the order's.
absl::StatusOr<Step> BuildStep(const model::ModelSpec& spec, const layout::Ledger& ledger,
                               const BuildOptions& options, const PipelineSchedule& order,
                               std::vector<int> stage_begin);

// The classes that run each block: what the ledger of such a step is made with.
std::vector<std::vector<int>> OwnersOf(const PipelineSchedule& order, const std::vector<int>& stage_begin);

// Evaluation: forward and loss of every micro-batch, in the slots of the training step.
Step BuildForwardOnly(const model::ModelSpec& spec, const layout::Ledger& ledger,
                      const BuildOptions& options);
// With a pipeline: the forwards of its order. Errors as above.
absl::StatusOr<Step> BuildForwardOnly(const model::ModelSpec& spec, const layout::Ledger& ledger,
                                      const BuildOptions& options, const PipelineSchedule& order,
                                      std::vector<int> stage_begin);

// The passes and messages of an order alone: each stage is one block, values have no bytes, there are no
// parameters. To time an order, to draw it, or to see whether it can run. Sends go beside the passes, or
// between them on the compute stream. Errors as above.
absl::StatusOr<Step> ExpandOrder(const PipelineSchedule& order, bool sends_on_compute = false);

// The same for those who need each program once: `visit` is called with that of one class after another, and
// may take it.
absl::Status ExpandOrderByClass(const PipelineSchedule& order, bool sends_on_compute,
                                absl::FunctionRef<void(int own_class, Program& program)> visit);

}  // namespace trainctl::schedule
