#include "nn/attention.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/counter_rng.h"
#include "device/aten.h"
#include "device/counting_allocator.h"
#include "model/graph.h"

namespace trainctl::nn {
namespace {

// Two sequences: one of two documents, one whole.
struct Example {
  AttentionShape shape;
  std::vector<int32_t> document;
  at::Tensor qkv, dout;

  explicit Example(const AttentionShape& given, int64_t first_document) : shape(given) {
    document.assign(shape.batch * shape.seq_len, 1);
    std::fill_n(document.begin(), first_document, 0);
    qkv = Random(1, (shape.heads + 2 * shape.kv_heads) * shape.head_dim);
    dout = Random(2, shape.heads * shape.head_dim);
  }
  at::Tensor Random(uint64_t stream, int64_t columns) const {
    at::Tensor x = at::empty({shape.batch, shape.seq_len, columns}, at::kFloat);
    float* const data = x.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) {
      data[i] = static_cast<float>(RandomUniform(/*seed=*/7, stream, static_cast<uint64_t>(i)) - 0.5);
    }
    return x;
  }
  TokenView view() const { return {.document = document.data()}; }
  Example To(at::ScalarType dtype) const {
    Example other = *this;
    other.qkv = qkv.to(dtype);
    other.dout = dout.to(dtype);
    return other;
  }
};

struct Answer {
  at::Tensor out, lse, dqkv;
};

template <typename Forward, typename Backward>
Answer Ask(const Example& example, Forward forward, Backward backward) {
  const AttentionShape& shape = example.shape;
  Answer answer;
  const at::TensorOptions options = example.qkv.options();
  answer.out = at::full({shape.batch * shape.seq_len, shape.heads * shape.head_dim}, NAN, options);
  answer.lse = at::full({shape.heads, shape.batch * shape.seq_len}, NAN,
                        options.dtype(options.dtype() == at::kDouble ? at::kDouble : at::kFloat));
  answer.dqkv = at::full_like(example.qkv, NAN);
  forward(answer);
  backward(answer);
  return answer;
}

Answer Fused(const Example& e) {
  return Ask(
      e, [&](Answer& a) { AttentionForward(e.shape, e.qkv, e.view(), a.out, a.lse); },
      [&](Answer& a) {
        AttentionBackward(e.shape, e.qkv, e.view(), a.out, a.lse, e.dout.view_as(a.out), nullptr, a.dqkv);
      });
}

Answer Reference(const Example& e, int64_t tile_bytes) {
  return Ask(
      e, [&](Answer& a) { ReferenceAttentionForward(e.shape, e.qkv, e.view(), a.out, a.lse, tile_bytes); },
      [&](Answer& a) {
        ReferenceAttentionBackward(e.shape, e.qkv, e.view(), a.out, a.lse, e.dout.view_as(a.out), a.dqkv,
                                   tile_bytes);
      });
}

double Distance(const at::Tensor& a, const at::Tensor& b) { return a.sub(b).abs().max().item<double>(); }

// LibTorch's own attention and its own gradient, in fp64.
Answer OfLibTorch(const Example& e) {
  const auto& [batch, seq_len, heads, kv_heads, head_dim, scale, window, softcap] = e.shape;
  const at::Tensor qkv = e.qkv.to(at::kDouble).requires_grad_();
  const std::vector<at::Tensor> parts = qkv.view({batch, seq_len, -1, head_dim})
                                            .transpose(1, 2)
                                            .split_with_sizes({heads, kv_heads, kv_heads}, 1);
  at::Tensor mask = at::empty({batch, 1, seq_len, seq_len}, at::kBool);
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t q = 0; q < seq_len; ++q) {
      for (int64_t k = 0; k < seq_len; ++k) {
        mask[b][0][q][k] = k <= q && e.document[b * seq_len + k] == e.document[b * seq_len + q];
      }
    }
  }
  const at::Tensor out =
      at::scaled_dot_product_attention(parts[0], parts[1].repeat_interleave(heads / kv_heads, 1),
                                       parts[2].repeat_interleave(heads / kv_heads, 1), mask)
          .transpose(1, 2)
          .reshape({batch * seq_len, heads * head_dim});
  out.backward(e.dout.view_as(out).to(at::kDouble));
  return {.out = out.detach(), .dqkv = qkv.grad()};
}

