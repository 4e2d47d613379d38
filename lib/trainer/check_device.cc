#include "trainer/check_device.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/counter_rng.h"
#include "base/json.h"
#include "base/status.h"
#include "device/error_text.h"
#include "kernels/kernels.h"
#include "nn/attention.h"
#include "optim/optimizer.h"
#include "trainer/run_worker.h"

namespace trainctl::trainer {
namespace {

using kernels::TypedKernels;

constexpr double kFloatBound = 2e-5;
constexpr double kBf16Bound = 1.0 / 128;

at::ScalarType ToAten(DType dtype) { return dtype == DType::kBF16 ? at::kBFloat16 : at::kFloat; }

// Tensors of one side. An operator's inputs are made on the CPU and copied, so that both sides have the same.
using Tensors = std::vector<at::Tensor>;

struct Operator {
  std::string name;
  double bound = 0;
  Tensors inputs;  // of the CPU; results are written over copies of some of them
  std::vector<size_t> results;
  std::function<void(const device::Device&, Tensors&)> run;
  bool any_order = false;  // sums need not have an order, so another kernel may serve
};

Tensors CopiesOn(const device::Device& device, const Tensors& inputs) {
  Tensors copies;
  for (const at::Tensor& input : inputs) {
    copies.push_back(at::empty(input.sizes(), device.Options(input.scalar_type())));
    device.CopyToDevice(copies.back().data_ptr(), input.data_ptr(), static_cast<int64_t>(input.nbytes()));
  }
  return copies;
}

Tensors ResultsOf(const device::Device& device, const Operator& op) {
  Tensors tensors = CopiesOn(device, op.inputs);
  op.run(device, tensors);
  Tensors results;
  for (size_t i : op.results) {
    results.push_back(at::empty(op.inputs[i].sizes(), at::TensorOptions(op.inputs[i].scalar_type())));
    device.CopyToHost(results.back().data_ptr(), tensors[i].data_ptr(),
                      static_cast<int64_t>(results.back().nbytes()));
  }
  return results;
}

double ErrorOf(const at::Tensor& got, const at::Tensor& wanted) {
  const at::Tensor a = got.to(at::kDouble), b = wanted.to(at::kDouble);
  const double largest = b.abs().max().item<double>();
  const double difference = (a - b).abs().max().item<double>();
  return difference == 0 ? 0 : difference / std::max(largest, 1e-30);
}

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  return std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0;
}

OperatorCheck Check(const device::Device& device, const Operator& op) {
  const Tensors wanted = ResultsOf(device::Device::Cpu(), op);
  at::globalContext().setDeterministicAlgorithms(!op.any_order, /*warn_only=*/false);
  const Tensors got = ResultsOf(device, op);
  const Tensors again = ResultsOf(device, op);
  OperatorCheck check{op.name, 0, op.bound, /*deterministic=*/true, !op.any_order};
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double error = ErrorOf(got[i], wanted[i]);
    if (!(error <= check.error)) check.error = error;  // NaN stays
    check.deterministic = check.deterministic && SameBits(got[i], again[i]);
  }
  return check;
}

// Random values of the standard normal distribution, the same everywhere.
class Maker {
 public:
  explicit Maker(DType dtype) : dtype_(dtype) {}
  at::Tensor Floats(at::IntArrayRef sizes, double scale = 1) {
    at::Tensor x = at::empty(sizes, at::kFloat);
    float* data = x.data_ptr<float>();
    ++stream_;
    for (int64_t i = 0; i < x.numel(); ++i) {
      data[i] = static_cast<float>(scale * RandomNormal(7, stream_, static_cast<uint64_t>(i)));
    }
    return x;
  }
  at::Tensor Values(at::IntArrayRef sizes, double scale = 1) {
    return Floats(sizes, scale).to(ToAten(dtype_));
  }
  // Whole numbers below `limit`.
  at::Tensor Words(int64_t count, int64_t limit) {
    at::Tensor x = at::empty({count}, at::kInt);
    ++stream_;
    for (int64_t i = 0; i < count; ++i) {
      x.data_ptr<int32_t>()[i] = static_cast<int32_t>(RandomBits(stream_, 1, static_cast<uint64_t>(i)) %
                                                      static_cast<uint64_t>(limit));
    }
    return x;
  }

