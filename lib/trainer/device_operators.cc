#include "trainer/device_operators.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/counter_rng.h"
#include "base/dtype.h"
#include "device/aten.h"
#include "kernels/kernels.h"
#include "nn/attention.h"
#include "optim/optimizer.h"

namespace trainctl::trainer {
namespace {

using kernels::TypedKernels;
using Tensors = std::vector<at::Tensor>;

at::ScalarType ToAten(DType dtype) { return dtype == DType::kBF16 ? at::kBFloat16 : at::kFloat; }

constexpr double kFloatBound = 2e-5;
constexpr double kBf16Bound = 1.0 / 128;

// Random values of the standard normal distribution, the same everywhere. Of large tensors a part is drawn,
// and repeated.
class Maker {
 public:
  explicit Maker(DType dtype) : dtype_(dtype) {}
  at::Tensor Floats(at::IntArrayRef sizes, double scale = 1) {
    int64_t numel = 1;
    for (const int64_t size : sizes) numel *= size;
    const int64_t drawn = std::min(numel, kMostDrawn);
    at::Tensor x = at::empty({drawn}, at::kFloat);
    float* data = x.data_ptr<float>();
    ++stream_;
    for (int64_t i = 0; i < drawn; ++i) {
      data[i] = static_cast<float>(scale * RandomNormal(7, stream_, static_cast<uint64_t>(i)));
    }
    if (drawn < numel) x = x.repeat({(numel + drawn - 1) / drawn}).narrow(0, 0, numel);
    return x.reshape(sizes);
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
  static constexpr int64_t kMostDrawn = 1 << 20;
  DType dtype_;
  uint64_t stream_ = 0;
};

// Of an operator's inputs, those that it writes, and of these those whose former values it does not read.
struct Results {
  std::vector<size_t> all;
  std::vector<size_t> unread;
};

class Operators {
 public:
  Operators(DType dtype, const OperatorSizes& sizes, const OperatorVisitor& visit, const std::string& only)
      : dtype_(dtype),
        sizes_(sizes),
        n_(sizes.rows),
        h_(sizes.width),
        bound_(dtype == DType::kBF16 ? kBf16Bound : kFloatBound),
        make_(dtype),
        visit_(visit),
        only_(only) {}

