#include "nn/segment_runner.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/counter_rng.h"
#include "device/aten.h"
#include "device/counting_allocator.h"
#include "model/families.h"
#include "model/graph.h"
#include "nn/segment_run.h"

namespace trainctl::nn {
namespace {

class CountedEnvironment : public ::testing::Environment {
 public:
  void SetUp() override {
    device::InstallCountingAllocator();
    at::set_num_threads(1);
  }
};
const auto* const kEnvironment = ::testing::AddGlobalTestEnvironment(new CountedEnvironment);

constexpr int64_t kWindow = 50;

// Returns a model of one layer. A Llama has biases of queries, keys and values. A window has kWindow tokens.
model::Architecture Spec(int64_t hidden, int64_t heads, int64_t kv_heads, int64_t vocab,
                         const std::string& family = "llama") {
  model::Architecture spec = model::BaseOfFamily(family);
  SetNumLayers(spec, 1);
  spec.hidden = hidden;
  spec.vocab = vocab;
  SetEach(spec, &model::Attention::heads, heads);
  SetEach(spec, &model::Attention::kv_heads, kv_heads);
  SetEach(spec, &model::Attention::head_dim, hidden / heads);
  SetEach(spec, &model::Mlp::ffn, 2 * hidden);
  if (family == "llama") SetEach(spec, &model::Attention::qkv_bias, true);
  if (WindowOf(spec) > 0) ChangeWindow(spec, kWindow);
  return spec;
}

// What the backward forms again.
enum class Again { kNothing, kPasses, kAttentionToo };

// One block with random weights and tokens, everything that a segment needs.
struct Bench {
  model::Architecture spec;
  std::vector<model::Parameter> inventory;
  std::shared_ptr<const model::Graph> graph;
  model::Segment segment;
  std::vector<RopeTables> rope;
  std::vector<at::Tensor> weights, gradients;
  BoundParameters bound;
  std::vector<int32_t> tokens, targets, positions, document;
  std::vector<uint8_t> mask;

  Bench(const model::Architecture& model, int block, model::MicroBatchShape shape, DType dtype,
        int64_t documents, Again again = Again::kNothing)
      : spec(model),
        inventory(model::Inventory(model)),
        graph(model::BuildGraph(spec, inventory,
                                {.shape = shape,
                                 .dtype = dtype,
                                 .threads = 1,
                                 .tensor = {},
                                 .forms_again = again != Again::kNothing,
                                 .forms_attention_again = again == Again::kAttentionToo})),
        segment(graph->segment(block)) {
    rope = MakeRopeTables(device::Device::Cpu(), model::AnglesOf(spec), shape.seq_len);
    int64_t numel = 0;
    for (const model::Parameter& parameter : inventory) numel += parameter.numel;
    at::Tensor flat = (at::randn({numel}) * 0.05).to(ToAten(dtype));
    at::Tensor gradient = at::zeros({numel}, ToAten(trainctl::AccumulatorOf(dtype)));
    weights.push_back(flat);
    gradients.push_back(gradient);
    std::vector<int64_t> offsets;
    for (int64_t offset = 0; const model::Parameter& parameter : inventory) {
      offsets.push_back(offset);
      offset += parameter.numel;
    }
    for (const int parameter : graph->blocks[static_cast<size_t>(block)].parameters) {
      const int64_t offset = offsets[static_cast<size_t>(parameter)];
      bound.push_back(
          {static_cast<char*>(flat.data_ptr()) + offset * DTypeBytes(dtype),
           static_cast<char*>(gradient.data_ptr()) + offset * static_cast<int64_t>(gradient.itemsize()),
           true});
    }
    for (int64_t i = 0; i < shape.tokens(); ++i) {
      const int64_t t = i % shape.seq_len;
      const int64_t length = (shape.seq_len + documents - 1) / documents;
      tokens.push_back(static_cast<int32_t>(
          RandomBelow(1, 1, static_cast<uint64_t>(i), static_cast<uint64_t>(spec.vocab))));
      targets.push_back(static_cast<int32_t>(
          RandomBelow(1, 2, static_cast<uint64_t>(i), static_cast<uint64_t>(spec.vocab))));
      positions.push_back(static_cast<int32_t>(t % length));
      document.push_back(static_cast<int32_t>(t / length));
      mask.push_back(1);
    }
  }