 private:
  DType dtype_;
  uint64_t stream_ = 0;
};

class Operators {
 public:
  Operators(DType dtype, int64_t n, int64_t h)
      : dtype_(dtype), n_(n), h_(h), bound_(dtype == DType::kBF16 ? kBf16Bound : kFloatBound), make_(dtype) {}

  std::vector<Operator> All() {
    Embedding();
    RmsNorm();
    Rope();
    JoinHeads();
    SwiGlu();
    Elementwise();
    CrossEntropy();
    Products();
    if (dtype_ == DType::kF32) Optimizer();
    return std::move(operators_);
  }

 private:
  using Run = std::function<void(const device::Device&, const TypedKernels&, Tensors&)>;

  void Add(const char* name, Tensors inputs, std::vector<size_t> results, Run run, double bound = -1) {
    const DType dtype = dtype_;
    operators_.push_back({absl::StrCat(name, " ", DTypeName(dtype_), " n=", n_, " h=", h_),
                          bound < 0 ? bound_ : bound, std::move(inputs), std::move(results),
                          [run = std::move(run), dtype](const device::Device& device, Tensors& t) {
                            run(device, device.kernels().For(dtype), t);
                          }});
  }

  static const int32_t* Words(const at::Tensor& x) { return x.data_ptr<int32_t>(); }

  void Embedding() {
    const int64_t n = n_, h = h_;
    Add("embedding", {make_.Values({n, h}), make_.Values({64, h}), make_.Words(n, 64)}, {0},
        [n, h](const device::Device&, const TypedKernels& k, Tensors& t) {
          k.embedding(t[0].data_ptr(), t[1].data_ptr(), Words(t[2]), n, h);
        });
    Add(
        "embedding_backward", {make_.Floats({64, h}), make_.Values({n, h}), make_.Words(n, 64)}, {0},
        [n, h](const device::Device&, const TypedKernels& k, Tensors& t) {
          k.embedding_backward(t[0].data_ptr<float>(), t[1].data_ptr(), Words(t[2]), n, h);
        },
        kFloatBound);
  }

  void RmsNorm() {
    const int64_t n = n_, h = h_;
    Add("rms_norm", {make_.Values({n, h}), make_.Floats({n}), make_.Values({n, h}), make_.Values({h})},
        {0, 1}, [n, h](const device::Device&, const TypedKernels& k, Tensors& t) {
          k.rms_norm(t[0].data_ptr(), t[1].data_ptr<float>(), t[2].data_ptr(), t[3].data_ptr(), 1e-5f, n, h);
        });
    Add("add_rms_norm",
        {make_.Values({n, h}), make_.Floats({n}), make_.Values({n, h}), make_.Values({h}),
         make_.Values({n, h})},
        {0, 1, 4}, [n, h](const device::Device&, const TypedKernels& k, Tensors& t) {
          k.add_rms_norm(t[4].data_ptr(), t[0].data_ptr(), t[1].data_ptr(), t[2].data_ptr(), t[3].data_ptr(),
                         1e-5f, n, h);
        });
    for (bool accumulate : {false, true}) {
      Add(accumulate ? "rms_norm_backward added" : "rms_norm_backward",
          {make_.Values({n, h}), make_.Floats({h}), make_.Values({n, h}), make_.Values({n, h}),
           make_.Floats({n}).abs_(), make_.Values({h})},
          {0, 1}, [n, h, accumulate](const device::Device&, const TypedKernels& k, Tensors& t) {
            k.rms_norm_backward(t[0].data_ptr(), t[1].data_ptr<float>(), t[2].data_ptr(), t[3].data_ptr(),
                                t[4].data_ptr<float>(), t[5].data_ptr(), accumulate, n, h);
          });
    }
  }

  void Rope() {
    const int64_t n = n_, d = 64, heads = 3, stride = 4 * d;
    for (float sign : {1.0f, -1.0f}) {
      Add(sign > 0 ? "rope" : "rope backward",
          {make_.Values({n, stride}), make_.Words(n, 128), make_.Floats({128, d / 2}).cos_(),
           make_.Floats({128, d / 2}).sin_()},
          {0}, [=](const device::Device&, const TypedKernels& k, Tensors& t) {
            k.rope(t[0].data_ptr(), Words(t[1]), t[2].data_ptr<float>(), t[3].data_ptr<float>(), sign, n,
                   heads, d, stride);
          });
    }
  }