  void Passes() {
    Embedding();
    RmsNorm();
    RmsNormHeads();
    LayerNorm();
    Rope();
    PartialRope();
    JoinHeads();
    SwiGlu();
    Activations();
    Elementwise();
    CrossEntropy();
  }
  void Products() {
    const int64_t n = n_, h = h_;
    Add(
        "matrix product",
        [&] {
          return Tensors{make_.Values({n, 2 * h}), make_.Values({n, h}), make_.Values({2 * h, h}, 0.05)};
        },
        {{0}, {0}},
        [](const device::Device&, const TypedKernels&, Tensors& t) { at::mm_out(t[0], t[1], t[2].t()); });
    std::vector<int32_t> document(2 * 96, 0);
    for (size_t i = 40; i < 96; ++i)
      document[i] = 1;  // two documents in the first sequence, one in the second
    Attention("attention and its gradient", {2, 96, 6, 2, 64}, document, {0, 1, 4}, /*any_order=*/false);
    // Sequences of one document, which a device may serve with another kernel. It may keep the logarithms of
    // sums in an order of its own; the gradient is wrong where they are.
    Attention("attention of whole sequences and its gradient", {2, 192, 6, 2, 64},
              std::vector<int32_t>(2 * 192, 0), {0, 4}, /*any_order=*/true);
    const nn::AttentionShape windowed = {
        .batch = 2, .seq_len = 96, .heads = 6, .kv_heads = 2, .head_dim = 64, .scale = 0.1, .window = 21};
    Attention("attention in a window and its gradient", windowed, document, {0, 1, 4}, /*any_order=*/false);
    nn::AttentionShape capped = windowed;
    capped.softcap = 5;
    Attention("attention with a soft cap and its gradient", capped, document, {0, 1, 4}, /*any_order=*/false);
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
      // Second moments are not negative; one optimizer has none.
      const int64_t second = optimizer->states.size() > 1 ? count : 1;
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
      Add(
          std::string(optimizer->name),
          [&] {
            return Tensors{make_.Floats({count}), make_.Floats({count}), make_.Floats({second}).abs_(),
                           make_.Floats({count}), given};
          },
          {{0, 1, 2}, {}},
          [update](const device::Device& device, const TypedKernels&, Tensors& t) {
            update(device, t, DType::kF32, nullptr);
          });
      // A last bit in fp32 can turn a chance.
      Add(
          absl::StrCat(optimizer->name, "_of_bf16"),
          [&] {
            return Tensors{make_.Floats({count}).to(at::kBFloat16), make_.Floats({count}),
                           make_.Floats({second}).abs_(), make_.Floats({count}), given};
          },
          {{0, 1, 2}, {}},
          [update](const device::Device& device, const TypedKernels&, Tensors& t) {
            update(device, t, DType::kBF16, nullptr);
          },
          kBf16Bound);
      Add(
          absl::StrCat(optimizer->name, "_with_copy"),
          [&] {
            return Tensors{make_.Floats({count}),
                           make_.Floats({count}),
                           make_.Floats({second}).abs_(),
                           make_.Floats({count}),
                           given,
                           make_.Floats({count}).to(at::kBFloat16)};
          },
          {{0, 1, 2, 5}, {5}},
          [update](const device::Device& device, const TypedKernels&, Tensors& t) {
            update(device, t, DType::kF32, t[5].data_ptr());
          },
          kBf16Bound);
    }
    Add(
        "sum_of_squares",
        [&] {
          return Tensors{make_.Floats({1}).to(at::kDouble), make_.Floats({count})};
        },
        {{0}, {}},
        [=](const device::Device& device, const TypedKernels&, Tensors& t) {
          const auto* const x = t[1].data_ptr<float>();
          const kernels::UpdateRange ranges[2] = {{.gradient = x, .count = count / 2},
                                                  {.gradient = x + count / 2, .count = count - count / 2}};
          device.kernels().masters_f32.sum_of_squares(t[0].data_ptr<double>(), ranges, 2);
        });
    Add(
        "clip_factor",
        [&] {
          return Tensors{make_.Floats({1}), make_.Floats({1}).to(at::kDouble),
                         make_.Floats({1}).abs_().to(at::kDouble)};
        },
        {{0}, {0}},
        [](const device::Device& device, const TypedKernels&, Tensors& t) {
          device.kernels().masters_f32.clip_factor(t[0].data_ptr<float>(), t[1].data_ptr<double>(),
                                                   t[2].data_ptr<double>(), /*clip_norm=*/0.1);
        });
    Add(
        "sum_in_order",
        [&] {
          return Tensors{make_.Floats({count}), make_.Floats({count}), make_.Floats({count})};
        },
        {{0}, {}},
        [=](const device::Device& device, const TypedKernels&, Tensors& t) {
          const float* summands[] = {t[0].data_ptr<float>(), t[1].data_ptr<float>(), t[2].data_ptr<float>()};
          device.kernels().sum_in_order(t[0].data_ptr<float>(), summands, 3, count);
        },
        0);
  }

 private:
  using Run = std::function<void(const device::Device&, const TypedKernels&, Tensors&)>;

