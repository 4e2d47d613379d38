#include "nn/segment_runner.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/status.h"
#include "nn/attention.h"

namespace trainctl::nn {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);

at::ScalarType ToAten(DType dtype) { return dtype == DType::kBF16 ? at::kBFloat16 : at::kFloat; }

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

// Llama-3 frequency scaling (transformers' modeling_rope_utils, "llama3"): low frequencies are
// divided by `factor`, high ones kept, those between blended.
double ScaleFrequency(double frequency, const model::RopeScaling& scaling) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double original = static_cast<double>(scaling.original_max_position);
  const double low_wavelength = original / scaling.low_freq_factor;
  const double high_wavelength = original / scaling.high_freq_factor;
  if (wavelength < high_wavelength) return frequency;
  if (wavelength > low_wavelength) return frequency / scaling.factor;
  const double smooth = (original / wavelength - scaling.low_freq_factor) /
                        (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - smooth) * frequency / scaling.factor + smooth * frequency;
}

}  // namespace

RopeTables MakeRopeTables(const device::Device& device, const model::ModelSpec& spec, int64_t max_position) {
  const int64_t half = spec.head_dim / 2;
  RopeTables tables{at::empty({max_position, half}, at::kFloat), at::empty({max_position, half}, at::kFloat)};
  float* cos = tables.cos.data_ptr<float>();
  float* sin = tables.sin.data_ptr<float>();
  for (int64_t j = 0; j < half; ++j) {
    double frequency =
        std::pow(spec.rope_theta, -2.0 * static_cast<double>(j) / static_cast<double>(spec.head_dim));
    if (spec.rope_scaling) frequency = ScaleFrequency(frequency, *spec.rope_scaling);
    // The field computes angles in fp32; so do we, to agree with published weights at long range.
    const float rounded = static_cast<float>(frequency);
    for (int64_t p = 0; p < max_position; ++p) {
      const float angle = static_cast<float>(p) * rounded;
      cos[p * half + j] = std::cos(angle);
      sin[p * half + j] = std::sin(angle);
    }
  }
  if (!device.is_cpu()) tables = {tables.cos.to(device.torch()), tables.sin.to(device.torch())};
  return tables;
}

// One run over the table. Holds the activations by value id and their gradients.
class SegmentRunner::Pass {
 public:
  Pass(const SegmentRunner& runner, const BoundParameters& parameters, const TokenView& view)
      : r_(runner),
        parameters_(parameters),
        view_(view),
        dtype_(ToAten(runner.segment_.dtype)),
        n_(runner.segment_.shape.tokens()),
        hidden_(runner.spec_.hidden),
        device_(runner.device_),
        typed_(device_.kernels().For(runner.segment_.dtype)),
        values_(runner.segment_.values.size()),
        gradients_(runner.segment_.values.size()) {}

  void SetInput(const at::Tensor& input) {
    if (r_.segment_.input >= 0) Value(r_.segment_.input) = input;
  }

  void RunForward(size_t num_operators, const std::vector<std::vector<int>>& drops) {
    for (size_t i = 0; i < num_operators; ++i) {
      const model::Operator& op = r_.segment_.operators[i];
      const ScopedSeconds timer(r_.seconds_ == nullptr ? nullptr
                                                       : &r_.seconds_->forward[static_cast<size_t>(op.kind)]);
      Allocate(op);
      ForwardOperator(op);
      // Storage lives under its root's id; an in-place output is another name for it.
      for (int value : drops[i]) DropStorage(value);
    }
  }

  void RunBackward(size_t num_operators) {
    for (size_t i = num_operators; i-- > 0;) {
      const model::Operator& op = r_.segment_.operators[i];
      const ScopedSeconds timer(
          r_.seconds_ == nullptr ? nullptr : &r_.seconds_->backward[static_cast<size_t>(op.kind)]);
      BackwardOperator(op, r_.lifetimes_.backward_drops[i]);
      for (int value : r_.lifetimes_.backward_drops[i]) DropStorage(value);
      for (int output : op.outputs) Gradient(output).reset();
    }
  }

  at::Tensor& Value(int value) { return values_[static_cast<size_t>(value)]; }
  at::Tensor& Gradient(int value) { return gradients_[static_cast<size_t>(value)]; }