  void JoinHeads() {
    const int64_t n = n_, d = 64, heads = 6, kv_heads = 2;
    Add("join_heads",
        {make_.Values({n, (heads + 2 * kv_heads) * d}), make_.Values({n, heads * d}),
         make_.Values({n, kv_heads * d}), make_.Values({n, kv_heads * d}), make_.Words(n, 128),
         make_.Floats({128, d / 2}).cos_(), make_.Floats({128, d / 2}).sin_()},
        {0}, [=](const device::Device&, const TypedKernels& k, Tensors& t) {
          k.join_heads(t[0].data_ptr(), t[1].data_ptr(), t[2].data_ptr(), t[3].data_ptr(), Words(t[4]),
                       t[5].data_ptr<float>(), t[6].data_ptr<float>(), n, heads, kv_heads, d);
        });
  }

  void SwiGlu() {
    const int64_t n = n_, f = h_;
    Add("swiglu", {make_.Values({n, f}), make_.Values({n, 2 * f})}, {0},
        [n, f](const device::Device&, const TypedKernels& k, Tensors& t) {
          k.swiglu(t[0].data_ptr(), t[1].data_ptr(), n, f);
        });
    Add("swiglu_backward", {make_.Values({n, 2 * f}), make_.Values({n, f})}, {0},
        [n, f](const device::Device&, const TypedKernels& k, Tensors& t) {
          k.swiglu_backward(t[0].data_ptr(), t[1].data_ptr(), t[0].data_ptr(), n, f);  // over its own input
        });
  }

  void Elementwise() {
    const int64_t n = n_, h = h_, count = n * h;
    Add("add", {make_.Values({n, h}), make_.Values({n, h})}, {0},
        [=](const device::Device&, const TypedKernels& k, Tensors& t) {
          k.add(t[0].data_ptr(), t[1].data_ptr(), count);
        });
    Add("add_bias", {make_.Values({n, h}), make_.Values({h})}, {0},
        [=](const device::Device&, const TypedKernels& k, Tensors& t) {
          k.add_bias(t[0].data_ptr(), t[1].data_ptr(), n, h);
        });
    Add(
        "bias_gradient", {make_.Floats({h}), make_.Values({n, h})}, {0},
        [=](const device::Device&, const TypedKernels& k, Tensors& t) {
          k.bias_gradient(t[0].data_ptr<float>(), t[1].data_ptr(), n, h);
        },
        kFloatBound);
    Add(
        "accumulate", {make_.Floats({n, h}), make_.Values({n, h})}, {0},
        [=](const device::Device&, const TypedKernels& k, Tensors& t) {
          k.accumulate(t[0].data_ptr<float>(), t[1].data_ptr(), count);
        },
        kFloatBound);
    Add(
        "assign", {make_.Floats({n, h}), make_.Values({n, h})}, {0},
        [=](const device::Device&, const TypedKernels& k, Tensors& t) {
          k.assign(t[0].data_ptr<float>(), t[1].data_ptr(), count);
        },
        0);
    Add(
        "round", {make_.Values({n, h}), make_.Floats({n, h})}, {0},
        [=](const device::Device&, const TypedKernels& k, Tensors& t) {
          k.round(t[0].data_ptr(), t[1].data_ptr<float>(), count);
        },
        0);
  }

  void CrossEntropy() {
    const int64_t n = n_, vocab = h_;
    for (bool want_gradient : {false, true}) {
      Add(want_gradient ? "cross_entropy with gradient" : "cross_entropy",
          {make_.Floats({1}).to(at::kDouble), make_.Values({n, vocab}, 3), make_.Words(n, vocab),
           make_.Words(n, 4).ne(0).to(at::kByte), at::full({1}, 0.01f)},
          want_gradient ? std::vector<size_t>{0, 1} : std::vector<size_t>{0},
          [=](const device::Device&, const TypedKernels& k, Tensors& t) {
            k.cross_entropy(t[0].data_ptr<double>(), t[1].data_ptr(), Words(t[2]), t[3].data_ptr<uint8_t>(),
                            1e-4f, want_gradient ? t[4].data_ptr<float>() : nullptr, n, vocab);
          });
    }
  }