  // Makes inputs only for matching operators: drawing all of them takes half a minute.
  template <typename MakeInputs>
  void Add(const std::string& name, const MakeInputs& make_inputs, Results results, Run run,
           double bound = -1, bool any_order = false) {
    const DType dtype = dtype_;
    std::string full_name = absl::StrCat(name, " ", DTypeName(dtype_), " n=", n_, " h=", h_);
    if (!absl::StrContains(full_name, only_)) return;
    visit_({.name = std::move(full_name),
            .bound = bound < 0 ? bound_ : bound,
            .any_order = any_order,
            .inputs = make_inputs(),
            .results = std::move(results.all),
            .unread = std::move(results.unread),
            .run = [run = std::move(run), dtype](const device::Device& device, Tensors& t) {
              run(device, device.kernels().For(dtype), t);
            }});
  }

  static const int32_t* Words(const at::Tensor& x) { return x.data_ptr<int32_t>(); }

  void Embedding() {
    const int64_t n = n_, h = h_, words = sizes_.words;
    Add(
        "embedding",
        [&] {
          return Tensors{make_.Values({n, h}), make_.Values({words, h}), make_.Words(n, words)};
        },
        {{0}, {0}},
        [n, h](const device::Device&, const TypedKernels& k, Tensors& t) {
          k.embedding(t[0].data_ptr(), t[1].data_ptr(), Words(t[2]), n, h);
        });
    Add(
        "embedding_backward",
        [&] {
          return Tensors{make_.Floats({words, h}), make_.Values({n, h}), make_.Words(n, words)};
        },
        {{0}, {}},
        [n, h](const device::Device&, const TypedKernels& k, Tensors& t) {
          k.embedding_backward(t[0].data_ptr<float>(), t[1].data_ptr(), Words(t[2]), n, h);
        },
        kFloatBound);
  }

  void RmsNorm() {
    const int64_t n = n_, h = h_;
    Add(
        "rms_norm",
        [&] {
          return Tensors{make_.Values({n, h}), make_.Floats({n}), make_.Values({n, h}), make_.Values({h})};
        },
        {{0, 1}, {0, 1}},
        [n, h](const device::Device&, const TypedKernels& k, Tensors& t) {
          k.rms_norm(t[0].data_ptr(), t[1].data_ptr<float>(), t[2].data_ptr(), t[3].data_ptr(),
                     kernels::Gain::kWeight, 1e-5f, n, h);
        });
    Add(
        "add_rms_norm",
        [&] {
          return Tensors{make_.Values({n, h}), make_.Floats({n}), make_.Values({n, h}), make_.Values({h}),
                         make_.Values({n, h})};
        },
        {{0, 1, 4}, {0, 1}},
        [n, h](const device::Device&, const TypedKernels& k, Tensors& t) {
          k.add_rms_norm(t[4].data_ptr(), t[0].data_ptr(), t[1].data_ptr(), t[2].data_ptr(), t[3].data_ptr(),
                         kernels::Gain::kOnePlusWeight, 1e-5f, n, h);
        });
    for (bool accumulate : {false, true}) {
      Add(
          accumulate ? "rms_norm_backward added" : "rms_norm_backward",
          [&] {
            return Tensors{make_.Values({n, h}), make_.Floats({h}),        make_.Values({n, h}),
                           make_.Values({n, h}), make_.Floats({n}).abs_(), make_.Values({h})};
          },
          {{0, 1}, accumulate ? std::vector<size_t>{} : std::vector<size_t>{0}},
          [n, h, accumulate](const device::Device&, const TypedKernels& k, Tensors& t) {
            k.rms_norm_backward(t[0].data_ptr(), t[1].data_ptr<float>(), t[2].data_ptr(), t[3].data_ptr(),
                                t[4].data_ptr<float>(), t[5].data_ptr(),
                                accumulate ? kernels::Gain::kOnePlusWeight : kernels::Gain::kWeight,
                                accumulate, n, h);
          });
    }
  }

