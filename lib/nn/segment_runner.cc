#include "nn/segment_runner.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "device/aten.h"
#include "nn/operator_failed.h"
#include "nn/operators.h"
#include "nn/segment_run.h"

namespace trainctl::nn {
namespace {

// Adds the time that it lives to a sum; null: does nothing.
class ScopedSeconds {
 public:
  explicit ScopedSeconds(double* sum) : sum_(sum), begin_(sum == nullptr ? 0 : Now()) {}
  ~ScopedSeconds() {
    if (sum_ != nullptr) *sum_ += Now() - begin_;
  }
  ScopedSeconds(const ScopedSeconds&) = delete;
  ScopedSeconds& operator=(const ScopedSeconds&) = delete;

 private:
  static double Now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  double* sum_;
  double begin_;
};

}  // namespace

// One walk over the table: allocates, drops and queues around what the operators do.
class SegmentRunner::Pass {
 public:
  Pass(const SegmentRunner& runner, const BoundParameters& parameters, const TokenView& view)
      : r_(runner),
        run_(runner.device_, runner.segment_, runner.rope_, runner.threads_, parameters, view,
             runner.tensor_) {}

  SegmentRun& run() { return run_; }

  void SetInput(const at::Tensor& input) {
    if (r_.segment_.inputs.empty()) return;
    run_.SetRows(r_.segment_.inputs[0], input.size(0));
    // Operators that only forward the input save it under another name.
    const int root = r_.roots_[static_cast<size_t>(r_.segment_.inputs[0])];
    for (size_t value = 0; value < r_.roots_.size(); ++value) {
      if (r_.roots_[value] == root) run_.Value(static_cast<int>(value)) = input;
    }
  }
  // Undefined for a segment without input.
  at::Tensor InputGradient() {
    return r_.segment_.inputs.empty() ? at::Tensor() : run_.Gradient(r_.segment_.inputs[0]);
  }
  void SetValues(Saved values) {
    for (auto& [value, tensor] : values) run_.Value(value) = std::move(tensor);
  }
  void SetGradients(Saved gradients) {
    for (auto& [value, tensor] : gradients) {
      run_.SetRows(value, tensor.size(0));
      run_.Gradient(value) = std::move(tensor);
    }
  }

  void Forward(size_t num_operators, const std::vector<std::vector<int>>& drops) {
    for (size_t i = 0; i < num_operators; ++i) {
      const model::Operator& op = r_.segment_.operators[i];
      const ScopedSeconds timer(SecondsOf(op, &OperatorSeconds::forward));
      AllocateOutputs(op);
      if (op.with_next.Has(model::Pass::kForward)) {
        const model::Operator& next = r_.segment_.operators[++i];
        AllocateOutputs(next);
        RunnerOf(op).forward_with_next(run_, op, next);
      } else {
        RunnerOf(op).forward(run_, op);
      }
      Check(op, "");
      Drop(drops[i]);
    }
  }

  // What the backward of one pass, or the first of two, reads.
  Saved SavedValues() {
    Saved saved;
    for (const model::Operator& op : r_.segment_.operators) {
      for (const std::vector<int>* values : {&op.saved, &op.weight_saved}) {
        for (int value : *values) {
          if (IsKept(r_.roots_[static_cast<size_t>(value)])) saved[value] = run_.Value(value);
        }
      }
    }
    return saved;
  }

  void Backward() {
    for (size_t i = r_.segment_.operators.size(); i-- > 0;) {
      const model::Operator& op = r_.segment_.operators[i];
      const OperatorRunner& runner = RunnerOf(op);
      if (runner.input_gradient == nullptr) continue;
      FormAgain(i);
      const ScopedSeconds timer(SecondsOf(op, &OperatorSeconds::backward));
      if (runner.weight_gradient != nullptr) WeightGradient(op);
      Drop(r_.lifetimes_.weight_gradient_drops[i]);
      RunInputGradient(i, r_.lifetimes_.backward_drops[i]);
    }
  }

  void BackwardInput(WeightQueue& queue) {
    for (size_t i = r_.segment_.operators.size(); i-- > 0;) {
      const model::Operator& op = r_.segment_.operators[i];
      FormAgain(i);
      const ScopedSeconds timer(SecondsOf(op, &OperatorSeconds::backward));
      if (RunnerOf(op).weight_gradient != nullptr) {
        for (int value : op.weight_saved) queue.values[value] = run_.Value(value);
        queue.output_gradients[op.outputs[0]] = run_.Gradient(op.outputs[0]);
      }
      RunInputGradient(i, r_.lifetimes_.input_pass_drops[i]);
    }
  }

