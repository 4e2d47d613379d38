// A step: what every rank does between two updates of the parameters, as data. The simulator prices it, the
// executor runs it, the checker proves it, its hash names it; nobody else decides what happens when. Pure
// functions build it (build_step.h) from a model, a layout and the order of a pipeline. No LibTorch.
//
// A step has one program per class of ranks: ranks at the same place of the pipeline do the same. A program
// is a list of instructions on streams. Order: within a stream, list order; across streams, only the waits.
// An instruction waits for the completion of those it names, all earlier in the list. Messages from one rank
// to another arrive in the order in which they were sent. All ranks of a group issue its collectives in one
// order.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/dtype_id.h"
#include "layout/ledger.h"
#include "schedule/pipeline.h"

namespace trainctl::schedule {

enum class Op : uint8_t {
  kGather,           // all-gather `bucket` into `slot` (dp_shard)
  kForward,          // `block`, `micro_batch`: keeps what its backward needs (or only its input)
  kLoss,             // head block, evaluation: loss alone
  kLossAndGradient,  // head block: loss and gradient of its input, in one pass
  kRecompute,        // forward again from the kept input, up to the last value that backward needs
  kBackward,         // input and weight gradients of `block`
  kBackwardInput,    // input gradient of `block`, and the gradients of norms, biases and the embedding
  kBackwardWeight,   // the other weight gradients of `block`, after kBackwardInput
  kSend,             // the value that it reads to the same rank of class `peer`
  kReceive,          // the value that it writes from the same rank of class `peer`
  kReduceGradient,   // sum the gradient of `bucket` over the data axes into the optimizer's part
  kSumCopies,        // sum that part of a `bucket` over those who hold it, or some of it, as well
  kCountLossTokens,  // global number of loss tokens of the step; seeds every backward
  kReduceLoss,       // global loss of the step
  kGradNorm,         // global gradient norm, finite or not: decided identically on all ranks
  kOptimizerStep,    // clip and update `bucket`
  kGatherUpdated,    // all-gather updated `bucket` in place (stages 1 and 2)
};
inline constexpr int kNumOps = 17;
absl::string_view OpName(Op op);  // "loss and gradient"
// Runs a block: kForward to kBackwardWeight.
bool RunsBlock(Op op);
// Belongs on the compute stream; the others exchange something.
bool IsCompute(Op op);

enum class Category : uint8_t { kParameters, kGradients, kOptimizer, kActivations, kBuffers };
inline constexpr int kNumCategories = 5;
absl::string_view CategoryName(Category category);

enum class ValueKind : uint8_t {
  // persistent
  kParameters,
  kParameterShards,
  kMasterParameters,
  kGradients,
  kOptimizerState,  // micro_batch: which of its kinds
  kCheckpointCopy,
  kRotaryTables,
  kReceiveBuffer,
  kTokens,
  kWorkspace,
  kParameterSlot,  // micro_batch: the slot
  kGradientSlot,   // micro_batch: the slot
  // of a block and a micro-batch
  kHidden,          // input of the block
  kHiddenGradient,  // gradient of that input
  kSaved,           // by the forward for the backward
  kQueued,          // by the input gradient for the weight gradients
};
inline constexpr int kNumValueKinds = 16;

// Storage with a lifetime. Persistent values live through the whole run.
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

// Gathered parameters (compute dtype) and gradients under way (fp32) live in fixed slots.
struct Slot {
  int64_t numel = 0;  // elements, the largest padded bucket that it ever holds
  int value = -1;
};

// The streams that every program has; those after them carry messages to and from one class each.
inline constexpr int kComputeStream = 0;
inline constexpr int kGatherStream = 1;
inline constexpr int kReduceStream = 2;
inline constexpr int kNumDataStreams = 3;
struct Stream {
  std::string name;  // "send to 3"
  int peer = -1;     // class; -1: no messages
  bool sends = false;
};

// A communicator: the ranks that differ on `axis` only. One stream issues all of its collectives.
struct Group {
  layout::Axis axis = layout::Axis::kDpShard;
  int stream = kComputeStream;
  std::vector<int> classes;  // kPp: those that take part. Else empty: a class for itself
  int copies = 0;            // kTp: so many neighbours (Ledger::Copies); 0: the whole axis
  bool operator==(const Group&) const = default;
};
// What tells it from the other groups of a step: "dp_shard of the reduce stream".
std::string NameOf(const Group& group);

// The element types of a step's numbers. The optimizer's state has its own (optim::StateKind).
struct Types {
  DType compute = DType::kF32;   // activations, and parameters as blocks read them
  DType master = DType::kF32;    // parameters as they are updated
  DType gradient = DType::kF32;  // gradients of parameters: their accumulators
  DType sum = DType::kF32;       // the same on their way to other ranks
  bool operator==(const Types&) const = default;

