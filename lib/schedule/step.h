// A step as data: everything that each rank does from one update of the parameters to the next. No other
// component decides when something happens: the simulator estimates the time of the step, the executor runs
// it, the checker proves it correct, and its hash identifies it. Pure functions (build_step.h) build it from
// a model, a layout and a pipeline schedule. Does not use LibTorch.
//
// A step has one program per class of ranks. A class is the ranks with the same pp coordinate, which all run
// the same program. A program is a list of instructions, each on a stream:
//
// - Instructions on one stream run in list order. Across streams, only the waits of an instruction order it.
// - An instruction waits until the instructions that it names have completed. These are earlier in the list.
// - Messages from one rank to another arrive in the order in which they were sent.
// - All ranks of a group issue its collectives in the same order.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/dtype_id.h"
#include "layout/ledger.h"
#include "schedule/pipeline.h"

namespace trainctl::model {
struct Graph;
}

namespace trainctl::schedule {

enum class Op : uint8_t {
  kGather,           // all-gather the parameters of `bucket` over dp_shard into `slot` (ZeRO-3)
  kForward,          // forward of `block`; keeps its saved activations, or only its input
  kLoss,             // loss only, on the head block of an evaluation
  kLossAndGradient,  // loss and gradients of input and weights in one pass, on the head block
  kRecompute,        // run the forward of `block` again from its input, up to the last saved activation
  kBackward,         // input and weight gradients of `block`
  kBackwardInput,    // input gradient of `block`, and gradients of its norms and biases; no embedding
  kBackwardWeight,   // the other weight gradients of `block`, after kBackwardInput
  kSend,             // send the value that it reads to the rank of class `peer` on the same pipeline
  kReceive,          // receive the value that it writes from the rank of class `peer` on the same pipeline
  kReduceGradient,   // reduce-scatter the gradient of `bucket`; the last one also sums over dp_replicate
  kSumCopies,        // all-reduce this shard of `bucket`, or parts of it, over its copies on pp and tp
  kCountLossTokens,  // sum the step's loss tokens over all data-parallel ranks; scales all gradients
  kReduceLoss,       // sum the step's loss over all data-parallel ranks and pp coordinates
  kGradNorm,         // global gradient norm; identical on all ranks, so they agree on whether it is finite
  kOptimizerStep,    // clip the gradient of `bucket` and update its parameters
  kGatherUpdated,    // all-gather the updated parameters of `bucket` over dp_shard in place (ZeRO-1 and 2)
};
inline constexpr int kNumOps = 17;
absl::string_view OpName(Op op);  // "loss and gradient"
// Whether the instruction runs a block: kForward to kBackwardWeight.
bool RunsBlock(Op op);
// Whether the instruction belongs on the compute stream. It may communicate there too. All other instructions
// only communicate.
bool IsCompute(Op op);

enum class Category : uint8_t { kParameters, kGradients, kOptimizer, kActivations, kBuffers };
inline constexpr int kNumCategories = 5;
absl::string_view CategoryName(Category category);

enum class ValueKind : uint8_t {
  // Persistent values.
  kParameters,
  kParameterShards,
  kMasterParameters,
  kGradients,
  kOptimizerState,  // Value::micro_batch is the index in Optimizer::states
  kCheckpointCopy,
  kRotaryTables,
  kReceiveBuffer,
  kTokens,
  kWorkspace,
  kParameterSlot,  // Value::micro_batch is the slot
  kGradientSlot,   // Value::micro_batch is the slot
  // Values of one block and micro-batch.
  kHidden,          // input of the block
  kHiddenGradient,  // gradient of that input
  kSaved,           // activations that the forward (or recompute) saves for the backward
  kQueued,          // values that the input backward keeps for the weight backward
};
inline constexpr int kNumValueKinds = 16;

// A piece of storage with a lifetime. Persistent values exist for the whole run.
struct Value {
  ValueKind kind = ValueKind::kHidden;
  Category category = Category::kActivations;
  bool persistent = false;
  int block = -1;
  int micro_batch = -1;
  int64_t bytes = 0;
};
absl::string_view ValueKindName(ValueKind kind);  // "gradient of hidden"
std::string NameOf(const Value& value);           // "gradient of hidden 3/1": block 3, micro-batch 1

// A fixed buffer for the gathered parameters of a bucket (Types::compute), or for its gradient before it is
// reduced (Types::gradient).
struct Slot {
  int64_t numel = 0;  // elements: the size of the largest padded bucket that it can hold
  int value = -1;     // the persistent value that is its storage
};

// The streams that every program has. Each further stream carries the messages to or from one other class.
inline constexpr int kComputeStream = 0;
inline constexpr int kGatherStream = 1;
inline constexpr int kReduceStream = 2;
inline constexpr int kNumDataStreams = 3;
struct Stream {
  std::string name;  // "send to 3"
  int peer = -1;     // the other class, or -1 if the stream carries no messages
  bool sends = false;
};

// A communicator: ranks that differ only in their coordinate on `axis`. One stream issues all its
// collectives.
struct Group {
  layout::Axis axis = layout::Axis::kDpShard;
  int stream = kComputeStream;
  std::vector<int> classes;  // with kPp, the classes that take part; otherwise empty, one group per class
  int copies = 0;            // with kTp, number of neighbours (Ledger::GradientCopies); 0 for the whole axis
  bool operator==(const Group&) const = default;
};
// Returns a name that is unique within a step, such as "dp_shard of the reduce stream".
std::string NameOf(const Group& group);

// The element types of a step. Optimizer state has its own types (optim::StateKind).
struct Types {
  DType compute = DType::kF32;   // activations, and the parameters that blocks read
  DType master = DType::kF32;    // the parameters that the optimizer updates
  DType gradient = DType::kF32;  // accumulated gradients of parameters
  DType sum = DType::kF32;       // gradients during communication
  bool operator==(const Types&) const = default;

