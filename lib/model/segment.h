// A segment describes a block as a table of operators. The executor runs this table, and the simulator
// estimates its memory and time.
//
// A segment is a small program over values (activations). Its forward runs the operators in order, and its
// backward runs their derivatives in reverse order. The backward has one pass or two. With two passes, the
// second computes the weight gradients of matrices from operands that the first keeps in a queue.
//
// This header defines which values are saved, how long each value lives, and which memory is temporary.
// lib/nn interprets the table with tensors, Analyze() interprets it with byte counts, and a test compares the
// two. A new architecture needs a new table, not a new class. Pure data; thread-safe.
//
//   const model::SegmentMemory memory = model::Analyze(graph.segment(block));
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "model/operators.h"

namespace trainctl::model {

// Storage of the gradient of an operator's inputs. If the gradient already exists (residual stream), the
// operator always adds to it, in place if nothing else refers to it.
enum class InputGradient : uint8_t {
  kNone,                 // no differentiable input
  kNew,                  // new storage
  kReuseOutputGradient,  // overwrites the output's gradient; new storage if something else refers to that
  kShareOutputGradient,  // is the same tensor as the output's gradient
  kReuseSavedInput,      // overwrites the saved input, which is not needed afterwards
  kNewInForward,         // new storage, computed together with the forward (loss)
};

// Size of a micro-batch, in sequences and tokens per sequence.
struct MicroBatchShape {
  int64_t batch = 1;
  int64_t seq_len = 1;
  int64_t tokens() const { return batch * seq_len; }
  bool operator==(const MicroBatchShape&) const = default;
};

struct Value {
  std::string name;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t bytes() const { return rows * cols * DTypeBytes(dtype); }
  bool operator==(const Value&) const = default;
};

struct Operator {
  OpKind kind = OpKind::kAdd;  // matches `attributes`
  OperatorAttributes attributes = AddAttributes{};
  std::vector<int> inputs;        // value ids
  std::vector<int> outputs;       // value ids
  std::vector<int> weights;       // positions in Graph::Block::parameters, adjacent in their bucket
  std::vector<int> biases;        // positions in Graph::Block::parameters
  std::vector<int> saved;         // ids of values that the input gradient reads
  std::vector<int> weight_saved;  // ids of values that the weight gradient reads
  int in_place_of = -1;           // id of the value whose storage outputs[0] reuses; -1 if none
  InputGradient input_gradient = InputGradient::kNew;
  // Passes that are fused with those of the next or the previous operator, as one pass over memory
  // (peepholes.h). Recomputation in the backward is not fused.
  PassSet with_next, with_previous;
  // Whether the backward recomputes the outputs from the inputs instead of saving them.
  bool formed_again = false;
  int64_t forward_temp_bytes = 0;
  int64_t backward_temp_bytes = 0;  // temporaries of the input gradient, or of all passes of a loss
  int64_t weight_temp_bytes = 0;    // temporaries of the weight gradient

  // Returns whether the operator has a weight gradient that can be postponed to the second pass.
  bool HasWeightGradient() const { return EntryOf(kind).passes.Has(Pass::kWeightGradient); }
  template <typename Attributes>
  const Attributes& As() const {
    return std::get<Attributes>(attributes);
  }
  bool operator==(const Operator&) const = default;
};

// The part of a block that one tensor-parallel rank computes: some of the heads, of the MLP's inner width and
// of the vocabulary, for all tokens (Shoeybi et al. 2019, arXiv 1909.08053).
struct TensorPart {
  int64_t ranks = 1;
  int64_t index = 0;  // index of this rank
  // Whether sequence parallelism is on (Korthikanti et al. 2022, arXiv 2205.05198): outside of the parallel
  // matrix products, each rank has an equal part of the rows. If false, every rank has all rows there.
  bool cuts_sequence = true;
  bool operator==(const TensorPart&) const = default;
};

struct Segment {
  MicroBatchShape shape;
  TensorPart tensor;
  DType dtype = DType::kF32;  // element type of activations
  int64_t threads = 1;
  bool on_device = false;
  // Whether the number of rows is known only at run time, because it depends on the tokens that are routed to
  // the segment (experts). shape.tokens() is then the maximum, for which memory and work are estimated.
  bool rows_are_bounded = false;
  std::vector<Value> values;
  std::vector<Operator> operators;
  // Ids of the values that the segment receives from the previous block and passes to the next.
  std::vector<int> inputs;   // empty for the embedding
  std::vector<int> outputs;  // empty for the head
  bool operator==(const Segment&) const = default;
};

struct SegmentOptions {
  MicroBatchShape shape;
  DType dtype = DType::kF32;  // kF32, kBF16 or kF64
  int64_t threads = 1;        // threads per worker; each needs a workspace in the CPU attention kernel
  bool on_device = false;     // whether a device runs the segment; its kernels need different temporaries
  TensorPart tensor;
  // Whether the backward of a layer recomputes the outputs that need no matrix product: norms, activation
  // functions, and the rows that are gathered for tensor parallelism. (Korthikanti et al. 2022, section
  // 4.2.2, similarly save only each rank's part of those rows.)
  bool forms_again = false;
  // Whether the backward recomputes attention from the saved queries, keys and values.
  bool forms_attention_again = false;

