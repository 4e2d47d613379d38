// A block as a table of operators: what the executor runs and the simulator prices.
//
// A segment is a small program over values (activations). Its forward runs the operators in order;
// its backward runs their derivatives in reverse: in one pass, or in two, of which the second forms the
// gradients of matrices from operands that the first queues. Which value is saved, when a value dies and what
// is temporary are decided here, once; lib/nn interprets the table with tensors, Analyze() with
// byte counts, and a test holds the two together. A new architecture is a new table, not a new
// class. Pure data; thread safe.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "model/model_spec.h"
#include "model/operators.h"

namespace trainctl::model {

// Where the gradient of an operator's inputs goes. A gradient that already exists (a residual
// stream) is always added to, in place when nothing else refers to it.
enum class InputGradient : uint8_t {
  kNone,                 // no differentiable input
  kNew,                  // new storage
  kReuseOutputGradient,  // written over the gradient of the output, or new where something else refers to it
  kShareOutputGradient,  // is the gradient of the output
  kReuseSavedInput,      // written over the saved input, which dies here
  kNewInForward,         // new storage, formed together with the forward (a loss)
};

// Rows of a micro-batch: n = batch * seq_len.
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
};

struct Operator {
  OpKind kind = OpKind::kAdd;  // that of `attributes`
  OperatorAttributes attributes = AddAttributes{};
  std::vector<int> inputs;        // value ids
  std::vector<int> outputs;       // value ids
  std::vector<int> weights;       // inventory indices, adjacent in their bucket
  std::vector<int> biases;        // inventory indices, adjacent in their bucket
  std::vector<int> saved;         // value ids that its input gradient reads
  std::vector<int> weight_saved;  // value ids that its weight gradient reads
  int in_place_of = -1;           // value id whose storage outputs[0] takes over
  InputGradient input_gradient = InputGradient::kNew;
  // Its forward and the next one's, of what it makes, are one pass over memory. Formed again, each is by
  // itself.
  bool is_one_pass_with_next = false;
  // Nothing of its outputs is kept for the backward, which forms them again from its inputs.
  bool formed_again = false;
  int64_t forward_temp_bytes = 0;
  int64_t backward_temp_bytes = 0;  // of the input gradient; of a loss, of all that it does
  int64_t weight_temp_bytes = 0;    // of the weight gradient

  // Whether it has a weight gradient that can wait for the second pass.
  bool HasWeightGradient() const { return EntryOf(kind).weight_gradient_work != nullptr; }
  template <typename Attributes>
  const Attributes& As() const {
    return std::get<Attributes>(attributes);
  }
};

// Which part of a block is a rank's (Shoeybi et al. 2019, arXiv 1909.08053): some of the heads, of the MLP's
// inner width and of the vocabulary, of all tokens.
struct TensorPart {
  int64_t ranks = 1;
  int64_t index = 0;  // of this rank among them
  // Between its products a rank has an equal part of the rows (Korthikanti et al. 2022, arXiv 2205.05198).
  // False: all of them, as all the others.
  bool cuts_sequence = true;
  bool operator==(const TensorPart&) const = default;
};

struct Segment {
  int block = 0;
  MicroBatchShape shape;
  TensorPart tensor;
  DType dtype = DType::kF32;  // of activations
  int64_t threads = 1;
  bool on_device = false;
  // Its rows are those of the tokens that happened to be sent to it (experts): shape.tokens() is the most
  // that there can be, and what memory and work are counted for. How many there are is known when it runs.
  bool rows_are_bounded = false;
  std::vector<Value> values;
  std::vector<Operator> operators;
  // The border, as value ids.
  std::vector<int> inputs;   // none for the embedding
  std::vector<int> outputs;  // none for the head
};

struct SegmentOptions {
  MicroBatchShape shape;
  DType dtype = DType::kF32;  // kF32, kBF16 or kF64
  int64_t threads = 1;        // of one worker; scales the CPU attention kernel's workspace
  bool on_device = false;     // a device's kernels run it, which need other temporaries
  TensorPart tensor;
  // A layer's backward forms again what takes no product: norms, activation functions, and the rows that are
  // gathered for tensor parallelism (Korthikanti et al. 2022, section 4.2.2, keep a part of them likewise).
  bool forms_again = false;
  bool forms_attention_again = false;  // from queries, keys and values, which stay

  // Of activations between the blocks.
  int64_t border_rows() const {
    return tensor.cuts_sequence ? shape.tokens() / tensor.ranks : shape.tokens();
  }
};

// The table of `block`. `inventory` is Inventory(spec).
Segment BuildSegment(const ModelSpec& spec, const std::vector<Parameter>& inventory, int block,
                     const SegmentOptions& options);

// When storage may be dropped. Index = operator; entries are storage roots.
struct Lifetimes {
  std::vector<std::vector<int>> forward_drops;    // after this operator's forward, saving for backward
  std::vector<std::vector<int>> inference_drops;  // the same, nothing saved
  // Operators whose forward runs again, in this order, before the backward of an operator that reads what
  // they make (of two passes the first); and what of that is dropped at once.
  std::vector<std::vector<int>> formed_again;
  std::vector<std::vector<int>> formed_again_drops;
  // Saved values and those formed again in a backward of one pass, which forms an operator's weight gradient
  // before its input's.
  std::vector<std::vector<int>> weight_gradient_drops;  // between the two
  std::vector<std::vector<int>> backward_drops;         // after both
  // The same in a backward of two passes.
  std::vector<std::vector<int>> input_pass_drops;   // those that no weight gradient reads
  std::vector<std::vector<int>> weight_pass_drops;  // the others, after this operator's weight gradient
  std::vector<int> saved;                           // distinct, inputs of the segment excluded
  std::vector<int> queued;                          // distinct, those that weight gradients read
};
Lifetimes ComputeLifetimes(const Segment& segment);

// Operators up to the last one that makes a saved value. A forward that runs again only to save ends there:
// in a layer of Llama it leaves out the MLP's second product, the sum over tp and the residual addition.
size_t NumOperatorsThatSave(const Segment& segment);

// For each value, the value whose storage it uses (itself, or what in_place_of leads to).
std::vector<int> StorageRoots(const Segment& segment);

// Bytes relative to what lives before the segment starts (its inputs or output gradients excluded).
struct SegmentMemory {
  int64_t output_bytes = 0;          // the boundary values handed on
  int64_t saved_bytes = 0;           // kept from forward to backward, inputs excluded
  int64_t forward_peak = 0;          // saving; output and saved included
  int64_t recompute_peak = 0;        // of NumOperatorsThatSave(), which hand nothing on; saved included
  int64_t inference_peak = 0;        // not saving
  int64_t backward_peak = 0;         // above (saved + output gradients), input gradients included
  int64_t input_gradient_bytes = 0;  // bytes the input gradients add (0 if they reuse the outputs')
  int64_t loss_peak = 0;             // head only: forward and backward together
  // Backward in two passes; 0 for the head, which has one.
  int64_t input_backward_peak = 0;   // above (saved + output gradients), input gradients and queue included
  int64_t queued_bytes = 0;          // kept from the first pass to the second: saved values (and inputs) that
                                     // weight gradients read, and the gradients of their operators' outputs
  int64_t weight_backward_peak = 0;  // above queued_bytes
};
SegmentMemory Analyze(const Segment& segment);

}  // namespace trainctl::model