  // The types with which `trainctl verify` checks the gradients of a layout. CPU only.
  static constexpr Types AllDouble() { return {DType::kF64, DType::kF64, DType::kF64, DType::kF64}; }
};

using Ids = absl::InlinedVector<int, 4>;

// How an instruction writes the gradient of one bucket of its block.
struct GradientWrite {
  int slot = -1;  // a gradient slot, or -1 for the persistent gradients
  // Whether to add to the gradient. False for the first write, which overwrites it. `accumulate` is for
  // gradients computed with the input gradient (norms, biases, embedding), and `accumulate_weights` for the
  // others.
  bool accumulate = false;
  bool accumulate_weights = false;
  bool operator==(const GradientWrite&) const = default;
};

struct Instruction {
  Op op = Op::kForward;
  int stream = kComputeStream;
  int block = -1;
  int bucket = -1;
  int micro_batch = -1;
  int slot = -1;        // kGather: parameter slot; kReduceGradient: gradient slot, or -1 if persistent
  int peer = -1;        // kSend and kReceive: the other class
  bool keep = true;     // kForward: whether to keep the saved activations, or only the input
  bool first = false;   // kReduceGradient: whether to overwrite the shard instead of adding to it
  bool joined = false;  // kForward: whether it runs together with the next compute instruction, a backward
  Ids waits;            // earlier instructions, on this stream or others, that must have completed
  Ids parameter_slots;  // per entry of ledger.buckets_of_block(block), its slot; -1 if it reads no slot
  absl::InlinedVector<GradientWrite, 2> gradients;  // per entry of the same list, if it writes gradients
  Ids groups;                                       // indices in Step::groups, in the order of use
  Ids reads;                                        // values
  Ids writes;                                       // values that exist from the end of this instruction
  Ids frees;                                        // values that no longer exist at its end
  int64_t peak_extra_bytes = 0;                     // peak memory while it runs, above that before it
};

struct Program {
  int num_micro_batches = 1;
  std::vector<Stream> streams;
  std::vector<Value> values;
  std::vector<Slot> parameter_slots;
  std::vector<Slot> gradient_slots;
  std::vector<Instruction> instructions;
  int64_t receive_buffer_bytes = 0;  // size of the buffer into which collectives receive before they sum