  SegmentRunner Runner() const { return {device::Device::Cpu(), segment, rope.data(), 1}; }
  TokenView View() const {
    return {tokens.data(), targets.data(), positions.data(), document.data(), mask.data()};
  }
};

struct Case {
  int64_t hidden, heads, kv_heads;
  model::MicroBatchShape shape;
  DType dtype;
  int64_t documents;
  Again again = Again::kNothing;
  const char* family = "llama";
};

class SegmentMemoryTest : public ::testing::TestWithParam<Case> {};

// In bf16 the matrix library packs its operands in scratch of its own, which the allocator sees.
constexpr int64_t kLibraryScratchBytes = int64_t{1} << 20;

int64_t SlackOf(int64_t predicted, DType dtype) {
  return predicted / 100 + (dtype == DType::kBF16 ? kLibraryScratchBytes : 0);
}

int64_t PeakOf(const std::function<void()>& work) {
  const int64_t before = device::LiveTensorBytes();
  device::ResetPeakTensorBytes();
  work();
  return device::PeakTensorBytes() - before;
}

// Analyze() is what the planner believes; the counting allocator is what happened.
TEST_P(SegmentMemoryTest, LayerUsesTheBytesThatAnalyzeSays) {
  const Case& c = GetParam();
  const model::Architecture spec = Spec(c.hidden, c.heads, c.kv_heads, 128, c.family);
  const Bench bench(spec, 1, c.shape, c.dtype, c.documents, c.again);
  const SegmentRunner runner = bench.Runner();
  const model::SegmentMemory memory = model::Analyze(bench.segment);
  const at::Tensor input = at::randn({c.shape.tokens(), c.hidden}).to(ToAten(c.dtype));
  const TokenView view = bench.View();
  Saved saved;
  at::Tensor output;
  runner.Forward(bench.bound, input, view, nullptr);  // whatever the libraries set up once

  const auto near = [&](int64_t measured, int64_t predicted, const char* what) {
    EXPECT_LE(std::abs(measured - predicted), SlackOf(predicted, c.dtype))
        << what << ": measured " << measured << ", predicted " << predicted;
  };
  near(PeakOf([&] { runner.Forward(bench.bound, input, view, nullptr); }), memory.inference_peak,
       "inference");
  near(PeakOf([&] { output = runner.Forward(bench.bound, input, view, &saved); }), memory.forward_peak,
       "forward");
  int64_t kept = 0;
  for (const auto& [id, tensor] : saved) kept += static_cast<int64_t>(tensor.nbytes());
  EXPECT_EQ(kept, memory.saved_bytes);
  Saved again;
  near(PeakOf([&] { again = runner.Recompute(bench.bound, input, view); }), memory.recompute_peak,
       "recompute");
  ASSERT_EQ(again.size(), saved.size());
  for (const auto& [id, tensor] : saved) EXPECT_TRUE(at::equal(tensor, again.at(id))) << id;
  again.clear();
  at::Tensor gradient = at::randn_like(output);
  output.reset();
  near(PeakOf([&] { runner.Backward(bench.bound, input, view, std::move(saved), std::move(gradient)); }),
       memory.backward_peak, "backward");
}

// Storage that the tensors of a queue share counts once.
int64_t BytesIn(const WeightQueue& queue) {
  std::map<const void*, int64_t> bytes;
  for (const Saved* tensors : {&queue.values, &queue.output_gradients}) {
    for (const auto& [value, tensor] : *tensors)
      bytes[tensor.data_ptr()] = static_cast<int64_t>(tensor.nbytes());
  }
  int64_t sum = 0;
  for (const auto& [data, its_bytes] : bytes) sum += its_bytes;
  return sum;
}

TEST_P(SegmentMemoryTest, BackwardInTwoPassesUsesTheBytesThatAnalyzeSays) {
  const Case& c = GetParam();
  const model::Architecture spec = Spec(c.hidden, c.heads, c.kv_heads, 128, c.family);
  const Bench bench(spec, 1, c.shape, c.dtype, c.documents, c.again);
  const SegmentRunner runner = bench.Runner();
  const model::SegmentMemory memory = model::Analyze(bench.segment);
  const at::Tensor input = at::randn({c.shape.tokens(), c.hidden}).to(ToAten(c.dtype));
  const TokenView view = bench.View();
  // If no norm precedes the products, the queue also keeps the input, which exists before the pass.
  const bool keeps_input = LayerAt(spec, 0).norms == model::NormPlaces::kAfter;
  const int64_t kept_before = keeps_input ? static_cast<int64_t>(input.nbytes()) : 0;
  const int64_t before = device::LiveTensorBytes();
  WeightQueue queue;
  const auto first_pass = [&] {
    Saved saved;
    at::Tensor gradient = at::randn_like(runner.Forward(bench.bound, input, view, &saved));
    at::Tensor dx;
    const int64_t peak = PeakOf([&] {
      dx = runner.BackwardInput(bench.bound, input, view, std::move(saved), std::move(gradient), queue);
    });
    EXPECT_EQ(device::LiveTensorBytes() - before,
              memory.queued_bytes - kept_before + static_cast<int64_t>(dx.nbytes()));
    return peak;
  };
  first_pass();  // whatever the libraries set up once
  runner.BackwardWeight(bench.bound, std::exchange(queue, {}));
  ASSERT_EQ(device::LiveTensorBytes(), before);

  const auto near = [&](int64_t measured, int64_t predicted, const char* what) {
    EXPECT_LE(std::abs(measured - predicted), SlackOf(predicted, c.dtype))
        << what << ": measured " << measured << ", predicted " << predicted;
  };
  // What attention holds for a moment is that of one document per sequence: several need less.
  const int64_t peak = first_pass();
  if (c.documents == 1) {
    near(peak, memory.input_backward_peak, "input gradients");
  } else {
    EXPECT_LE(peak, memory.input_backward_peak + SlackOf(memory.input_backward_peak, c.dtype));
  }
  EXPECT_EQ(BytesIn(queue), memory.queued_bytes);
  near(PeakOf([&] { runner.BackwardWeight(bench.bound, std::move(queue)); }), memory.weight_backward_peak,
       "weight gradients");
}

TEST_P(SegmentMemoryTest, HeadUsesTheBytesThatAnalyzeSays) {
  const Case& c = GetParam();
  const model::Architecture spec = Spec(c.hidden, c.heads, c.kv_heads, 3000, c.family);
  const Bench bench(spec, 2, c.shape, c.dtype, c.documents);
  const SegmentRunner runner = bench.Runner();
  const at::Tensor input = at::randn({c.shape.tokens(), c.hidden}).to(ToAten(c.dtype));
  double loss = 0;
  const float scale = 1;
  runner.LossAndGradient(bench.bound, input, bench.View(), 0, &scale, &loss);
  const int64_t measured =
      PeakOf([&] { runner.LossAndGradient(bench.bound, input, bench.View(), 0, &scale, &loss); });
  const int64_t predicted = model::Analyze(bench.segment).loss_peak;
  EXPECT_LE(std::abs(measured - predicted), SlackOf(predicted, c.dtype))
      << "measured " << measured << ", predicted " << predicted;
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, SegmentMemoryTest,
    ::testing::Values(Case{64, 4, 4, {2, 256}, DType::kF32, 1}, Case{64, 4, 2, {2, 256}, DType::kF32, 3},
                      Case{64, 4, 4, {2, 256}, DType::kBF16, 1}, Case{64, 4, 1, {1, 512}, DType::kBF16, 2},
                      Case{256, 4, 4, {1, 1024}, DType::kBF16, 1}, Case{256, 8, 2, {4, 128}, DType::kF32, 1},
                      Case{256, 8, 2, {4, 128}, DType::kF32, 1, Again::kPasses},
                      Case{256, 4, 4, {1, 1024}, DType::kBF16, 1, Again::kAttentionToo},
                      Case{256, 4, 2, {2, 256}, DType::kF32, 1, Again::kNothing, "qwen3"},
                      Case{256, 4, 2, {2, 256}, DType::kBF16, 1, Again::kPasses, "qwen3"},
                      Case{256, 4, 2, {2, 256}, DType::kF32, 1, Again::kPasses, "nemotron"},
                      Case{256, 4, 2, {2, 256}, DType::kF32, 1, Again::kNothing, "gemma"},
                      Case{256, 4, 2, {2, 256}, DType::kBF16, 1, Again::kNothing, "starcoder2"},
                      Case{256, 4, 2, {2, 256}, DType::kF32, 1, Again::kPasses, "gemma3_text"},
                      Case{256, 4, 2, {2, 256}, DType::kBF16, 1, Again::kNothing, "gemma2"},
                      Case{256, 4, 2, {2, 256}, DType::kF32, 1, Again::kPasses, "cohere2"},
                      Case{256, 4, 2, {2, 256}, DType::kF32, 1, Again::kNothing, "exaone4"},
                      Case{256, 4, 2, {2, 256}, DType::kBF16, 1, Again::kPasses, "phi"},
                      Case{256, 4, 4, {2, 256}, DType::kF32, 1, Again::kNothing, "gpt2"}));

// Two passes, with the second later, are one pass bit by bit: gradients of inputs, matrices, norms, biases
// and the embedding, added to what is there or written over it.
TEST(SegmentRunner, BackwardInTwoPassesIsBackwardInOne) {
  const model::MicroBatchShape shape{2, 24};
  for (const std::string family :
       {"llama", "qwen3", "gemma", "nemotron", "gemma3_text", "cohere2", "phi", "gpt2"}) {
    for (int block : {0, 1}) {
      for (bool accumulate : {true, false}) {
        SCOPED_TRACE(family);
        at::manual_seed(11);
        const DType dtype = accumulate ? DType::kF32 : DType::kBF16;
        Bench bench(Spec(32, 4, 2, 64, family), block, shape, dtype, 2);
        for (BoundParameter& parameter : bench.bound) parameter.accumulate = accumulate;
        const SegmentRunner runner = bench.Runner();
        const auto type = ToAten(dtype);
        const at::Tensor output_gradient = at::randn({shape.tokens(), 32}).to(type);
        const at::Tensor input = block == 0 ? at::Tensor() : at::randn({shape.tokens(), 32}).to(type);
        const at::Tensor initial = at::randn_like(bench.gradients[0]);
        const auto forward = [&] {
          bench.gradients[0].copy_(initial);
          Saved saved;
          runner.Forward(bench.bound, input, bench.View(), &saved);
          return saved;
        };
        const at::Tensor dx =
            runner.Backward(bench.bound, input, bench.View(), forward(), output_gradient.clone());
        const at::Tensor gradients = bench.gradients[0].clone();
        EXPECT_FALSE(at::equal(gradients, initial));

        WeightQueue queue;
        const at::Tensor dx_apart =
            runner.BackwardInput(bench.bound, input, bench.View(), forward(), output_gradient.clone(), queue);
        // The queue holds the inputs of the products. There is one less if attention and MLP share a norm.
        const bool is_shared = LayerAt(bench.spec, 0).norms == model::NormPlaces::kShared;
        EXPECT_EQ(queue.values.size(), block == 0 ? 0u : is_shared ? 3u : 4u);
        int64_t offset = 0;
        for (const model::Parameter& parameter : bench.inventory) {
          const auto part = [&](const at::Tensor& all) { return all.narrow(0, offset, parameter.numel); };
          const bool waits = block == 1 && parameter.block == 1 && parameter.shape.size() == 2;
          EXPECT_TRUE(at::equal(part(bench.gradients[0]), part(waits ? initial : gradients)))
              << parameter.name;
          EXPECT_EQ(at::equal(part(gradients), part(initial)), parameter.block != block) << parameter.name;
          offset += parameter.numel;
        }
        runner.BackwardWeight(bench.bound, std::move(queue));
        EXPECT_TRUE(at::equal(bench.gradients[0], gradients));
        EXPECT_EQ(dx.defined(), block == 1);
        if (block == 1) {
          EXPECT_TRUE(at::equal(dx_apart, dx));
        }
      }
    }
  }
}

// A pair of operators run as one and the two on their own have the same gradients: bit by bit in fp32 and
// bf16.
TEST(SegmentRunner, APairOfOperatorsIsTheTwoOnTheirOwn) {
  const model::MicroBatchShape shape{2, 24};
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    std::vector<at::Tensor> answers;
    for (const bool is_pair : {true, false}) {
      at::manual_seed(13);
      Bench bench(Spec(32, 4, 2, 64), 1, shape, dtype, 2);
      int pairs = 0;
      for (model::Operator& op : bench.segment.operators) {
        pairs += op.with_previous.Has(model::Pass::kInputGradient) ? 1 : 0;
        if (!is_pair) op.with_next = op.with_previous = {};
      }
      EXPECT_EQ(pairs, 1) << "RoPE and attention";
      const at::Tensor input = at::randn({shape.tokens(), 32}).to(ToAten(dtype));
      const at::Tensor output_gradient = at::randn({shape.tokens(), 32}).to(ToAten(dtype));
      Saved saved;
      const SegmentRunner runner = bench.Runner();
      runner.Forward(bench.bound, input, bench.View(), &saved);
      answers.push_back(runner.Backward(bench.bound, input, bench.View(), std::move(saved), output_gradient));
      answers.push_back(bench.gradients[0]);
    }
    EXPECT_TRUE(at::equal(answers[0], answers[2]));
    EXPECT_TRUE(at::equal(answers[1], answers[3]));
  }
}

// What the backward forms again is what was there before, in one pass and in two: not a bit of a gradient
// differs, though less is kept.
TEST(SegmentRunner, WhatIsFormedAgainGivesTheSameBits) {
  const model::MicroBatchShape shape{2, 24};
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const auto type = ToAten(dtype);
    at::manual_seed(13);
    const at::Tensor input = at::randn({shape.tokens(), 32}).to(type);
    const at::Tensor output_gradient = at::randn({shape.tokens(), 32}).to(type);
    std::vector<at::Tensor> inputs, gradients;
    std::vector<size_t> kept;
    for (const Again again : {Again::kNothing, Again::kPasses, Again::kAttentionToo}) {
      for (const bool two_passes : {false, true}) {
        at::manual_seed(17);
        Bench bench(Spec(32, 4, 2, 64), 1, shape, dtype, 2, again);
        const SegmentRunner runner = bench.Runner();
        Saved saved;
        runner.Forward(bench.bound, input, bench.View(), &saved);
        kept.push_back(saved.size());
        WeightQueue queue;
        inputs.push_back(two_passes ? runner.BackwardInput(bench.bound, input, bench.View(), std::move(saved),
                                                           output_gradient.clone(), queue)
                                    : runner.Backward(bench.bound, input, bench.View(), std::move(saved),
                                                      output_gradient.clone()));
        if (two_passes) runner.BackwardWeight(bench.bound, std::move(queue));
        gradients.push_back(bench.gradients[0]);
      }
    }
    for (size_t i = 1; i < inputs.size(); ++i) {
      EXPECT_TRUE(at::equal(inputs[i], inputs[0])) << i;
      EXPECT_TRUE(at::equal(gradients[i], gradients[0])) << i;
    }
    // Without the two norms' outputs and reciprocals, and the activated rows.
    EXPECT_EQ(kept[0], kept[2] + 5);
    // Without what attention made and the logarithms of its sums.
    EXPECT_EQ(kept[2], kept[4] + 2);
  }
}