  void Products() {
    const int64_t n = n_, h = h_;
    Add("matrix product", {make_.Values({n, 2 * h}), make_.Values({n, h}), make_.Values({2 * h, h}, 0.05)},
        {0},
        [](const device::Device&, const TypedKernels&, Tensors& t) { at::mm_out(t[0], t[1], t[2].t()); });
    std::vector<int32_t> document(2 * 96, 0);
    for (size_t i = 40; i < 96; ++i)
      document[i] = 1;  // two documents in the first sequence, one in the second
    Attention("attention and its gradient", {2, 96, 6, 2, 64}, document, {0, 1, 4});
    // Sequences of one document, which a device may serve with another kernel. It may keep the logarithms of
    // sums in an order of its own; the gradient is wrong where they are.
    Attention("attention of whole sequences and its gradient", {2, 192, 6, 2, 64},
              std::vector<int32_t>(2 * 192, 0), {0, 4});
    operators_.back().any_order = true;
  }

  void Attention(const char* name, const nn::AttentionShape& shape, const std::vector<int32_t>& document,
                 std::vector<size_t> results) {
    const int64_t tokens = shape.batch * shape.seq_len, width = shape.heads * shape.head_dim;
    const int64_t fused = (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
    Tensors inputs = {make_.Values({tokens, width}),
                      make_.Floats({shape.heads, tokens}),
                      make_.Values({tokens, fused}),
                      make_.Values({tokens, width}),
                      make_.Values({tokens, fused}),
                      make_.Words(tokens, shape.seq_len),
                      make_.Floats({shape.seq_len, shape.head_dim / 2}).cos_(),
                      make_.Floats({shape.seq_len, shape.head_dim / 2}).sin_()};
    Add(
        name, std::move(inputs), std::move(results),
        [=](const device::Device& device, const TypedKernels& k, Tensors& t) {
          const nn::TokenView host{.document = document.data()};
          const nn::DeviceTokens on_device(device, {&host, 1}, {shape.batch, shape.seq_len});
          const nn::TokenView& view = on_device.view(0);
          nn::AttentionForward(shape, t[2], view, t[0], t[1]);
          const nn::RopeTables angles = {t[6], t[7]};
          nn::AttentionBackward(shape, t[2], view, t[0], t[1], t[3], {k, Words(t[5]), angles}, t[4]);
        },
        dtype_ == DType::kBF16 ? 2 * kBf16Bound : kFloatBound);
  }

  void Optimizer() {
    const int64_t count = n_ * h_;
    const kernels::UpdateOptions options{.lr = 0.01f,
                                         .beta1 = 0.9f,
                                         .beta2 = 0.95f,
                                         .eps = 1e-8f,
                                         .momentum = 0.9f,
                                         .weight_decay = 0.1f,
                                         .factor = 0.5f,
                                         .bias_correction1 = 0.2f,
                                         .bias_correction2 = 0.1f,
                                         .rounding_key = 7};
    for (const optim::Optimizer* optimizer : optim::All()) {
      // The second moments are not negative.
      // In two ranges, of which the second does not decay.
      const auto update = [=](const device::Device& device, Tensors& t, DType master, void* copy) {
        const optim::Parts parts = {t[0].data_ptr(), {t[1].data_ptr(), t[2].data_ptr()}, copy};
        const int64_t first = count / 4 * 3;
        kernels::UpdateRange ranges[2] = {
            optim::RangeOf(*optimizer, master, parts, t[3].data_ptr(), 0, first),
            optim::RangeOf(*optimizer, master, parts, t[3].data_ptr(), first, count - first)};
        ranges[0].decays = true;
        ranges[1].number = static_cast<uint64_t>(first);
        device.kernels().Masters(master).For(optimizer->rule)(
            ranges, 2, static_cast<const kernels::UpdateOptions*>(t[4].data_ptr()));
      };
      at::Tensor given = at::empty({sizeof(options)}, at::kByte);
      std::memcpy(given.data_ptr(), &options, sizeof(options));
      Add(optimizer->name.data(),
          {make_.Floats({count}), make_.Floats({count}), make_.Floats({count}).abs_(), make_.Floats({count}),
           given},
          {0, 1, 2}, [update](const device::Device& device, const TypedKernels&, Tensors& t) {
            update(device, t, DType::kF32, nullptr);
          });
      // A last bit in fp32 can turn a chance.
      Add(
          absl::StrCat(optimizer->name, "_of_bf16").c_str(),
          {make_.Floats({count}).to(at::kBFloat16), make_.Floats({count}), make_.Floats({count}).abs_(),
           make_.Floats({count}), given},
          {0, 1, 2},
          [update](const device::Device& device, const TypedKernels&, Tensors& t) {
            update(device, t, DType::kBF16, nullptr);
          },
          kBf16Bound);
      Add(
          absl::StrCat(optimizer->name, "_with_copy").c_str(),
          {make_.Floats({count}), make_.Floats({count}), make_.Floats({count}).abs_(), make_.Floats({count}),
           given, make_.Floats({count}).to(at::kBFloat16)},
          {0, 1, 2, 5},
          [update](const device::Device& device, const TypedKernels&, Tensors& t) {
            update(device, t, DType::kF32, t[5].data_ptr());
          },
          kBf16Bound);
    }
    Add("sum_of_squares", {make_.Floats({1}).to(at::kDouble), make_.Floats({count})}, {0},
        [=](const device::Device& device, const TypedKernels&, Tensors& t) {
          const auto* const x = t[1].data_ptr<float>();
          const kernels::UpdateRange ranges[2] = {{.gradient = x, .count = count / 2},
                                                  {.gradient = x + count / 2, .count = count - count / 2}};
          device.kernels().masters_f32.sum_of_squares(t[0].data_ptr<double>(), ranges, 2);
        });
    Add("clip_factor",
        {make_.Floats({1}), make_.Floats({1}).to(at::kDouble), make_.Floats({1}).abs_().to(at::kDouble)}, {0},
        [](const device::Device& device, const TypedKernels&, Tensors& t) {
          device.kernels().masters_f32.clip_factor(t[0].data_ptr<float>(), t[1].data_ptr<double>(),
                                                   t[2].data_ptr<double>(), /*clip_norm=*/0.1);
        });
    Add(
        "sum_in_order", {make_.Floats({count}), make_.Floats({count}), make_.Floats({count})}, {0},
        [=](const device::Device& device, const TypedKernels&, Tensors& t) {
          const float* summands[] = {t[0].data_ptr<float>(), t[1].data_ptr<float>(), t[2].data_ptr<float>()};
          device.kernels().sum_in_order(t[0].data_ptr<float>(), summands, 3, count);
        },
        0);
  }

  const DType dtype_;
  const int64_t n_, h_;
  const double bound_;
  Maker make_;
  std::vector<Operator> operators_;
};

}  // namespace