  // Returns the number of rows of the activations between blocks on one rank.
  int64_t border_rows() const {
    return tensor.cuts_sequence ? shape.tokens() / tensor.ranks : shape.tokens();
  }
};

// The times at which storage can be released. The outer index of the nested lists is an operator. The entries
// are storage roots (see StorageRoots), except in `formed_again`, whose entries are operators.
struct Lifetimes {
  std::vector<std::vector<int>> forward_drops;    // after the operator's forward, in training
  std::vector<std::vector<int>> inference_drops;  // after the operator's forward, if nothing is saved
  // Operators to recompute, in this order, before the operator's backward (before its input gradient, if the
  // backward has two passes).
  std::vector<std::vector<int>> formed_again;
  // Recomputed outputs that no gradient reads; released immediately.
  std::vector<std::vector<int>> formed_again_drops;
  // Releases of saved and recomputed values in a backward of one pass, which computes an operator's weight
  // gradient before its input gradient.
  std::vector<std::vector<int>> weight_gradient_drops;  // between the two gradients
  std::vector<std::vector<int>> backward_drops;         // after both gradients
  // Releases of saved and recomputed values in a backward of two passes.
  std::vector<std::vector<int>> input_pass_drops;   // in the first pass: values that no weight gradient reads
  std::vector<std::vector<int>> weight_pass_drops;  // in the second pass: all others
  // Distinct storage roots that the forward saves, excluding the segment's inputs.
  std::vector<int> saved;
  // Distinct storage roots that weight gradients read. May include the segment's inputs.
  std::vector<int> queued;
};
Lifetimes ComputeLifetimes(const Segment& segment);

// Returns the number of operators up to the last one whose output is saved. If the forward of that operator
// is fused with the next one, includes the next one too. Full recomputation stops there. In a Llama layer, it
// omits the MLP's down projection, the sum over tensor-parallel ranks and the residual addition.
size_t NumOperatorsThatSave(const Segment& segment);

// Returns, for each value, the value that owns its storage: itself, or the end of its chain of in_place_of.
std::vector<int> StorageRoots(const Segment& segment);

// Memory of a segment, in bytes. Peaks are relative to the memory in use before the pass starts. The peak of
// a forward therefore excludes its inputs, and that of a backward excludes saved values and output gradients.
struct SegmentMemory {
  int64_t output_bytes = 0;    // values passed to the next block
  int64_t saved_bytes = 0;     // values saved from forward to backward, excluding the inputs
  int64_t forward_peak = 0;    // forward in training, including outputs and saved values
  int64_t recompute_peak = 0;  // forward of NumOperatorsThatSave() operators, including saved values
  int64_t inference_peak = 0;  // forward without saving
  int64_t backward_peak = 0;   // backward of one pass, including input gradients
  // Net change in gradient storage over the backward: input gradients minus released output gradients. 0 if
  // the input gradients reuse that storage.
  int64_t input_gradient_bytes = 0;
  int64_t loss_peak = 0;  // forward and backward of the head together; 0 for other blocks
  // The rest is for a backward of two passes; 0 for the head, whose backward has one pass.
  int64_t input_backward_peak = 0;  // first pass, including input gradients and queue
  // Memory kept from the first pass to the second: saved values and inputs that weight gradients read, and
  // the gradients of the outputs of the operators concerned.
  int64_t queued_bytes = 0;
  int64_t weight_backward_peak = 0;  // second pass, in addition to queued_bytes
};
SegmentMemory Analyze(const Segment& segment);

}  // namespace trainctl::model