// Adds an operator of known attributes, inputs and weights to a table made by hand. Returns its output.
int Append(model::Segment& segment, model::Operator op, const char* name) {
  op.kind = static_cast<model::OpKind>(op.attributes.index());
  model::EntryOf(op.kind).complete(segment, op, name);
  segment.operators.push_back(op);
  return op.outputs[0];
}

// x W0 + x W1, with x read twice: what its gradient is, and what it takes to add it up.
TEST(SegmentRunner, GradientsOfAValueWithSeveralReadersAreSummed) {
  constexpr int64_t kHidden = 32;
  const model::MicroBatchShape shape{2, 24};
  model::Segment segment{.shape = shape};
  segment.values.push_back({"x", DType::kF32, shape.tokens(), kHidden});
  segment.inputs = {0};
  const auto add = [&](model::Operator op, const char* name) { return Append(segment, std::move(op), name); };
  const model::LinearAttributes square{.in = kHidden, .out = kHidden};
  const int a = add({.attributes = square, .inputs = {0}, .weights = {0}}, "a");
  const int b = add({.attributes = square, .inputs = {0}, .weights = {1}}, "b");
  segment.outputs = {add({.attributes = model::AddAttributes{.hidden = kHidden}, .inputs = {a, b}}, "sum")};

  at::manual_seed(5);
  const at::Tensor weights = at::randn({2, kHidden, kHidden});
  const at::Tensor gradients = at::zeros_like(weights);
  BoundParameters bound(2);
  for (int i : {0, 1})
    bound[static_cast<size_t>(i)] = {weights[i].data_ptr<float>(), gradients[i].data_ptr<float>()};
  const at::Tensor x = at::randn({shape.tokens(), kHidden});
  const at::Tensor dy = at::randn({shape.tokens(), kHidden});
  const SegmentRunner runner(device::Device::Cpu(), segment, nullptr, 1);
  const model::SegmentMemory memory = model::Analyze(segment);
  const auto saved = [&] {
    gradients.zero_();
    Saved kept;
    runner.Forward(bound, x, {}, &kept);
    return kept;
  };
  const auto expect_right = [&](const at::Tensor& dx) {
    EXPECT_TRUE(at::allclose(dx, at::mm(dy, weights[0]) + at::mm(dy, weights[1]), 1e-4, 1e-4));
    for (int i : {0, 1}) EXPECT_TRUE(at::allclose(gradients[i], at::mm(dy.t(), x), 1e-4, 1e-4));
  };
  EXPECT_TRUE(at::allclose(runner.Forward(bound, x, {}, nullptr),
                           at::mm(x, weights[0].t()) + at::mm(x, weights[1].t()), 1e-4, 1e-4));
  at::Tensor dx;
  at::Tensor output_gradient = dy.clone();
  Saved kept = saved();
  EXPECT_EQ(PeakOf([&] { dx = runner.Backward(bound, x, {}, std::move(kept), std::move(output_gradient)); }),
            memory.backward_peak);
  expect_right(dx);

  WeightQueue queue;
  output_gradient = dy.clone();
  kept = saved();
  EXPECT_EQ(PeakOf([&] {
              dx = runner.BackwardInput(bound, x, {}, std::move(kept), std::move(output_gradient), queue);
            }),
            memory.input_backward_peak);
  EXPECT_EQ(BytesIn(queue), memory.queued_bytes) << "x and the sum's gradient, once each";
  runner.BackwardWeight(bound, std::move(queue));
  expect_right(dx);
}