  void BackwardWeight() {
    for (size_t i = r_.segment_.operators.size(); i-- > 0;) {
      const model::Operator& op = r_.segment_.operators[i];
      if (RunnerOf(op).weight_gradient == nullptr) continue;
      const ScopedSeconds timer(SecondsOf(op, &OperatorSeconds::backward));
      WeightGradient(op);
      Drop(r_.lifetimes_.weight_pass_drops[i]);
      run_.Gradient(op.outputs[0]).reset();
    }
  }

 private:
  bool IsKept(int root) const {
    const std::vector<int>& saved = r_.lifetimes_.saved;
    return std::find(saved.begin(), saved.end(), root) != saved.end();
  }

  double* SecondsOf(const model::Operator& op,
                    std::array<double, model::kNumOpKinds> OperatorSeconds::*direction) const {
    return r_.seconds_ == nullptr ? nullptr : &(r_.seconds_->*direction)[static_cast<size_t>(op.kind)];
  }

  void AllocateOutputs(const model::Operator& op) {
    for (size_t k = 0; k < op.outputs.size(); ++k) {
      const model::Value& value = r_.segment_.values[static_cast<size_t>(op.outputs[k])];
      if (k == 0 && op.in_place_of >= 0) {
        run_.Value(op.outputs[0]) = run_.Value(op.in_place_of);
      } else {
        const int64_t rows = r_.segment_.rows_are_bounded ? run_.num_tokens() : value.rows;
        run_.Value(op.outputs[k]) = at::empty({rows, value.cols}, r_.device_.Options(ToAten(value.dtype)));
      }
    }
  }

  // What the backward of an operator reads and the forward has not kept.
  void FormAgain(size_t reader) {
    for (int formed : r_.lifetimes_.formed_again[reader]) {
      const model::Operator& op = r_.segment_.operators[static_cast<size_t>(formed)];
      const ScopedSeconds timer(SecondsOf(op, &OperatorSeconds::backward));
      AllocateOutputs(op);
      RunnerOf(op).forward(run_, op);
      Check(op, ", formed again");
    }
    Drop(r_.lifetimes_.formed_again_drops[reader]);
  }

  void WeightGradient(const model::Operator& op) {
    RunnerOf(op).weight_gradient(run_, op);
    Check(op, ", gradient of its matrix");
  }

  void RunInputGradient(size_t i, const std::vector<int>& drops) {
    const model::Operator& op = r_.segment_.operators[i];
    if (op.with_previous.Has(model::Pass::kInputGradient)) {
      RunnerOf(op).input_gradient_with_previous(run_, r_.segment_.operators[i - 1], op);
    } else if (!op.with_next.Has(model::Pass::kInputGradient)) {  // else the next one has done it
      RunnerOf(op).input_gradient(run_, op);
    }
    Check(op, ", gradient");
    Drop(drops);
    for (int output : op.outputs) run_.Gradient(output).reset();
  }

  // Where it is asked for.
  void Check(const model::Operator& op, const char* part) const {
    if (!r_.checks_) return;
    const absl::Status status = r_.device_.Synchronize();
    if (!status.ok()) throw OperatorFailed(Annotate(status, absl::StrCat(model::OpKindName(op.kind), part)));
  }

  // Storage lives under its root's id; an in-place output is another name for it.
  void Drop(const std::vector<int>& roots) {
    for (int root : roots) {
      for (size_t value = 0; value < r_.roots_.size(); ++value) {
        if (r_.roots_[value] == root) run_.Value(static_cast<int>(value)).reset();
      }
    }
  }