  // The head's last operator: logits in pieces of rows, loss, and with `scale` the gradients.
  void CrossEntropy(float z_loss, float scale, bool want_gradient, double* loss) {
    const model::Operator& op = r_.segment_.operators.back();
    const ScopedSeconds timer(r_.seconds_ == nullptr ? nullptr
                                                     : &r_.seconds_->forward[static_cast<size_t>(op.kind)]);
    const int64_t vocab = r_.spec_.vocab;
    const int64_t rows_at_once = model::LogitRowsAtOnce(r_.segment_.shape, vocab, r_.segment_.dtype);
    const at::Tensor& x = Value(op.inputs[0]);
    const at::Tensor weight = Matrix(op.weights, vocab, hidden_);
    at::Tensor dx;
    if (want_gradient) dx = Empty({n_, hidden_});
    at::Tensor logits = Empty({rows_at_once, vocab});
    bool accumulate = want_gradient && Bound(op.weights[0]).accumulate;
    for (int64_t begin = 0; begin < n_; begin += rows_at_once) {
      const int64_t rows = std::min(rows_at_once, n_ - begin);
      const at::Tensor x_rows = x.narrow(0, begin, rows);
      at::Tensor piece = logits.narrow(0, 0, rows);
      at::mm_out(piece, x_rows, weight.t());
      AddLossOfRows(piece, begin, rows, z_loss, want_gradient, scale, loss);
      if (!want_gradient) continue;
      AddWeightGradient(op.weights, vocab, hidden_, piece, x_rows, accumulate);
      accumulate = true;
      at::Tensor dx_rows = dx.narrow(0, begin, rows);
      at::mm_out(dx_rows, piece, weight);
    }
    if (want_gradient) {
      Gradient(op.inputs[0]) = std::move(dx);
      Value(op.inputs[0]).reset();
    }
  }

  at::Tensor Logits(const std::vector<int64_t>& rows) {
    const model::Operator& op = r_.segment_.operators.back();
    const at::Tensor weight = Matrix(op.weights, r_.spec_.vocab, hidden_);
    const at::Tensor index = at::tensor(at::ArrayRef<int64_t>(rows), at::kLong).to(device_.torch());
    return at::mm(Value(op.inputs[0]).index_select(0, index), weight.t());
  }

 private:
  const BoundParameter& Bound(int parameter) const {
    const auto it = parameters_.find(parameter);
    TRAINCTL_CHECK_MSG(it != parameters_.end(), "parameter ", parameter, " is not bound");
    return it->second;
  }

  // Adjacent weights of one product seen as one matrix [rows, cols].
  at::Tensor Matrix(const std::vector<int>& weights, int64_t rows, int64_t cols) const {
    return device_.View(Bound(weights[0]).data, {rows, cols}, dtype_);
  }

  at::Tensor Empty(at::IntArrayRef sizes) const { return at::empty(sizes, device_.Options(dtype_)); }

  void Allocate(const model::Operator& op) {
    for (size_t k = 0; k < op.outputs.size(); ++k) {
      const model::Value& value = r_.segment_.values[static_cast<size_t>(op.outputs[k])];
      if (k == 0 && op.in_place_of >= 0) {
        Value(op.outputs[0]) = Value(op.in_place_of);
      } else {
        Value(op.outputs[k]) = at::empty({value.rows, value.cols}, device_.Options(ToAten(value.dtype)));
      }
    }
  }

  // Drops a storage: every name that shares it.
  void DropStorage(int root) {
    for (size_t value = 0; value < values_.size(); ++value) {
      if (r_.roots_[value] == root) values_[value].reset();
    }
  }