// The definition in fp64, with LibTorch's own gradient.
Answer Defined(const Example& e) {
  const auto& [batch, seq_len, heads, kv_heads, head_dim, scale, window, softcap] = e.shape;
  const at::Tensor qkv = e.qkv.to(at::kDouble).requires_grad_();
  const std::vector<at::Tensor> parts = qkv.view({batch, seq_len, -1, head_dim})
                                            .transpose(1, 2)
                                            .split_with_sizes({heads, kv_heads, kv_heads}, 1);
  std::vector<uint8_t> hidden;  // [batch, 1, query, key]
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t q = 0; q < seq_len; ++q) {
      for (int64_t k = 0; k < seq_len; ++k) {
        const bool is_near = k <= q && (window == 0 || q - k < window);
        const size_t first = static_cast<size_t>(b * seq_len);
        const bool is_together =
            e.document[first + static_cast<size_t>(k)] == e.document[first + static_cast<size_t>(q)];
        hidden.push_back(is_near && is_together ? 0 : 1);
      }
    }
  }
  const at::Tensor mask = at::from_blob(hidden.data(), {batch, 1, seq_len, seq_len}, at::kByte).to(at::kBool);
  const at::Tensor keys = parts[1].repeat_interleave(heads / kv_heads, 1);
  const at::Tensor values = parts[2].repeat_interleave(heads / kv_heads, 1);
  const double factor = scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(head_dim));
  at::Tensor scores = at::matmul(parts[0], keys.transpose(2, 3)).mul(factor);
  if (softcap != 0) scores = scores.div(softcap).tanh().mul(softcap);
  scores = scores.masked_fill(mask, -INFINITY);
  const at::Tensor out = at::matmul(at::softmax(scores, /*dim=*/3), values)
                             .transpose(1, 2)
                             .reshape({batch * seq_len, heads * head_dim});
  out.backward(e.dout.view_as(out).to(at::kDouble));
  return {.out = out.detach(),
          .lse = scores.detach().logsumexp(3).transpose(0, 1).reshape({heads, batch * seq_len}),
          .dqkv = qkv.grad()};
}

// Distances in parts of the largest value.
void ExpectDefined(const Answer& ours, const Answer& defined, double tolerance) {
  const auto largest = [](const at::Tensor& x) { return x.abs().max().item<double>(); };
  EXPECT_LT(Distance(ours.out, defined.out), tolerance * largest(defined.out));
  EXPECT_LT(Distance(ours.lse, defined.lse), 1e-5 * std::max(1.0, largest(defined.lse)));
  EXPECT_LT(Distance(ours.dqkv, defined.dqkv), tolerance * largest(defined.dqkv));
}

std::string TextOf(const AttentionShape& shape) {
  return absl::StrCat(shape.seq_len, " tokens, kv_heads ", shape.kv_heads, ", window ", shape.window,
                      ", scale ", shape.scale, ", cap ", shape.softcap);
}

// Shapes with and without each of a window, a scale and a cap. With this scale, scores have a standard
// deviation of about 1, so that the cap bends them.
std::vector<AttentionShape> Variants(const AttentionShape& plain, const std::vector<int64_t>& windows) {
  std::vector<AttentionShape> variants;
  for (const int64_t window : windows) {
    for (const double scale : {0.0, 4.0}) {
      for (const double softcap : {0.0, 1.5}) {
        AttentionShape variant = plain;
        variant.window = window;
        variant.scale = scale;
        variant.softcap = softcap;
        variants.push_back(variant);
      }
    }
  }
  return variants;
}

// fp32 and bf16 by the kernels of the CPU, fp64 by matrices of scores. 150 tokens are several tiles.
TEST(Attention, IsTheDefinitionInAWindowWithAScaleAndACap) {
  for (const int64_t seq_len : {62, 150}) {
    for (const int64_t kv_heads : {1, 2, 6}) {
      const AttentionShape plain = {
          .batch = 2, .seq_len = seq_len, .heads = 6, .kv_heads = kv_heads, .head_dim = 10};
      for (const AttentionShape& shape : Variants(plain, {0, 1, 7, 20, seq_len - 1, seq_len})) {
        SCOPED_TRACE(TextOf(shape));
        const Example example(shape, 33);
        const Answer defined = Defined(example);
        ExpectDefined(Fused(example), defined, 1e-5);
        const Example rounded = example.To(at::kBFloat16);
        ExpectDefined(Fused(rounded), Defined(rounded), 1e-2);
        if (kv_heads == 2) ExpectDefined(Fused(example.To(at::kDouble)), defined, 1e-12);
      }
    }
  }
}