  // What proves the rest: on the CPU.
  static constexpr Types AllDouble() { return {DType::kF64, DType::kF64, DType::kF64, DType::kF64}; }
};

using Ids = absl::InlinedVector<int, 4>;

// Where one bucket's gradient of a block goes.
struct GradientWrite {
  int slot = -1;  // -1: persistent gradients
  // False: the first write, which overwrites. Of what is formed with the input gradient, and of what is not.
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
  int slot = -1;        // kGather: parameter slot; kReduceGradient: gradient slot (-1: persistent)
  int peer = -1;        // kSend, kReceive: class
  bool keep = true;     // kForward: keep for backward what the segment saves (false: the input only)
  bool first = false;   // kReduceGradient: overwrite the shard instead of adding to it
  bool joined = false;  // kForward: runs together with the next compute instruction, a backward
  Ids waits;            // instruction indices, on other streams or earlier on this one
  Ids parameter_slots;  // slot per entry of ledger.buckets_of_block(block); -1: persistent parameters
  absl::InlinedVector<GradientWrite, 2> gradients;  // likewise, of what writes gradients
  Ids groups;                                       // of Step::groups, in this order
  Ids reads;                                        // values
  Ids writes;                                       // values that exist from this instruction's end on
  Ids frees;                                        // values that are gone at its end
  int64_t peak_extra_bytes = 0;                     // while it runs, above what lived before it
};

struct Program {
  int num_micro_batches = 1;
  std::vector<Stream> streams;
  std::vector<Value> values;
  std::vector<Slot> parameter_slots;
  std::vector<Slot> gradient_slots;
  std::vector<Instruction> instructions;
  int64_t receive_buffer_bytes = 0;  // what collectives receive into before they sum

  void Clear();  // as new; keeps its room
};
// The number of messages that the executor can have in flight: each stream moves one at a time, and each
// direction to each other class has its own stream.
int NumMessageStreams(const Program& program);

struct Step {
  std::string order;      // its name: "1f1b"; "data parallel"
  std::string optimizer;  // what kOptimizerStep does; empty: there is none
  int zero_stage = 0;
  Types types;
  bool has_head = true;    // the last block forms the loss
  bool trains = true;      // false: forwards alone
  bool has_update = true;  // gradients are reduced and applied; false: passes and messages alone
  int num_micro_batches = 1;
  PipelinePlacement placement;   // classes are its ranks
  std::vector<int> stage_begin;  // first block of each stage, then the number of blocks
  std::vector<Group> groups;
  std::vector<Program> programs;  // by class: the coordinate on pp

  int num_blocks() const { return stage_begin.back(); }
  int head() const { return has_head ? num_blocks() - 1 : num_blocks(); }
  int StageOf(int block) const;
  int ClassOf(int block, int micro_batch) const { return placement.RankOf(StageOf(block), micro_batch); }
};

// When a rank starts its messages, which decides how many of them are in flight at once. A message is in
// flight on a rank from its start there until it completes. It completes on both ranks when both have started
// it, so a rank that starts late keeps its peer waiting (rendezvous). In every order computations run one
// after the other, and an exchange (message, gather, reduction) starts after the instructions that it waits
// for and after the computations before it in the list, as the thread that computes launches it.
enum class MessageOrder : uint8_t {
  // Each stream moves one message at a time, in list order, and no stream waits for another. This is the
  // executor's promise, between hosts and between devices.
  kStreams,
  // A rank works through its list. It runs each computation to its end, and starts each exchange without
  // waiting for its end. Streams do not matter. With `max_in_flight` messages in flight it waits until one of
  // them completes before it starts the next.
  kList,
};

// How a back end moves messages, as far as it decides whether ranks wait for each other forever.
struct Transport {
  MessageOrder order = MessageOrder::kStreams;
  int max_in_flight = 0;       // messages per rank; 0: unlimited. kList only
  bool buffers_sends = false;  // a send completes when it starts, whatever the receiver does
};

struct Proof {
  int64_t num_instructions = 0;
  // The least Transport::max_in_flight with which every rank finishes in kList order. A back end that
  // completes each message before it starts the next one has 1. 0: no number suffices. 1 if there are none.
  int min_messages_in_flight = 0;
};

// Proves all programs together, trusting nothing of how they were made. Of each: waits point backwards and
// reach every hazard (a slot is read only after its gather and rewritten only after its last reader); every
// value is written before it is read, freed once and after its last use; nothing but persistent values is
// left. Of all: each block of each micro-batch runs forward once and backward once (whole, or input then
// weights) where its stage lies; each receive gets the message that it names; the collectives of a group come
// in one order; every rank finishes on `transport`. InternalError names the class, the instruction and the
// reason; when ranks wait for each other, it names each instruction of the cycle, with its class, stages and
// micro-batch.
absl::StatusOr<Proof> Check(const Step& step, const layout::Ledger& ledger, const Transport& transport = {});
// Of a step without parameters (ExpandOrder in build_step.h).
absl::StatusOr<Proof> Check(const Step& step, const Transport& transport = {});

// The most streams of one rank on which exchanges with other ranks may be under way at once; scalars are
// exchanged between hosts and do not count.
int NumExchangeStreams(const Step& step);

// "forward block 3 micro-batch 1"
std::string Describe(const Instruction& instruction);

}  // namespace trainctl::schedule