  void ForwardOperator(const model::Operator& op) {
    switch (op.kind) {
      case model::OpKind::kEmbedding:
        typed_.embedding(Value(op.outputs[0]).data_ptr(), Bound(op.weights[0]).data, view_.tokens, n_,
                         hidden_);
        return;
      case model::OpKind::kRmsNorm:
        Rows([&](int64_t begin, int64_t end, int) {
          typed_.rms_norm(Row(Value(op.outputs[0]), begin), Value(op.outputs[1]).data_ptr<float>() + begin,
                          Row(Value(op.inputs[0]), begin), Bound(op.weights[0]).data,
                          static_cast<float>(r_.spec_.norm_eps), end - begin, hidden_);
        });
        return;
      case model::OpKind::kLinear: {
        at::Tensor& y = Value(op.outputs[0]);
        const at::Tensor& x = Value(op.inputs[0]);
        at::mm_out(y, x, Matrix(op.weights, y.size(1), x.size(1)).t());
        if (!op.biases.empty()) {
          Rows([&](int64_t begin, int64_t end, int) {
            typed_.add_bias(Row(y, begin), Bound(op.biases[0]).data, end - begin, y.size(1));
          });
        }
        return;
      }
      case model::OpKind::kRope:
        Rope(Value(op.outputs[0]), 1.0f);
        return;
      case model::OpKind::kAttention:
        AttentionForward(AttentionShapeOf(), Value(op.inputs[0]), view_, Value(op.outputs[0]),
                         Value(op.outputs[1]));
        return;
      case model::OpKind::kSwiGlu:
        Rows([&](int64_t begin, int64_t end, int) {
          typed_.swiglu(Row(Value(op.outputs[0]), begin), Row(Value(op.inputs[0]), begin), end - begin,
                        r_.spec_.ffn);
        });
        return;
      case model::OpKind::kAdd:
        Rows([&](int64_t begin, int64_t end, int) {
          typed_.add(Row(Value(op.outputs[0]), begin), Row(Value(op.inputs[0]), begin),
                     (end - begin) * hidden_);
        });
        return;
      case model::OpKind::kLinearCrossEntropy:
        return;  // CrossEntropy()
    }
  }

  void BackwardOperator(const model::Operator& op, const std::vector<int>& drops) {
    switch (op.kind) {
      case model::OpKind::kEmbedding: {
        const BoundParameter& table = Bound(op.weights[0]);
        if (!table.accumulate) {
          device_.Zero(table.gradient, r_.spec_.vocab * hidden_ * kFloatBytes);
        }
        typed_.embedding_backward(table.gradient, Gradient(op.outputs[0]).data_ptr(), view_.tokens, n_,
                                  hidden_);
        return;
      }
      case model::OpKind::kRmsNorm:
        RmsNormBackward(op);
        return;
      case model::OpKind::kLinear: {
        const at::Tensor dy = Gradient(op.outputs[0]);
        const int64_t in = Value(op.inputs[0]).size(1);
        const int64_t out = dy.size(1);
        AddWeightGradient(op.weights, out, in, dy, Value(op.inputs[0]), Bound(op.weights[0]).accumulate);
        if (!op.biases.empty()) AddBiasGradient(Bound(op.biases[0]), dy);
        for (int value : drops) DropStorage(value);  // the weight gradient was their last reader
        at::Tensor dx = Empty({n_, in});
        at::mm_out(dx, dy, Matrix(op.weights, out, in));
        Receive(op.inputs[0], std::move(dx));
        return;
      }
      case model::OpKind::kRope: {
        Rope(Gradient(op.outputs[0]), -1.0f);
        Gradient(op.inputs[0]) = Gradient(op.outputs[0]);
        return;
      }
      case model::OpKind::kAttention: {
        at::Tensor dqkv = at::empty_like(Value(op.inputs[0]));
        AttentionBackward(AttentionShapeOf(), Value(op.inputs[0]), view_, Value(op.outputs[0]),
                          Value(op.outputs[1]), Gradient(op.outputs[0]), dqkv);
        Receive(op.inputs[0], std::move(dqkv));
        return;
      }
      case model::OpKind::kSwiGlu: {
        at::Tensor storage = Value(op.inputs[0]);  // the gradient is written over the saved input
        Rows([&](int64_t begin, int64_t end, int) {
          typed_.swiglu_backward(Row(storage, begin), Row(Gradient(op.outputs[0]), begin),
                                 Row(storage, begin), end - begin, r_.spec_.ffn);
        });
        Gradient(op.inputs[0]) = std::move(storage);
        return;
      }
      case model::OpKind::kAdd:
        for (int input : op.inputs) {
          TRAINCTL_CHECK(!Gradient(input).defined());
          Gradient(input) = Gradient(op.outputs[0]);
        }
        return;
      case model::OpKind::kLinearCrossEntropy:
        return;
    }
  }