  // A norm of the first heads of each row, and its gradient with that of the weight.
  void RmsNormHeads() {
    const int64_t n = n_, d = 64, heads = 3 * sizes_.heads;
    const int64_t stride = (sizes_.is_dense ? 3 : 4) * sizes_.heads * d;
    Add(
        "rms_norm_heads",
        [&] {
          return Tensors{make_.Values({n, heads * d}), make_.Floats({n, heads}), make_.Values({n, stride}),
                         make_.Values({d})};
        },
        {{0, 1}, {0, 1}},
        [=](const device::Device&, const TypedKernels& k, Tensors& t) {
          k.rms_norm_heads(t[0].data_ptr(), t[1].data_ptr(), t[2].data_ptr(), t[3].data_ptr(),
                           kernels::Gain::kWeight, 1e-5f, n, heads, d, heads * d, stride);
        });
    Add(
        "rms_norm_heads_backward",
        [&] {
          return Tensors{make_.Values({n, stride}), make_.Floats({d}), make_.Values({n, stride}),
                         make_.Floats({n, heads}).abs_(), make_.Values({d})};
        },
        {{0, 1}, {}},
        [=](const device::Device&, const TypedKernels& k, Tensors& t) {
          k.rms_norm_heads_backward(t[0].data_ptr(), t[1].data_ptr(), t[0].data_ptr(), t[2].data_ptr(),
                                    t[3].data_ptr(), t[4].data_ptr(), kernels::Gain::kOnePlusWeight, n, heads,
                                    d, stride, stride);  // in place
        });
  }

  void LayerNorm() {
    const int64_t n = n_, h = h_;
    Add(
        "layer_norm",
        [&] {
          return Tensors{make_.Values({n, h}), make_.Floats({n}), make_.Floats({n}),
                         make_.Values({n, h}), make_.Values({h}), make_.Values({h})};
        },
        {{0, 1, 2}, {0, 1, 2}},
        [n, h](const device::Device&, const TypedKernels& k, Tensors& t) {
          k.layer_norm(t[0].data_ptr(), t[1].data_ptr(), t[2].data_ptr(), t[3].data_ptr(), t[4].data_ptr(),
                       t[5].data_ptr(), kernels::Gain::kWeight, 1e-5f, n, h);
        });
    Add(
        "layer_norm_backward",
        [&] {
          return Tensors{make_.Values({n, h}),     make_.Floats({h}),    make_.Floats({h}),
                         make_.Values({n, h}),     make_.Values({n, h}), make_.Floats({n}),
                         make_.Floats({n}).abs_(), make_.Values({h})};
        },
        {{0, 1, 2}, {}},
        [n, h](const device::Device&, const TypedKernels& k, Tensors& t) {
          k.layer_norm_backward(t[0].data_ptr(), t[1].data_ptr(), t[2].data_ptr(), t[3].data_ptr(),
                                t[4].data_ptr(), t[5].data_ptr(), t[6].data_ptr(), t[7].data_ptr(),
                                kernels::Gain::kWeight, /*accumulate=*/true, n, h);
        });
  }

  void Rope() {
    const int64_t n = n_, d = 64, heads = 3 * sizes_.heads;
    const int64_t stride = (sizes_.is_dense ? 3 : 4) * sizes_.heads * d;
    for (float sign : {1.0f, -1.0f}) {
      Add(
          sign > 0 ? "rope" : "rope backward",
          [&] {
            return Tensors{make_.Values({n, stride}), make_.Words(n, 128), make_.Floats({128, d / 2}).cos_(),
                           make_.Floats({128, d / 2}).sin_()};
          },
          {{0}, {}},
          [=](const device::Device&, const TypedKernels& k, Tensors& t) {
            k.rope(t[0].data_ptr(), Words(t[1]), t[2].data_ptr<float>(), t[3].data_ptr<float>(), sign,
                   kernels::RopePairs::kHalves, n, heads, d, /*rotated=*/d, stride);
          });
    }
  }