TEST(Attention, AWindowThatIsNotShorterThanTheSequenceChangesNoBit) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
    Example example =
        Example({.batch = 2, .seq_len = 150, .heads = 4, .kv_heads = 2, .head_dim = 16}, 90).To(dtype);
    const Answer usual = Fused(example);
    for (const int64_t window : {150, 151, 4096}) {
      example.shape.window = window;
      const Answer windowed = Fused(example);
      EXPECT_TRUE(windowed.out.equal(usual.out)) << window;
      EXPECT_TRUE(windowed.lse.equal(usual.lse)) << window;
      EXPECT_TRUE(windowed.dqkv.equal(usual.dqkv)) << window;
    }
    example.shape.window = 149;  // hides one key, of the second sequence
    EXPECT_FALSE(Fused(example).out.equal(usual.out));
  }
}

TEST(CpuAttention, IsThatOfLibTorchWithinDocuments) {
  for (const int64_t kv_heads : {1, 2, 6}) {
    for (const int64_t first_document : {0, 14, 61}) {
      const Example example({.batch = 3, .seq_len = 62, .heads = 6, .kv_heads = kv_heads, .head_dim = 10},
                            first_document);
      const Answer ours = Fused(example);
      const Answer theirs = OfLibTorch(example);
      EXPECT_LT(Distance(ours.out, theirs.out), 5e-6) << kv_heads << ", " << first_document;
      EXPECT_LT(Distance(ours.dqkv, theirs.dqkv), 5e-6) << kv_heads << ", " << first_document;
    }
  }
}

TEST(CpuAttention, TheBitsAreThoseOfAnyNumberOfThreads) {
  for (const int64_t window : {0, 60}) {
    const Example example(
        {.batch = 2, .seq_len = 400, .heads = 4, .kv_heads = 2, .head_dim = 16, .window = window}, 90);
    at::set_num_threads(1);
    const Answer one = Fused(example);
    for (const int threads : {2, 5}) {
      at::set_num_threads(threads);
      const Answer several = Fused(example);
      EXPECT_TRUE(one.out.equal(several.out)) << threads << ", window " << window;
      EXPECT_TRUE(one.lse.equal(several.lse)) << threads << ", window " << window;
      EXPECT_TRUE(one.dqkv.equal(several.dqkv)) << threads << ", window " << window;
    }
  }
  at::set_num_threads(1);
}

TEST(ReferenceAttention, TilesOfAnySizeGiveTheAnswerOfTheFusedOne) {
  const AttentionShape plain = {.batch = 2, .seq_len = 37, .heads = 6, .kv_heads = 2, .head_dim = 8};
  for (const AttentionShape& shape : Variants(plain, {0, 1, 6, 36, 37})) {
    const Example example(shape, 14);
    const Answer fused = Fused(example);
    const int64_t row = int64_t{3} * 37 * sizeof(float);
    for (const int64_t tile_bytes : {int64_t{1}, 5 * row, 37 * row, model::kScoreTileBytes}) {
      SCOPED_TRACE(absl::StrCat(TextOf(shape), ", tiles of ", tile_bytes, " bytes"));
      const Answer tiled = Reference(example, tile_bytes);
      EXPECT_LT(Distance(tiled.out, fused.out), 1e-5);
      EXPECT_LT(Distance(tiled.lse, fused.lse), 1e-5);
      EXPECT_LT(Distance(tiled.dqkv, fused.dqkv), 2e-5);
    }
  }
}