  void RmsNormBackward(const model::Operator& op) {
    const int input = op.inputs[0];
    const at::Tensor dy = Gradient(op.outputs[0]);
    const BoundParameter& weight = Bound(op.weights[0]);
    const bool add = Gradient(input).defined();
    if (!add) {
      Gradient(input) = dy;  // written over the output's gradient
    } else if (Gradient(input).use_count() > 1) {
      Gradient(input) = Gradient(input).clone();
    }
    if (!weight.accumulate) device_.Zero(weight.gradient, hidden_ * kFloatBytes);
    const int chunks = NumChunks();
    std::vector<float> partial;  // a sum per thread; a device adds where it belongs
    if (device_.is_cpu()) partial.assign(static_cast<size_t>(chunks * hidden_), 0.0f);
    Rows([&](int64_t begin, int64_t end, int chunk) {
      typed_.rms_norm_backward(
          Row(Gradient(input), begin), partial.empty() ? weight.gradient : partial.data() + chunk * hidden_,
          Row(dy, begin), Row(Value(input), begin), Value(op.outputs[1]).data_ptr<float>() + begin,
          weight.data, add, end - begin, hidden_);
    });
    for (int chunk = 0; chunk < chunks && !partial.empty(); ++chunk)
      device_.kernels().f32.accumulate(weight.gradient, partial.data() + chunk * hidden_, hidden_);
  }

  // gradient (+)= dyᵀ x, over adjacent weights as one matrix [out, in].
  void AddWeightGradient(const std::vector<int>& weights, int64_t out, int64_t in, const at::Tensor& dy,
                         const at::Tensor& x, bool accumulate) {
    at::Tensor gradient = device_.View(Bound(weights[0]).gradient, {out, in}, at::kFloat);
    if (dtype_ == at::kFloat) {
      if (accumulate) {
        gradient.addmm_(dy.t(), x);
      } else {
        at::mm_out(gradient, dy.t(), x);
      }
      return;
    }
    at::Tensor product = Empty({out, in});
    at::mm_out(product, dy.t(), x);
    InParts(out * in, [&](int64_t begin, int64_t end) {
      const void* source = static_cast<const char*>(product.data_ptr()) + begin * product.itemsize();
      (accumulate ? typed_.accumulate : typed_.assign)(gradient.data_ptr<float>() + begin, source,
                                                       end - begin);
    });
  }

  void AddBiasGradient(const BoundParameter& bias, const at::Tensor& dy) {
    if (!bias.accumulate) device_.Zero(bias.gradient, dy.size(1) * kFloatBytes);
    typed_.bias_gradient(bias.gradient, dy.data_ptr(), n_, dy.size(1));
  }

  // A gradient that arrives as a tensor of its own.
  void Receive(int value, at::Tensor gradient) {
    TRAINCTL_CHECK(!Gradient(value).defined());
    Gradient(value) = std::move(gradient);
  }

  void AddLossOfRows(at::Tensor& logits, int64_t first, int64_t rows, float z_loss, bool want_gradient,
                     float scale, double* loss) {
    const auto add = [&](double* sum, int64_t begin, int64_t end) {
      typed_.cross_entropy(sum, Row(logits, begin), view_.targets + first + begin,
                           view_.loss_mask + first + begin, z_loss, want_gradient, scale, end - begin,
                           logits.size(1));
    };
    if (!device_.is_cpu()) return add(loss, 0, rows);
    const int chunks = NumChunks();
    std::vector<double> partial(static_cast<size_t>(chunks), 0.0);
    const int64_t each = (rows + chunks - 1) / chunks;
    at::parallel_for(0, chunks, 1, [&](int64_t chunk_begin, int64_t chunk_end) {
      for (int64_t chunk = chunk_begin; chunk < chunk_end; ++chunk) {
        const int64_t begin = std::min(rows, chunk * each);
        add(&partial[static_cast<size_t>(chunk)], begin, std::min(rows, begin + each));
      }
    });
    for (double part : partial) *loss += part;
  }

  void Rope(at::Tensor& x, float sign) {
    const int64_t heads = r_.spec_.heads + r_.spec_.kv_heads;  // queries and keys lie side by side
    Rows([&](int64_t begin, int64_t end, int) {
      typed_.rope(Row(x, begin), view_.positions + begin, r_.rope_->cos.data_ptr<float>(),
                  r_.rope_->sin.data_ptr<float>(), sign, end - begin, heads, r_.spec_.head_dim, x.size(1));
    });
  }

  AttentionShape AttentionShapeOf() const {
    return {r_.segment_.shape.batch, r_.segment_.shape.seq_len, r_.spec_.heads, r_.spec_.kv_heads,
            r_.spec_.head_dim};
  }

  static void* Row(const at::Tensor& tensor, int64_t row) {
    return static_cast<char*>(tensor.data_ptr()) +
           row * tensor.stride(0) * static_cast<int64_t>(tensor.itemsize());
  }