  // RoPE of half of each head.
  void PartialRope() {
    const int64_t n = n_, d = 64, rotated = 32, heads = 3 * sizes_.heads;
    const int64_t stride = (sizes_.is_dense ? 3 : 4) * sizes_.heads * d;
    for (const bool are_neighbors : {false, true}) {
      Add(
          are_neighbors ? "partial rope of neighbors" : "partial rope",
          [&] {
            return Tensors{make_.Values({n, stride}), make_.Words(n, 128),
                           make_.Floats({128, rotated / 2}).cos_(), make_.Floats({128, rotated / 2}).sin_()};
          },
          {{0}, {}},
          [=](const device::Device&, const TypedKernels& k, Tensors& t) {
            k.rope(t[0].data_ptr(), Words(t[1]), t[2].data_ptr<float>(), t[3].data_ptr<float>(), 1,
                   are_neighbors ? kernels::RopePairs::kNeighbors : kernels::RopePairs::kHalves, n, heads, d,
                   rotated, stride);
          });
    }
  }

  void JoinHeads() {
    const int64_t n = n_, d = 64, heads = 6 * sizes_.heads, kv_heads = 2 * sizes_.heads;
    Add(
        "join_heads",
        [&] {
          return Tensors{make_.Values({n, (heads + 2 * kv_heads) * d}),
                         make_.Values({n, heads * d}),
                         make_.Values({n, kv_heads * d}),
                         make_.Values({n, kv_heads * d}),
                         make_.Words(n, 128),
                         make_.Floats({128, d / 2}).cos_(),
                         make_.Floats({128, d / 2}).sin_()};
        },
        {{0}, {0}},
        [=](const device::Device&, const TypedKernels& k, Tensors& t) {
          k.join_heads(t[0].data_ptr(), t[1].data_ptr(), t[2].data_ptr(), t[3].data_ptr(), Words(t[4]),
                       t[5].data_ptr<float>(), t[6].data_ptr<float>(), n, heads, kv_heads, d);
        });
  }

  void SwiGlu() {
    const int64_t n = n_, f = h_;
    Add(
        "swiglu",
        [&] {
          return Tensors{make_.Values({n, f}), make_.Values({n, 2 * f})};
        },
        {{0}, {0}},
        [n, f](const device::Device&, const TypedKernels& k, Tensors& t) {
          k.gated_activation(t[0].data_ptr(), t[1].data_ptr(), kernels::Activation::kSiLU, n, f);
        });
    Add(
        "swiglu_backward",
        [&] {
          return Tensors{make_.Values({n, 2 * f}), make_.Values({n, f})};
        },
        {{0}, {}},
        [n, f](const device::Device&, const TypedKernels& k, Tensors& t) {
          k.gated_activation_backward(t[0].data_ptr(), t[1].data_ptr(), t[0].data_ptr(),  // in place
                                      kernels::Activation::kSiLU, n, f);
        });
  }

  void Activations() {
    const int64_t n = n_, f = h_;
    const std::pair<const char*, kernels::Activation> activations[] = {
        {"silu", kernels::Activation::kSiLU},
        {"gelu", kernels::Activation::kGelu},
        {"gelu_tanh", kernels::Activation::kGeluTanh},
        {"relu", kernels::Activation::kRelu},
        {"relu_squared", kernels::Activation::kReluSquared}};
    for (const auto& [name, activation] : activations) {
      Add(
          absl::StrCat("gated ", name),
          [&] {
            return Tensors{make_.Values({n, f}), make_.Values({n, 2 * f})};
          },
          {{0}, {0}},
          [n, f, activation = activation](const device::Device&, const TypedKernels& k, Tensors& t) {
            k.gated_activation(t[0].data_ptr(), t[1].data_ptr(), activation, n, f);
          });
      Add(
          absl::StrCat("gated ", name, " backward"),
          [&] {
            return Tensors{make_.Values({n, 2 * f}), make_.Values({n, f})};
          },
          {{0}, {}},
          [n, f, activation = activation](const device::Device&, const TypedKernels& k, Tensors& t) {
            k.gated_activation_backward(t[0].data_ptr(), t[1].data_ptr(), t[0].data_ptr(), activation, n, f);
          });
      Add(
          name,
          [&] {
            return Tensors{make_.Values({n, f}), make_.Values({n, f})};
          },
          {{0}, {0}},
          [n, f, activation = activation](const device::Device&, const TypedKernels& k, Tensors& t) {
            k.activation(t[0].data_ptr(), t[1].data_ptr(), activation, n * f);
          });
      Add(
          absl::StrCat(name, " backward"),
          [&] {
            return Tensors{make_.Values({n, f}), make_.Values({n, f})};
          },
          {{0}, {}},
          [n, f, activation = activation](const device::Device&, const TypedKernels& k, Tensors& t) {
            k.activation_backward(t[0].data_ptr(), t[1].data_ptr(), t[0].data_ptr(), activation, n * f);
          });
    }
  }