// What one expert does to the tokens that were sent to it: as many as its bound, fewer, or none.
TEST(SegmentRunner, RowsCanBeFewerThanTheirBound) {
  constexpr int64_t kHidden = 24, kFfn = 40, kBound = 30;
  model::Segment segment{.shape = {1, kBound}, .threads = 2};
  segment.rows_are_bounded = true;
  segment.values.push_back({"x", DType::kF32, kBound, kHidden});
  segment.inputs = {0};
  const auto add = [&](model::Operator op, const char* name) { return Append(segment, std::move(op), name); };
  const int gate_up = add(
      {.attributes = model::LinearAttributes{.in = kHidden, .out = 2 * kFfn}, .inputs = {0}, .weights = {0}},
      "gate_up");
  const int activation =
      add({.attributes = model::SwiGluAttributes{.ffn = kFfn}, .inputs = {gate_up}}, "activation");
  segment.outputs = {add({.attributes = model::LinearAttributes{.in = kFfn, .out = kHidden},
                          .inputs = {activation},
                          .weights = {1}},
                         "y")};
  at::manual_seed(6);
  const std::vector<at::Tensor> weights = {at::randn({2 * kFfn, kHidden}), at::randn({kHidden, kFfn})};
  const SegmentRunner runner(device::Device::Cpu(), segment, nullptr, 2);
  const model::SegmentMemory memory = model::Analyze(segment);
  for (const int64_t rows : {int64_t{0}, int64_t{1}, int64_t{7}, kBound}) {
    std::vector<at::Tensor> gradients;
    BoundParameters bound;
    for (int i : {0, 1}) {
      const auto k = static_cast<size_t>(i);
      gradients.push_back(at::ones_like(weights[k]));  // overwritten, by zeros where there are no rows
      bound.push_back({weights[k].data_ptr<float>(), gradients[k].data_ptr<float>(), /*accumulate=*/false});
    }
    const at::Tensor x = at::randn({rows, kHidden}), dy = at::randn({rows, kHidden});
    Saved saved;
    at::Tensor y, dx;
    const int64_t forward_peak = PeakOf([&] { y = runner.Forward(bound, x, {}, &saved); });
    at::Tensor output_gradient = dy.clone();
    const int64_t backward_peak =
        PeakOf([&] { dx = runner.Backward(bound, x, {}, std::move(saved), std::move(output_gradient)); });
    EXPECT_LE(forward_peak, memory.forward_peak) << rows;
    EXPECT_LE(backward_peak, memory.backward_peak) << rows;
    if (rows == kBound) {
      EXPECT_EQ(forward_peak, memory.forward_peak);
    }

    // By hand, from silu'(g) = s (1 + g (1 - s)) with s the logistic function of g.
    const at::Tensor both = at::mm(x, weights[0].t());
    const at::Tensor g = both.narrow(1, 0, kFfn), u = both.narrow(1, kFfn, kFfn);
    const at::Tensor s = at::sigmoid(g), h = g * s * u;
    const at::Tensor dh = at::mm(dy, weights[1]);
    const at::Tensor d_both = at::cat({dh * u * s * (1 + g * (1 - s)), dh * g * s}, 1);
    EXPECT_TRUE(at::allclose(y, at::mm(h, weights[1].t()), 1e-4, 1e-4)) << rows;
    EXPECT_TRUE(at::allclose(dx, at::mm(d_both, weights[0]), 1e-4, 1e-4)) << rows;
    EXPECT_TRUE(at::allclose(gradients[0], at::mm(d_both.t(), x), 1e-4, 1e-4)) << rows;
    EXPECT_TRUE(at::allclose(gradients[1], at::mm(dy.t(), h), 1e-4, 1e-4)) << rows;
  }
  EXPECT_DEATH(runner.Forward({}, at::zeros({kBound + 1, kHidden}), {}, nullptr),
               "at most 30 rows was given 31");
}

