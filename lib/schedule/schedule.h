// A schedule: the instructions of one optimizer step, as data. The simulator prices it, the
// executor runs it, the checker proves it; nobody else decides what happens when. Pure functions
// build it from (model, layout). No LibTorch.
//
// Order: within a stream, list order; across streams, only the waits. An instruction waits for the
// completion of those it names. All ranks of a group issue its collectives in one order.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "layout/layout.h"
#include "layout/ledger.h"
#include "model/segment.h"
#include "optim/optimizer.h"

namespace trainctl::schedule {

enum class Op : uint8_t {
  kGather,           // all-gather `bucket` into `slot` (dp_shard)
  kForward,          // `block`, `micro_batch`: keeps what its backward needs (or only its input)
  kLoss,             // head block, evaluation: loss alone
  kLossAndGradient,  // head block: loss and gradient of its input, in one pass
  kRecompute,        // forward again from the kept input, keeping what backward needs
  kBackward,         // input and weight gradients of `block`
  kReduceGradient,   // sum the gradient of `bucket` over the data axes into the optimizer's part
  kCountLossTokens,  // global number of loss tokens of the step; seeds every backward
  kReduceLoss,       // global loss of the step
  kGradNorm,         // global gradient norm, finite or not: decided identically on all ranks
  kOptimizerStep,    // clip and update `bucket`
  kGatherUpdated,    // all-gather updated `bucket` in place (stages 1 and 2)
};
absl::string_view OpName(Op op);

enum class StreamId : uint8_t { kCompute, kGather, kReduce };
inline constexpr int kNumStreams = 3;
absl::string_view StreamName(StreamId stream);

enum class Category : uint8_t { kParameters, kGradients, kOptimizer, kActivations, kBuffers };
inline constexpr int kNumCategories = 5;
absl::string_view CategoryName(Category category);

// Storage with a lifetime. Persistent values live through the whole run.
struct Value {
  std::string name;
  Category category = Category::kActivations;
  int64_t bytes = 0;
  bool persistent = false;
};

// Gathered parameters (compute dtype) and gradients under way (fp32) live in fixed slots.
struct Slot {
  int64_t numel = 0;  // elements, the largest padded bucket that it ever holds
  int value = -1;
};

struct Instruction {
  Op op = Op::kForward;
  StreamId stream = StreamId::kCompute;
  int block = -1;
  int bucket = -1;
  int micro_batch = -1;
  int slot = -1;           // kGather: parameter slot; kReduceGradient: gradient slot (-1: persistent)
  bool keep = true;        // kForward: keep for backward what the segment saves (false: the input only)
  bool first = false;      // kReduceGradient: overwrite the shard instead of adding to it
  bool last = false;       // kReduceGradient: the step's last for this bucket: sum over dp_replicate too
  std::vector<int> waits;  // instruction indices, on other streams or earlier on this one
  std::vector<int>
      parameter_slots;  // slot per entry of ledger.buckets_of_block(block); -1: persistent parameters
  std::vector<int> gradient_slots;  // likewise, for kLossAndGradient and kBackward
  std::vector<bool> accumulate;     // likewise: false = the first write, which overwrites
  std::vector<int> reads;           // values
  std::vector<int> writes;          // values that exist from this instruction's end on
  std::vector<int> frees;           // values that are gone at its end
  int64_t peak_extra_bytes = 0;     // while it runs, above what lived before it
};

struct Schedule {
  int zero_stage = 0;
  int num_micro_batches = 1;
  std::vector<Value> values;
  std::vector<Slot> parameter_slots;
  std::vector<Slot> gradient_slots;
  std::vector<Instruction> instructions;
  int64_t receive_buffer_bytes = 0;  // what collectives receive into before they sum
};

// What a step is built from besides the model and the layout.
struct StepSetting {
  int64_t seq_len = 0;  // tokens
  DType compute_dtype = DType::kF32;
  bool prefetch = true;          // gather the next block while this one computes; two slots a kind
  bool checkpoint_copy = false;  // room for a copy of the optimizer's part, which is written during training
  // The memory is a device's: its library sums in its own buffers, checkpoints are copied to the host, and
  // the step's tokens are copied from there.
  bool on_device = false;
  int64_t threads = 1;  // of one worker on a CPU, whose kernels need memory for each; 1 on a device
  const optim::Optimizer* optimizer = &optim::kAdamW;
  bool operator==(const StepSetting&) const = default;
};

struct BuildOptions {
  model::MicroBatchShape shape;
  int num_micro_batches = 1;
  DType compute_dtype = DType::kF32;
  layout::Recompute recompute = layout::Recompute::kNone;
  bool prefetch = true;
  int64_t threads = 1;
  bool checkpoint_copy = false;
  bool on_device = false;
  // Of the whole step, where num_micro_batches is a part that stands for it: a device holds the tokens of
  // all. 0: as num_micro_batches.
  int64_t micro_batches_of_step = 0;
  const optim::Optimizer* optimizer = &optim::kAdamW;
};

// The options of a layout's step, with at most `max_micro_batches`.
BuildOptions OptionsOf(const layout::Layout& layout, const StepSetting& setting,
                       int64_t max_micro_batches = std::numeric_limits<int>::max());

// Bytes that one piece of a collective moves at a time, per peer: it bounds the receive buffer.
inline constexpr int64_t kReducePieceBytes = int64_t{4} << 20;

// The schedule of every rank of a data-parallel layout (all ranks are of one class).
Schedule BuildDataParallel(const model::ModelSpec& spec, const layout::Ledger& ledger,
                           const BuildOptions& options);

// Evaluation: forward and loss of every micro-batch, in the slots of the training schedule.
Schedule BuildForwardOnly(const model::ModelSpec& spec, const layout::Ledger& ledger,
                          const BuildOptions& options);

// Proves a schedule: waits point backwards and reach every hazard (a slot is read only after its
// gather and rewritten only after its last reader), every value is written before it is read, freed
// once and after its last use, nothing but persistent values is left. InternalError names the
// instruction and the reason.
absl::Status Check(const Schedule& schedule, const layout::Ledger& ledger);

// "forward block 3 micro-batch 1"
std::string Describe(const Instruction& instruction);

}  // namespace trainctl::schedule