  void Clear();  // makes it empty, but keeps the allocated capacity
};
// Returns the number of messages that the executor can have in flight on one rank. Each stream moves one
// message at a time, and there is one stream for each direction to each other class.
int NumMessageStreams(const Program& program);

struct Step {
  // The blocks that the instructions run. Null if the step has only the passes of a schedule (ExpandOrder).
  std::shared_ptr<const model::Graph> graph;
  std::string order;      // name of the schedule, such as "1f1b" or "data parallel"
  std::string optimizer;  // name of the optimizer; empty if the step has no update
  int zero_stage = 0;
  Types types;
  bool has_head = true;    // whether the last block computes the loss
  bool trains = true;      // false for an evaluation, which has only forwards
  bool has_update = true;  // whether gradients are reduced and applied, in addition to passes and messages
  int num_micro_batches = 1;
  PipelinePlacement placement;   // its ranks are the classes
  std::vector<int> stage_begin;  // first block of each stage, then the number of blocks
  std::vector<Group> groups;
  std::vector<Program> programs;  // [class], which is the pp coordinate

  int num_blocks() const { return stage_begin.back(); }
  // The head block, or num_blocks() if there is none.
  int head() const { return has_head ? num_blocks() - 1 : num_blocks(); }
  // The stage of a block: -1 before the first block, and the number of stages after the last.
  int StageOf(int block) const;
  // The class that runs a block for a micro-batch.
  int ClassOf(int block, int micro_batch) const { return placement.RankOf(StageOf(block), micro_batch); }
};

// The order in which a rank starts its messages. It determines how many are in flight at once. A message is
// in flight on a rank from its start there until it completes. It completes on both ranks once both have
// started it, so a rank that starts late makes its peer wait (rendezvous).
//
// With either order, the computations of a rank run one after the other. An exchange (message, gather or
// reduction) is launched by the thread that computes. It therefore starts only after the instructions that it
// waits for and after all computations before it in the list.
enum class MessageOrder : uint8_t {
  // Each stream moves one message at a time, in list order, and no stream waits for another. The executor
  // guarantees this order, both between hosts and between devices.
  kStreams,
  // A rank processes its list in order, regardless of streams. It waits for each computation to complete, but
  // starts an exchange without waiting for its completion. While `max_in_flight` messages are in flight, it
  // does not start another one.
  kList,
};

// The properties of a back end's message transport that determine whether ranks can deadlock.
struct Transport {
  MessageOrder order = MessageOrder::kStreams;
  int max_in_flight = 0;       // messages in flight per rank, or 0 for no limit; only with kList
  bool buffers_sends = false;  // whether a send completes when it starts, regardless of the receiver
};

struct Proof {
  int64_t num_instructions = 0;  // number of instructions in all programs
  // The smallest Transport::max_in_flight with which every rank finishes in kList order; 1 if there are no
  // messages, and 0 if no number is enough. A value of 1 means that a back end may complete each message
  // before it starts the next.
  int min_messages_in_flight = 0;
};

// Proves that a step is correct, without trusting the builder. For the program of each class, it checks that
//
// - waits refer to earlier instructions and prevent every hazard: a slot is read only after its gather, and
//   is overwritten only after its last reader;
// - every value is written before it is read, and is freed once, after its last use;
// - no values except persistent ones remain at the end.
//
// For all programs together, it checks that
//
// - each block runs once forward and once backward (whole, or input then weights) for each micro-batch, on
//   the class that has its stage;
// - each receive gets the message that it expects;
// - all members of a group issue its collectives in the same order;
// - every rank finishes on `transport`.
//
// Returns an InternalError that names the class, the instruction and the reason. In case of a deadlock, it
// lists the instructions of the cycle with their class, stage and micro-batch.
absl::StatusOr<Proof> Check(const Step& step, const layout::Ledger& ledger, const Transport& transport = {});
// The same for a step without parameters (ExpandOrder in build_step.h).
absl::StatusOr<Proof> Check(const Step& step, const Transport& transport = {});

// Returns the maximum number of streams of one rank that can communicate with other ranks at the same time.
// Streams that exchange only scalars do not count, because scalars are exchanged between hosts.
int NumExchangeStreams(const Step& step);

// Returns a description for messages, such as "forward block 3 micro-batch 1".
std::string Describe(const Instruction& instruction);

}  // namespace trainctl::schedule