// However the tokens come: the rows are those of the fused attention over all of them at once.
void ExpectSameThroughACache(const Example& whole, const std::vector<int64_t>& counts, double tolerance) {
  const Answer fused = Fused(whole);
  KeyValueCache cache(whole.shape.seq_len);
  int64_t begin = 0;
  for (const int64_t count : counts) {
    AttentionShape shape = whole.shape;
    shape.seq_len = count;
    at::Tensor out = at::full({count, shape.heads * shape.head_dim}, NAN, whole.qkv.options());
    at::Tensor lse = at::full({shape.heads, count}, NAN);
    CachedAttentionForward(shape, whole.qkv.narrow(1, begin, count), whole.view(), cache, out, lse);
    EXPECT_LT(Distance(out, fused.out.narrow(0, begin, count)), tolerance)
        << TextOf(whole.shape) << ", from token " << begin;
    begin += count;
  }
  EXPECT_EQ(cache.num_tokens(), whole.shape.seq_len);
}

TEST(CachedAttention, NewTokensSeeWhatCameBeforeThem) {
  for (const int64_t kv_heads : {1, 2, 6}) {
    const AttentionShape plain = {.batch = 1, .seq_len = 13, .heads = 6, .kv_heads = kv_heads, .head_dim = 8};
    for (const AttentionShape& shape : Variants(plain, {0, 1, 3, 5, 12, 13, 100})) {
      const Example whole(shape, 0);
      ExpectSameThroughACache(whole, {4, 1, 1, 5, 2}, 1e-5);
      ExpectSameThroughACache(whole, std::vector<int64_t>(13, 1), 1e-5);  // token by token
      ExpectSameThroughACache(whole, {1, 12}, 1e-5);
      ExpectSameThroughACache(whole.To(at::kBFloat16), {4, 1, 1, 5, 2}, 1e-2);
    }
  }
}

TEST(ReferenceAttention, MemoryIsThatOfTilesAndNotOfTheSquareOfTheLength) {
  const Example example({.batch = 1, .seq_len = 1024, .heads = 4, .kv_heads = 1, .head_dim = 8}, 0);
  constexpr int64_t kTile = 1 << 20;  // of 16 MiB of scores
  device::ResetPeakTensorBytes();
  const int64_t before = device::LiveTensorBytes();
  (void)Reference(example, kTile);
  // The answers and copies of keys and values for each query head are a quarter of it.
  EXPECT_LT(device::PeakTensorBytes() - before, 4 * kTile);
}

// The table's temporaries are what the planner believes of the CPU's kernel.
TEST(CpuAttention, HoldsForAMomentWhatTheTableSays) {
  at::set_num_threads(1);
  for (const AttentionShape& shape : {AttentionShape{2, 256, 4, 4, 16}, AttentionShape{4, 128, 8, 2, 32},
                                      AttentionShape{1, 512, 4, 1, 16}, AttentionShape{1, 1024, 4, 4, 64},
                                      AttentionShape{1, 2048, 8, 2, 64}, AttentionShape{3, 40, 6, 3, 8}}) {
    const int64_t width = shape.heads * shape.head_dim;
    const model::Architecture spec = model::LlamaOf({.layers = 1,
                                                     .hidden = width,
                                                     .ffn = width,
                                                     .heads = shape.heads,
                                                     .kv_heads = shape.kv_heads,
                                                     .head_dim = shape.head_dim,
                                                     .vocab = width});
    const model::Segment segment =
        model::BuildGraph(spec, model::Inventory(spec), {.shape = {shape.batch, shape.seq_len}})->segment(1);
    const auto op = std::find_if(segment.operators.begin(), segment.operators.end(),
                                 [](const auto& o) { return o.kind == model::OpKind::kAttention; });
    const Example example(shape, 0);
    Answer answer = Fused(example);
    const auto peak_of = [](const auto& work) {
      device::ResetPeakTensorBytes();
      const int64_t before = device::LiveTensorBytes();
      work();
      return device::PeakTensorBytes() - before;
    };
    EXPECT_EQ(peak_of([&] { AttentionForward(shape, example.qkv, example.view(), answer.out, answer.lse); }),
              op->forward_temp_bytes)
        << shape.seq_len;
    const at::Tensor dout = example.dout.view_as(answer.out);
    EXPECT_EQ(peak_of([&] {
                AttentionBackward(shape, example.qkv, example.view(), answer.out, answer.lse, dout,
                                  /*rotation=*/nullptr, answer.dqkv);
              }),
              op->backward_temp_bytes)
        << shape.seq_len;
  }
}

}  // namespace
}  // namespace trainctl::nn
