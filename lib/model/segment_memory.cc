// Plays a segment with byte counts, as lib/nn/segment_runner.cc plays it with tensors.

#include <algorithm>
#include <map>

#include "base/status.h"
#include "model/segment.h"

namespace trainctl::model {
namespace {

class ByteCounter {
 public:
  void Allocate(int64_t bytes) {
    live_ += bytes;
    peak_ = std::max(peak_, live_);
  }
  void Free(int64_t bytes) { live_ -= bytes; }
  void Temporary(int64_t bytes) {
    Allocate(bytes);
    Free(bytes);
  }
  // What lives now is the ground that the next bytes are counted from.
  void Restart() { live_ = peak_ = 0; }
  int64_t live() const { return live_; }
  int64_t peak() const { return peak_; }

 private:
  int64_t live_ = 0;
  int64_t peak_ = 0;
};

int64_t BytesOf(const Segment& segment, int value) {
  return segment.values[static_cast<size_t>(value)].bytes();
}

// Gradients as reference-counted storage, exactly as the interpreter holds them.
class GradientCounter {
 public:
  GradientCounter(const Segment& segment, ByteCounter& counter) : segment_(segment), counter_(counter) {}

  // The caller's storage: freed here, allocated elsewhere.
  void Adopt(int value) { storage_of_[value] = New(BytesOf(segment_, value), false); }
  bool Has(int value) const { return storage_of_.count(value) > 0; }

  // The gradient of `input` receives a contribution by `rule` from an operator whose output is `output`.
  // Returns whether its storage is now that of the saved input.
  bool Flow(int input, int output, InputGradient rule) {
    if (Has(input)) {
      // Added to. In place when this is the only reference, else into new storage.
      const int64_t arriving = rule == InputGradient::kNew ? BytesOf(segment_, input) : 0;
      counter_.Allocate(arriving);
      if (references_[storage_of_[input]] > 1) {
        const size_t fresh = New(BytesOf(segment_, input), true);
        Release(input);
        storage_of_[input] = fresh;
      }
      counter_.Free(arriving);
      return false;
    }
    if (rule == InputGradient::kShareOutputGradient ||
        (rule == InputGradient::kReuseOutputGradient && references_[storage_of_.at(output)] == 1)) {
      storage_of_[input] = storage_of_.at(output);
      ++references_[storage_of_[input]];
      return false;
    }
    const bool takes_saved = rule == InputGradient::kReuseSavedInput;
    storage_of_[input] = New(BytesOf(segment_, input), !takes_saved);
    return takes_saved;
  }

  void Release(int value) {
    const auto it = storage_of_.find(value);
    if (it == storage_of_.end()) return;
    Unreference(it->second);
    storage_of_.erase(it);
  }

  // Keeps the gradient of `value` for the second pass.
  void Queue(int value) {
    const size_t storage = storage_of_.at(value);
    ++references_[storage];
    queued_[value] = storage;
  }
  void Unqueue(int value) {
    Unreference(queued_.at(value));
    queued_.erase(value);
  }
  int64_t QueuedBytes() const {
    std::map<size_t, int64_t> bytes;  // by storage
    for (const auto& [value, storage] : queued_) bytes[storage] = bytes_[storage];
    int64_t sum = 0;
    for (const auto& [storage, its_bytes] : bytes) sum += its_bytes;
    return sum;
  }

 private:
  size_t New(int64_t bytes, bool counted) {
    references_.push_back(1);
    bytes_.push_back(bytes);
    if (counted) counter_.Allocate(bytes);
    return references_.size() - 1;
  }
  void Unreference(size_t storage) {
    if (--references_[storage] == 0) counter_.Free(bytes_[storage]);
  }

  const Segment& segment_;
  ByteCounter& counter_;
  std::map<int, size_t> storage_of_;
  std::map<int, size_t> queued_;
  std::vector<int> references_;
  std::vector<int64_t> bytes_;
};

// One player of a segment; each pass starts from what the one before has left.
class MemoryPlayer {
 public:
  MemoryPlayer(const Segment& segment, const Lifetimes& lifetimes)
      : segment_(segment), lifetimes_(lifetimes), gradients_(segment, counter_) {}

  ByteCounter& counter() { return counter_; }
  GradientCounter& gradients() { return gradients_; }

  void Forward(size_t num_operators, const std::vector<std::vector<int>>& drops) {
    for (size_t i = 0; i < num_operators; ++i) {
      const Operator& op = segment_.operators[i];
      AllocateOutputs(op);
      counter_.Temporary(op.forward_temp_bytes);
      Drop(drops[i]);
    }
  }

  // A segment that ends in a loss: the gradient of the loss's input is formed together with it.
  void LossAndGradient() {
    const size_t last = segment_.operators.size() - 1;
    for (size_t i = 0; i < last; ++i) {
      AllocateOutputs(segment_.operators[i]);
      counter_.Temporary(segment_.operators[i].forward_temp_bytes);
      Drop(lifetimes_.forward_drops[i]);
    }
    const Operator& loss = segment_.operators[last];
    gradients_.Flow(loss.inputs[0], -1, loss.input_gradient);
    counter_.Temporary(loss.backward_temp_bytes);
    Drop(lifetimes_.forward_drops[last]);
    Backward();
  }