  const SegmentRunner& r_;
  SegmentRun run_;
};

SegmentRunner::SegmentRunner(const device::Device& device, model::Segment segment, const RopeTables* rope,
                             int threads, TensorGroup* tensor)
    : device_(device),
      segment_(std::move(segment)),
      lifetimes_(model::ComputeLifetimes(segment_)),
      num_that_save_(model::NumOperatorsThatSave(segment_)),
      roots_(model::StorageRoots(segment_)),
      rope_(rope),
      threads_(threads),
      tensor_(tensor) {
  TRAINCTL_CHECK((segment_.tensor.ranks > 1) == (tensor != nullptr));
  TRAINCTL_CHECK(tensor == nullptr ||
                 (tensor->size() == segment_.tensor.ranks && tensor->index() == segment_.tensor.index));
  TRAINCTL_CHECK(segment_.inputs.size() <= 1 && segment_.outputs.size() <= 1);
  for (const model::Operator& op : segment_.operators) {
    TRAINCTL_CHECK((RunnerOf(op).weight_gradient != nullptr) == op.HasWeightGradient());
  }
  // What the first of a pair drops would live longer than the table counts.
  for (size_t i = 0; i < segment_.operators.size(); ++i) {
    const model::Operator& op = segment_.operators[i];
    if (op.with_next.Has(model::Pass::kForward)) {
      TRAINCTL_CHECK(lifetimes_.forward_drops[i].empty() && lifetimes_.inference_drops[i].empty());
      TRAINCTL_CHECK(RunnerOf(op).forward_with_next != nullptr);
    }
    if (op.with_previous.Has(model::Pass::kInputGradient))
      TRAINCTL_CHECK(RunnerOf(op).input_gradient_with_previous != nullptr);
    if (op.with_next.Has(model::Pass::kInputGradient))
      TRAINCTL_CHECK(op.saved.empty() && !op.HasWeightGradient());
  }
}

at::Tensor SegmentRunner::Forward(const BoundParameters& parameters, const at::Tensor& input,
                                  const TokenView& view, Saved* saved) const {
  Pass pass(*this, parameters, view);
  pass.SetInput(input);
  pass.Forward(segment_.operators.size(),
               saved != nullptr ? lifetimes_.forward_drops : lifetimes_.inference_drops);
  if (saved != nullptr) *saved = pass.SavedValues();
  return pass.run().Value(segment_.outputs[0]);
}

Saved SegmentRunner::Recompute(const BoundParameters& parameters, const at::Tensor& input,
                               const TokenView& view) const {
  Pass pass(*this, parameters, view);
  pass.SetInput(input);
  pass.Forward(num_that_save_, lifetimes_.forward_drops);
  return pass.SavedValues();
}

at::Tensor SegmentRunner::Continue(const BoundParameters& parameters, const at::Tensor& input,
                                   const TokenView& view, KeyValueCache& cache) const {
  TRAINCTL_CHECK_MSG(segment_.shape.batch == 1, "a cache is of one sequence");
  Pass pass(*this, parameters, view);
  pass.SetInput(input);
  pass.run().ContinueFrom(&cache);
  pass.Forward(segment_.operators.size(), lifetimes_.inference_drops);
  return pass.run().Value(segment_.outputs[0]);
}

at::Tensor SegmentRunner::Backward(const BoundParameters& parameters, const at::Tensor& input,
                                   const TokenView& view, Saved saved, at::Tensor output_gradient) const {
  Pass pass(*this, parameters, view);
  pass.SetInput(input);
  pass.SetValues(std::move(saved));
  pass.run().Gradient(segment_.outputs[0]) = std::move(output_gradient);
  pass.Backward();
  return pass.InputGradient();
}

at::Tensor SegmentRunner::BackwardInput(const BoundParameters& parameters, const at::Tensor& input,
                                        const TokenView& view, Saved saved, at::Tensor output_gradient,
                                        WeightQueue& queue) const {
  TRAINCTL_CHECK_MSG(!segment_.outputs.empty(), "a loss forms its gradients in one pass");
  Pass pass(*this, parameters, view);
  pass.SetInput(input);
  pass.SetValues(std::move(saved));
  pass.run().Gradient(segment_.outputs[0]) = std::move(output_gradient);
  pass.BackwardInput(queue);
  return pass.InputGradient();
}

void SegmentRunner::BackwardWeight(const BoundParameters& parameters, WeightQueue queue) const {
  const TokenView no_tokens;
  Pass pass(*this, parameters, no_tokens);
  pass.SetValues(std::move(queue.values));
  pass.SetGradients(std::move(queue.output_gradients));
  pass.BackwardWeight();
}

at::Tensor SegmentRunner::LossAndGradient(const BoundParameters& parameters, const at::Tensor& input,
                                          const TokenView& view, float z_loss, const float* scale,
                                          double* loss) const {
  Pass pass(*this, parameters, view);
  pass.SetInput(input);
  pass.run().AskForLoss({.sum = loss, .z_loss = z_loss, .scale = scale});
  pass.Forward(segment_.operators.size(), lifetimes_.forward_drops);
  pass.Backward();
  return pass.InputGradient();
}

void SegmentRunner::Loss(const BoundParameters& parameters, const at::Tensor& input, const TokenView& view,
                         double* loss) const {
  Pass pass(*this, parameters, view);
  pass.SetInput(input);
  pass.run().AskForLoss({.sum = loss});
  pass.Forward(segment_.operators.size(), lifetimes_.inference_drops);
}

at::Tensor SegmentRunner::Logits(const BoundParameters& parameters, const at::Tensor& input,
                                 const std::vector<int64_t>& rows) const {
  const TokenView no_tokens;
  Pass pass(*this, parameters, no_tokens);
  pass.SetInput(input);
  pass.Forward(segment_.operators.size() - 1, lifetimes_.inference_drops);
  const model::Operator& loss = segment_.operators.back();
  return RunnerOf(loss).logits(pass.run(), loss, rows);
}

}  // namespace trainctl::nn