  void Elementwise() {
    const int64_t n = n_, h = h_, count = n * h;
    Add(
        "scale",
        [&] {
          return Tensors{make_.Values({n, h}), make_.Values({n, h})};
        },
        {{0}, {0}},
        [=](const device::Device&, const TypedKernels& k, Tensors& t) {
          k.scale(t[0].data_ptr(), t[1].data_ptr(), 0.22f, count);
        },
        0);
    Add(
        "add",
        [&] {
          return Tensors{make_.Values({n, h}), make_.Values({n, h})};
        },
        {{0}, {}},
        [=](const device::Device&, const TypedKernels& k, Tensors& t) {
          k.add(t[0].data_ptr(), t[1].data_ptr(), count);
        });
    Add(
        "add_bias",
        [&] {
          return Tensors{make_.Values({n, h}), make_.Values({h})};
        },
        {{0}, {}},
        [=](const device::Device&, const TypedKernels& k, Tensors& t) {
          k.add_bias(t[0].data_ptr(), t[1].data_ptr(), n, h);
        });
    Add(
        "bias_gradient",
        [&] {
          return Tensors{make_.Floats({h}), make_.Values({n, h})};
        },
        {{0}, {}},
        [=](const device::Device&, const TypedKernels& k, Tensors& t) {
          k.bias_gradient(t[0].data_ptr<float>(), t[1].data_ptr(), n, h);
        },
        kFloatBound);
    Add(
        "accumulate",
        [&] {
          return Tensors{make_.Floats({n, h}), make_.Values({n, h})};
        },
        {{0}, {}},
        [=](const device::Device&, const TypedKernels& k, Tensors& t) {
          k.accumulate(t[0].data_ptr<float>(), t[1].data_ptr(), count);
        },
        kFloatBound);
    Add(
        "assign",
        [&] {
          return Tensors{make_.Floats({n, h}), make_.Values({n, h})};
        },
        {{0}, {0}},
        [=](const device::Device&, const TypedKernels& k, Tensors& t) {
          k.assign(t[0].data_ptr<float>(), t[1].data_ptr(), count);
        },
        0);
    Add(
        "round",
        [&] {
          return Tensors{make_.Values({n, h}), make_.Floats({n, h})};
        },
        {{0}, {0}},
        [=](const device::Device&, const TypedKernels& k, Tensors& t) {
          k.round(t[0].data_ptr(), t[1].data_ptr<float>(), count);
        },
        0);
  }