  // A device shares its work out itself.
  int NumChunks() const {
    return device_.is_cpu() ? static_cast<int>(std::min<int64_t>(r_.threads_, n_)) : 1;
  }

  // Elements that do not depend on one another, shared out between threads.
  template <typename Function>
  void InParts(int64_t count, const Function& function) const {
    if (!device_.is_cpu()) return function(0, count);
    at::parallel_for(0, count, (count + r_.threads_ - 1) / r_.threads_, function);
  }

  // Rows in a fixed number of chunks, so that sums are cut the same way on every run.
  template <typename Function>
  void Rows(const Function& function) const {
    const int chunks = NumChunks();
    if (chunks == 1) return function(0, n_, 0);
    const int64_t each = (n_ + chunks - 1) / chunks;
    at::parallel_for(0, chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t chunk = begin; chunk < end; ++chunk) {
        const int64_t first = std::min(n_, chunk * each);
        function(first, std::min(n_, first + each), static_cast<int>(chunk));
      }
    });
  }

  const SegmentRunner& r_;
  const BoundParameters& parameters_;
  const TokenView& view_;
  const at::ScalarType dtype_;
  const int64_t n_;
  const int64_t hidden_;
  const device::Device& device_;
  const kernels::TypedKernels& typed_;
  std::vector<at::Tensor> values_;
  std::vector<at::Tensor> gradients_;
};

SegmentRunner::SegmentRunner(const device::Device& device, const model::ModelSpec& spec,
                             const std::vector<model::Parameter>& inventory, model::Segment segment,
                             const RopeTables* rope, int threads)
    : device_(device),
      spec_(spec),
      inventory_(inventory),
      segment_(std::move(segment)),
      lifetimes_(model::ComputeLifetimes(segment_)),
      roots_(model::StorageRoots(segment_)),
      rope_(rope),
      threads_(threads) {}

at::Tensor SegmentRunner::Forward(const BoundParameters& parameters, const at::Tensor& input,
                                  const TokenView& view, Saved* saved) const {
  Pass pass(*this, parameters, view);
  pass.SetInput(input);
  pass.RunForward(segment_.operators.size(),
                  saved != nullptr ? lifetimes_.forward_drops : lifetimes_.inference_drops);
  if (saved != nullptr) {
    for (const model::Operator& op : segment_.operators) {
      for (int value : op.saved) {
        if (value != segment_.input) (*saved)[value] = pass.Value(value);
      }
    }
  }
  return pass.Value(segment_.output);
}

at::Tensor SegmentRunner::Backward(const BoundParameters& parameters, const at::Tensor& input,
                                   const TokenView& view, Saved saved, at::Tensor output_gradient) const {
  Pass pass(*this, parameters, view);
  pass.SetInput(input);
  for (auto& [value, tensor] : saved) pass.Value(value) = std::move(tensor);
  saved.clear();
  pass.Gradient(segment_.output) = std::move(output_gradient);
  pass.RunBackward(segment_.operators.size());
  return segment_.input >= 0 ? pass.Gradient(segment_.input) : at::Tensor();
}

at::Tensor SegmentRunner::LossAndGradient(const BoundParameters& parameters, const at::Tensor& input,
                                          const TokenView& view, float z_loss, float scale,
                                          double* loss) const {
  Pass pass(*this, parameters, view);
  pass.SetInput(input);
  pass.RunForward(segment_.operators.size() - 1, lifetimes_.forward_drops);
  pass.CrossEntropy(z_loss, scale, true, loss);
  pass.RunBackward(segment_.operators.size() - 1);
  return pass.Gradient(segment_.input);
}

void SegmentRunner::Loss(const BoundParameters& parameters, const at::Tensor& input, const TokenView& view,
                         double* loss) const {
  Pass pass(*this, parameters, view);
  pass.SetInput(input);
  pass.RunForward(segment_.operators.size() - 1, lifetimes_.inference_drops);
  pass.CrossEntropy(0, 0, false, loss);
}

at::Tensor SegmentRunner::Logits(const BoundParameters& parameters, const at::Tensor& input,
                                 const std::vector<int64_t>& rows) const {
  Pass pass(*this, parameters, TokenView{});
  pass.SetInput(input);
  pass.RunForward(segment_.operators.size() - 1, lifetimes_.inference_drops);
  return pass.Logits(rows);
}

}  // namespace trainctl::nn