  void Backward() {
    for (size_t i = segment_.operators.size(); i-- > 0;) {
      const Operator& op = segment_.operators[i];
      if (op.input_gradient == InputGradient::kNewInForward) continue;
      FormAgain(i);
      counter_.Temporary(op.weight_temp_bytes);
      Drop(lifetimes_.weight_gradient_drops[i]);
      InputGradientOf(op, lifetimes_.backward_drops[i]);
    }
  }

  void BackwardInput() {
    for (size_t i = segment_.operators.size(); i-- > 0;) {
      const Operator& op = segment_.operators[i];
      FormAgain(i);
      if (op.HasWeightGradient()) gradients_.Queue(op.outputs[0]);
      InputGradientOf(op, lifetimes_.input_pass_drops[i]);
    }
  }

  void BackwardWeight() {
    for (size_t i = segment_.operators.size(); i-- > 0;) {
      const Operator& op = segment_.operators[i];
      if (!op.HasWeightGradient()) continue;
      counter_.Temporary(op.weight_temp_bytes);
      Drop(lifetimes_.weight_pass_drops[i]);
      gradients_.Unqueue(op.outputs[0]);
    }
  }

 private:
  void AllocateOutputs(const Operator& op) {
    for (size_t k = 0; k < op.outputs.size(); ++k) {
      if (k == 0 && op.in_place_of >= 0) continue;
      counter_.Allocate(BytesOf(segment_, op.outputs[k]));
    }
  }

  void FormAgain(size_t reader) {
    for (int formed : lifetimes_.formed_again[reader]) {
      const Operator& op = segment_.operators[static_cast<size_t>(formed)];
      AllocateOutputs(op);
      counter_.Temporary(op.forward_temp_bytes);
    }
    Drop(lifetimes_.formed_again_drops[reader]);
  }

  void InputGradientOf(const Operator& op, const std::vector<int>& drops) {
    int kept = -1;  // a saved input whose bytes have become the gradient's
    for (int input : op.inputs) {
      if (gradients_.Flow(input, op.outputs[0], op.input_gradient)) kept = input;
    }
    counter_.Temporary(op.backward_temp_bytes);
    for (int value : drops) {
      if (value != kept) counter_.Free(BytesOf(segment_, value));
    }
    for (int output : op.outputs) gradients_.Release(output);
  }

  void Drop(const std::vector<int>& values) {
    for (int value : values) counter_.Free(BytesOf(segment_, value));
  }

  const Segment& segment_;
  const Lifetimes& lifetimes_;
  ByteCounter counter_;
  GradientCounter gradients_;
};

}  // namespace

SegmentMemory Analyze(const Segment& segment) {
  const Lifetimes lifetimes = ComputeLifetimes(segment);
  SegmentMemory memory;
  for (int value : segment.outputs) memory.output_bytes += BytesOf(segment, value);
  for (int value : lifetimes.saved) memory.saved_bytes += BytesOf(segment, value);

  const size_t all = segment.operators.size();
  MemoryPlayer inference(segment, lifetimes);
  inference.Forward(all, lifetimes.inference_drops);
  memory.inference_peak = inference.counter().peak();
  MemoryPlayer forward(segment, lifetimes);
  forward.Forward(all, lifetimes.forward_drops);
  memory.forward_peak = forward.counter().peak();
  MemoryPlayer again(segment, lifetimes);
  again.Forward(NumOperatorsThatSave(segment), lifetimes.forward_drops);
  memory.recompute_peak = again.counter().peak();

  if (segment.operators.back().input_gradient == InputGradient::kNewInForward) {
    MemoryPlayer loss(segment, lifetimes);
    loss.LossAndGradient();
    memory.loss_peak = loss.counter().peak();
    memory.input_gradient_bytes = loss.counter().live();
    return memory;
  }
  MemoryPlayer together(segment, lifetimes);
  for (int value : segment.outputs) together.gradients().Adopt(value);
  together.Backward();
  memory.backward_peak = together.counter().peak();
  memory.input_gradient_bytes = together.counter().live() + memory.saved_bytes;

  MemoryPlayer apart(segment, lifetimes);
  for (int value : segment.outputs) apart.gradients().Adopt(value);
  apart.BackwardInput();
  memory.input_backward_peak = apart.counter().peak();
  memory.queued_bytes = apart.gradients().QueuedBytes();
  for (int value : lifetimes.queued) memory.queued_bytes += BytesOf(segment, value);
  apart.counter().Restart();
  apart.BackwardWeight();
  memory.weight_backward_peak = apart.counter().peak();
  return memory;
}

}  // namespace trainctl::model