// The gradient of a layer against differences of its own forward: independent of any autograd. Compared as
// a vector over several directions, because a single one may lie across the gradient and show only rounding,
// which in fp32 is another on another CPU; the extrapolated difference (error of order step^4) allows a step
// that is large against it.
void HoldAgainstDifferences(DType dtype, double step, double tolerance, bool with_pairs = true,
                            const std::string& family = "llama") {
  SCOPED_TRACE(family);
  at::manual_seed(7);
  const model::Architecture spec = Spec(32, 4, 2, 64, family);
  const model::MicroBatchShape shape{2, 12};
  Bench bench(spec, 1, shape, dtype, 2);
  for (model::Operator& op : bench.segment.operators) {
    if (!with_pairs) op.with_next = op.with_previous = {};
  }
  const SegmentRunner runner = bench.Runner();
  const at::Tensor input = at::randn({shape.tokens(), spec.hidden}).to(ToAten(dtype));
  const at::Tensor direction = at::randn({shape.tokens(), spec.hidden}).to(ToAten(dtype));
  at::Tensor x = input.clone();
  const auto value = [&] {
    return (runner.Forward(bench.bound, x, bench.View(), nullptr).to(at::kDouble) * direction.to(at::kDouble))
        .sum()
        .item<double>();
  };
  Saved saved;
  runner.Forward(bench.bound, x, bench.View(), &saved);
  const at::Tensor dx = runner.Backward(bench.bound, x, bench.View(), std::move(saved), direction.clone());

  const auto expect_gradient = [&](at::Tensor& variable, const at::Tensor& gradient, double spread) {
    const at::Tensor origin = variable.clone();
    const auto central = [&](const at::Tensor& along, double step) {
      variable.copy_(origin + step * along);
      const double plus = value();
      variable.copy_(origin - step * along);
      return (plus - value()) / (2 * step);
    };
    double error = 0;
    double norm = 0;
    for (int i = 0; i < 16; ++i) {
      const at::Tensor along = at::randn_like(origin) * spread;
      const double difference = (4 * central(along, step) - central(along, 2 * step)) / 3;
      error += std::pow((gradient * along).sum().item<double>() - difference, 2);
      norm += difference * difference;
    }
    variable.copy_(origin);
    EXPECT_LE(std::sqrt(error / norm), tolerance);
  };
  expect_gradient(x, dx, 1);
  expect_gradient(bench.weights[0], bench.gradients[0], 0.2);
}