  void CrossEntropy() {
    const int64_t vocab = sizes_.vocab > 0 ? sizes_.vocab : h_;
    const int64_t n = std::max<int64_t>(n_ * h_ / vocab, 1);
    const at::Tensor mask =
        sizes_.is_dense ? at::ones({n}, at::kByte) : make_.Words(n, 4).ne(0).to(at::kByte);
    for (const auto& [name, want_gradient, cap] :
         {std::tuple("cross_entropy", false, 0.0f), std::tuple("cross_entropy with gradient", true, 0.0f),
          std::tuple("cross_entropy with cap and gradient", true, 30.0f)}) {
      Add(
          name,
          [&] {
            return Tensors{make_.Floats({1}).to(at::kDouble), make_.Values({n, vocab}, 3),
                           make_.Words(n, vocab), mask, at::full({1}, 0.01f)};
          },
          want_gradient ? Results{{0, 1}, {}} : Results{{0}, {}},
          [n, vocab, want_gradient = want_gradient, cap = cap](const device::Device&, const TypedKernels& k,
                                                               Tensors& t) {
            k.cross_entropy(t[0].data_ptr<double>(), t[1].data_ptr(), Words(t[2]), t[3].data_ptr<uint8_t>(),
                            1e-4f, cap, want_gradient ? t[4].data_ptr<float>() : nullptr, n, vocab);
          });
    }
  }

  void Attention(const char* name, const nn::AttentionShape& shape, const std::vector<int32_t>& document,
                 const std::vector<size_t>& results, bool any_order) {
    const int64_t tokens = shape.batch * shape.seq_len, width = shape.heads * shape.head_dim;
    const int64_t fused = (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
    const auto inputs = [&] {
      return Tensors{make_.Values({tokens, width}),
                     make_.Floats({shape.heads, tokens}),
                     make_.Values({tokens, fused}),
                     make_.Values({tokens, width}),
                     make_.Values({tokens, fused}),
                     make_.Words(tokens, shape.seq_len),
                     make_.Floats({shape.seq_len, shape.head_dim / 2}).cos_(),
                     make_.Floats({shape.seq_len, shape.head_dim / 2}).sin_()};
    };
    Add(
        name, inputs, {results, results},
        [=](const device::Device& device, const TypedKernels& k, Tensors& t) {
          const nn::TokenView host{.document = document.data()};
          const nn::DeviceTokens on_device(device, {&host, 1}, {shape.batch, shape.seq_len});
          const nn::TokenView& view = on_device.view(0);
          nn::AttentionForward(shape, t[2], view, t[0], t[1]);
          const nn::RopeTables angles = {t[6], t[7]};
          const nn::Rotation rotation = {k, Words(t[5]), angles};
          nn::AttentionBackward(shape, t[2], view, t[0], t[1], t[3], &rotation, t[4]);
        },
        dtype_ == DType::kBF16 ? 2 * kBf16Bound : kFloatBound, any_order);
  }

  const DType dtype_;
  const OperatorSizes& sizes_;
  const int64_t n_, h_;
  const double bound_;
  Maker make_;
  const OperatorVisitor& visit_;
  const std::string& only_;
};

}  // namespace

int64_t DeviceOperator::moved_bytes() const {
  int64_t bytes = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto is_in = [i](const std::vector<size_t>& list) {
      return std::find(list.begin(), list.end(), i) != list.end();
    };
    const int64_t passes = (is_in(unread) ? 0 : 1) + (is_in(results) ? 1 : 0);
    bytes += passes * static_cast<int64_t>(inputs[i].nbytes());
  }
  return bytes;
}

std::vector<at::Tensor> CopiesOn(const device::Device& device, const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& input : inputs) {
    copies.push_back(at::empty(input.sizes(), device.Options(input.scalar_type())));
    device.CopyToDevice(copies.back().data_ptr(), input.data_ptr(), static_cast<int64_t>(input.nbytes()));
  }
  return copies;
}

void ForEachPass(DType dtype, const OperatorSizes& sizes, const OperatorVisitor& visit,
                 const std::string& only) {
  Operators(dtype, sizes, visit, only).Passes();
}

void ForEachProduct(DType dtype, const OperatorSizes& sizes, const OperatorVisitor& visit,
                    const std::string& only) {
  Operators(dtype, sizes, visit, only).Products();
}

void ForEachUpdate(const OperatorSizes& sizes, const OperatorVisitor& visit, const std::string& only) {
  Operators(DType::kF32, sizes, visit, only).Optimizer();
}

}  // namespace trainctl::trainer