std::vector<OperatorCheck> CheckOperators(const device::Device& device) {
  std::vector<OperatorCheck> checks;
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    // A width that vectors and blocks divide, and one that they do not.
    for (const auto& [n, h] : {std::pair<int64_t, int64_t>{96, 1024}, {37, 515}}) {
      for (const Operator& op : Operators(dtype, n, h).All()) checks.push_back(Check(device, op));
    }
  }
  return checks;
}

absl::StatusOr<int> CheckDevice(const std::string& plugin_path, int ordinal) {
  try {
    TRAINCTL_ASSIGN_OR_RETURN(const auto device,
                              device::Device::Open(plugin_path, ordinal, /*deterministic=*/true));
    device->UseNewStream();
    bool all_ok = true;
    for (const OperatorCheck& check : CheckOperators(*device)) {
      Json line = {{"operator", check.name},
                   {"bound", check.bound},
                   {"deterministic", check.deterministic},
                   {"ok", check.ok()}};
      line["error"] = std::isfinite(check.error) ? Json(check.error) : Json("nan");
      std::printf("%s\n", line.dump().c_str());
      all_ok = all_ok && check.ok();
    }
    TRAINCTL_RETURN_IF_ERROR(device->Synchronize());
    return all_ok ? 0 : 1;
  } catch (const std::exception& error) {
    return InternalError(device::ErrorText(error));
  }
}

}  // namespace trainctl::trainer