TEST(SegmentRunner, LayerGradientMatchesFiniteDifferences) {
  HoldAgainstDifferences(DType::kF32, 0.02, 1e-3);
  HoldAgainstDifferences(DType::kF64, 1e-3, 1e-9);
  HoldAgainstDifferences(DType::kF64, 1e-3, 1e-9, /*with_pairs=*/false);
  for (const std::string& family : model::NamedFamilies()) {
    const kernels::Activation activation = model::FindFamily(family)->activation;
    // The second derivative of a squared ReLU jumps at zero.
    const double tolerance = activation == kernels::Activation::kReluSquared ? 1e-4 : 1e-8;
    if (activation == kernels::Activation::kRelu) {
      // Its derivative jumps, so the steps are too short to reach a jump.
      HoldAgainstDifferences(DType::kF64, 1e-7, 1e-6, /*with_pairs=*/true, family);
      continue;
    }
    // Norms after attention and MLP make the derivatives of higher order larger.
    HoldAgainstDifferences(DType::kF64, 5e-4, tolerance, /*with_pairs=*/true, family);
  }
}

// A step without any loss token has no gradient: the logits themselves must not pass for one.
TEST(SegmentRunner, NothingToLearnIsNoGradient) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const model::Architecture spec = Spec(16, 4, 2, 64);
    Bench bench(spec, 2, {1, 12}, dtype, 1);
    std::fill(bench.mask.begin(), bench.mask.end(), 0);
    const at::Tensor input = at::randn({12, 16}).to(ToAten(dtype));
    double loss = 0;
    for (float scale : {0.0f, 1.0f}) {
      const at::Tensor dx =
          bench.Runner().LossAndGradient(bench.bound, input, bench.View(), 0, &scale, &loss);
      EXPECT_EQ(loss, 0);
      EXPECT_EQ(dx.abs().max().item<float>(), 0);
      EXPECT_EQ(bench.gradients[0].abs().max().item<float>(), 0);
    }
  }
}

// Tokens of one document must not see another: changing one leaves the other's outputs alone.
TEST(SegmentRunner, DocumentsDoNotSeeEachOther) {
  const model::Architecture spec = Spec(16, 4, 2, 64);
  const model::MicroBatchShape shape{1, 12};
  const Bench bench(spec, 1, shape, DType::kF32, 2);
  const SegmentRunner runner = bench.Runner();
  const at::Tensor input = at::randn({12, 16});
  at::Tensor changed = input.clone();
  changed.narrow(0, 0, 6).add_(1.0);
  const at::Tensor a = runner.Forward(bench.bound, input, bench.View(), nullptr);
  const at::Tensor b = runner.Forward(bench.bound, changed, bench.View(), nullptr);
  EXPECT_TRUE(at::equal(a.narrow(0, 6, 6), b.narrow(0, 6, 6)));
  EXPECT_FALSE(at::equal(a.narrow(0, 0, 6), b.narrow(0, 0, 6)));
}

}  // namespace
}  // namespace trainctl::nn
