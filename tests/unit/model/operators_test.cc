#include "model/operators.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "model/families.h"
#include "model/graph.h"
#include "model/peepholes.h"
#include "model/presets.h"
#include "model/segment.h"

namespace trainctl::model {
namespace {

std::vector<Segment> SegmentsOf(const Architecture& spec, const TensorPart& tensor = {}) {
  const std::vector<Parameter> inventory = Inventory(spec);
  std::vector<Segment> segments;
  for (int block : {EmbeddingBlock(), EmbeddingBlock() + 1, HeadBlock(spec)}) {
    segments.push_back(BuildGraph(spec, inventory, {.shape = {2, 64}, .tensor = tensor})->segment(block));
  }
  return segments;
}

// A Llama, a part of one whose products have biases, and other families: there is every kind.
std::vector<Segment> AllSegments() {
  Architecture spec = *Preset("llama3.2-1b");
  std::vector<Segment> segments = SegmentsOf(spec);
  SetAllLinearBiases(spec, true);
  for (Segment& part : SegmentsOf(spec, {.ranks = 2})) segments.push_back(std::move(part));
  for (const char* family :
       {"qwen3", "gemma", "nemotron", "gemma3_text", "cohere2", "phi", "gpt2", "olmo2"}) {
    Architecture other = *Preset("toy-1m");
    other.family = family;
    ApplyFamily(*FindFamily(family), other);
    for (Segment& segment : SegmentsOf(other)) segments.push_back(std::move(segment));
  }
  return segments;
}

constexpr PassSet kGradients = {Pass::kInputGradient, Pass::kWeightGradient};

double Sum(const std::vector<Segment>& segments, Resource resource) {
  double sum = 0;
  for (const Segment& segment : segments) {
    for (const Operator& op : segment.operators) {
      for (const Pass pass : kPasses) sum += WorkOf(segment, op, {pass}, /*accumulate=*/true)[resource];
    }
  }
  return sum;
}

// Products, attention and logits are dealt out, whether or not the vocabulary divides.
TEST(Operators, PartsAddUpToTheWhole) {
  Architecture spec = *Preset("llama3.2-1b");
  spec.vocab = 1003;
  const std::vector<Segment> whole = SegmentsOf(spec);
  for (const bool cuts_sequence : {true, false}) {
    for (const Resource resource : {Resource::kMatmulFlops, Resource::kAttentionFlops,
                                    Resource::kAttentionBackwardFlops, Resource::kLogits}) {
      double parts = 0;
      for (int64_t index = 0; index < 4; ++index)
        parts +=
            Sum(SegmentsOf(spec, {.ranks = 4, .index = index, .cuts_sequence = cuts_sequence}), resource);
      EXPECT_DOUBLE_EQ(parts, Sum(whole, resource)) << ResourceName(resource);
    }
  }
}

TEST(Operators, TheTableIsInTheOrderOfTheKinds) {
  std::set<OpKind> kinds;
  std::set<absl::string_view> names;
  for (const Segment& segment : AllSegments()) {
    for (const Operator& op : segment.operators) {
      EXPECT_EQ(static_cast<size_t>(op.kind), op.attributes.index());
      EXPECT_EQ(op.HasWeightGradient(), !op.weight_saved.empty()) << OpKindName(op.kind);
      const bool is_loss = op.input_gradient == InputGradient::kNewInForward;
      const PassSet passes = EntryOf(op.kind).passes;
      EXPECT_TRUE(passes.Has(Pass::kForward));
      EXPECT_EQ(passes.Has(Pass::kLossAndGradient), is_loss);
      EXPECT_EQ(passes.Has(Pass::kInputGradient), !is_loss);
      kinds.insert(op.kind);
      names.insert(OpKindName(op.kind));
    }
  }
  EXPECT_EQ(kinds.size(), static_cast<size_t>(kNumOpKinds)) << "together they have them all";
  EXPECT_EQ(names.size(), kinds.size());
  EXPECT_EQ(OpKindName(OpKind::kEmbedding), "embedding");
  EXPECT_EQ(OpKindName(OpKind::kLinear), "linear");
  EXPECT_EQ(OpKindName(OpKind::kLinearCrossEntropy), "linear cross entropy");
}

// y = x W, dx = dy W, dW = dy x: of n rows, 2 n in out operations each.
TEST(Operators, ALinearIsThreeProductsOfOneSize) {
  for (const Segment& segment : AllSegments()) {
    for (const Operator& op : segment.operators) {
      if (op.kind != OpKind::kLinear) continue;
      const auto& [in, out] = op.As<LinearAttributes>();
      EXPECT_EQ(segment.values[static_cast<size_t>(op.inputs[0])].rows, segment.shape.tokens());
      const double flops = static_cast<double>(2 * segment.shape.tokens() * in * out);
      for (const Pass pass : {Pass::kForward, Pass::kInputGradient, Pass::kWeightGradient})
        EXPECT_EQ(WorkOf(segment, op, {pass}, true)[Resource::kMatmulFlops], flops);
      EXPECT_EQ(WorkOf(segment, op, kGradients, true)[Resource::kMatmulFlops], 2 * flops);
      EXPECT_EQ(WorkOf(segment, op, kGradients, true)[Resource::kOperators], 2);
    }
  }
}

// What tensor parallelism will ask: the same kind with smaller numbers.
TEST(Operators, HalfOfTheHeadsAreHalfOfTheWork) {
  const Segment segment = AllSegments()[1];
  for (const Operator& whole : segment.operators) {
    if (whole.kind != OpKind::kAttention) continue;
    Operator half = whole;
    AttentionAttributes attributes = whole.As<AttentionAttributes>();
    attributes.heads /= 2;
    attributes.kv_heads /= 2;
    half.attributes = attributes;
    EXPECT_GT(WorkOf(segment, half, kGradients, true)[Resource::kAttentionBackwardFlops], 0);
    for (int i = 0; i < kNumResources; ++i) {
      const auto resource = static_cast<Resource>(i);
      if (resource == Resource::kOperators) continue;  // one, whatever its heads
      EXPECT_EQ(2 * WorkOf(segment, half, kGradients, true)[resource],
                WorkOf(segment, whole, kGradients, true)[resource]);
      EXPECT_EQ(2 * WorkOf(segment, half, {Pass::kForward}, true)[resource],
                WorkOf(segment, whole, {Pass::kForward}, true)[resource]);
    }
  }
}

// The attention of a layer with other attributes, in a copy of its segment.
struct OtherAttention {
  Segment segment;
  Operator op;

  OtherAttention(const SegmentOptions& options, double softcap, int64_t window) {
    const Architecture spec = *Preset("llama3.2-1b");
    segment = BuildGraph(spec, Inventory(spec), options)->segment(1);
    for (const Operator& of_layer : segment.operators) {
      if (of_layer.kind == OpKind::kAttention) op = of_layer;
    }
    AttentionAttributes attributes = op.As<AttentionAttributes>();
    attributes.softcap = softcap;
    attributes.window = window;
    op.attributes = attributes;
    EntryOf(OpKind::kAttention).complete(segment, op, "other");
  }
  Work work(Pass pass) const { return WorkOf(segment, op, {pass}, /*accumulate=*/true); }
};

TEST(Operators, AWindowLeavesOutTheWorkBeforeIt) {
  const SegmentOptions cpu = {.shape = {2, 4800}};
  SegmentOptions device = {.shape = {2, 4800}, .dtype = DType::kBF16, .on_device = true};
  for (const Pass pass : {Pass::kForward, Pass::kInputGradient}) {
    const bool backward = pass == Pass::kInputGradient;
    const Resource flops = backward ? Resource::kAttentionBackwardFlops : Resource::kAttentionFlops;
    const Work full = OtherAttention(cpu, 0, 0).work(pass);
    const Work windowed = OtherAttention(cpu, 0, 20).work(pass);
    EXPECT_NEAR(windowed[flops] / full[flops],
                static_cast<double>(ScoresComputed(4800, 20)) / static_cast<double>(ScoresComputed(4800, 0)),
                1e-12);
    EXPECT_EQ(windowed[Resource::kOperators], full[Resource::kOperators]);
    // One that is as long as the sequence leaves nothing out.
    EXPECT_EQ(OtherAttention(cpu, 0, 4800).work(pass)[flops], full[flops]);

    const Work flash = OtherAttention(device, 0, 20).work(pass);
    ASSERT_EQ(flash.attention.size(), 1u);
    EXPECT_EQ(flash.attention[0].what.window, 20);
    EXPECT_EQ(OtherAttention(device, 0, 4800).work(pass).attention[0].what.window, 0);

    SegmentOptions fp32 = device;
    fp32.dtype = DType::kF32;
    const Work products = OtherAttention(fp32, 0, 20).work(pass);
    ASSERT_EQ(products.products.size(), 2u);
    EXPECT_DOUBLE_EQ(products.products[0].what.columns, 20 - 20 * 19 / 2.0 / 4800);
    EXPECT_DOUBLE_EQ(products.products[1].what.inner, 20 - 20 * 19 / 2.0 / 4800);
  }
}

// LibTorch's flash attention has no soft cap: a device computes tiles of scores instead.
TEST(Operators, ASoftCapIsComputedFromTilesOfScores) {
  const SegmentOptions device = {.shape = {1, 4096}, .dtype = DType::kBF16, .on_device = true};
  EXPECT_TRUE(SupportsFlashAttention(DType::kBF16, 64, 0));
  EXPECT_FALSE(SupportsFlashAttention(DType::kBF16, 64, 50));
  const OtherAttention capped(device, 50, 0);
  SegmentOptions fp32 = device;
  fp32.dtype = DType::kF32;
  const OtherAttention plain(fp32, 0, 0);
  EXPECT_EQ(capped.op.forward_temp_bytes, plain.op.forward_temp_bytes);
  EXPECT_EQ(capped.op.backward_temp_bytes, plain.op.backward_temp_bytes);
  for (const Pass pass : {Pass::kForward, Pass::kInputGradient}) {
    const Work work = capped.work(pass);
    EXPECT_TRUE(work.attention.empty());
    EXPECT_EQ(work.products.size(), 2u);
    // One for each of 8 heads of keys, and the rotation of the gradients.
    EXPECT_EQ(work[Resource::kOperators], pass == Pass::kForward ? 8 : 9);
    EXPECT_GT(work[Resource::kMovedBytes], plain.work(pass)[Resource::kMovedBytes]);
  }
}

const Operator* Find(const Segment& segment, OpKind kind) {
  for (const Operator& op : segment.operators) {
    if (op.kind == kind) return &op;
  }
  return nullptr;
}

// Without RoPE before it, or with heads that it leaves alone, attention's backward has nothing to rotate.
TEST(Operators, APairIsMarkedOnlyIfOnePassCanDoBoth) {
  Segment segment = AllSegments()[1];
  const Operator& rope = *Find(segment, OpKind::kRope);
  const Operator& attention = *Find(segment, OpKind::kAttention);
  EXPECT_EQ(rope.with_next, PassSet{Pass::kInputGradient});
  EXPECT_EQ(attention.with_previous, PassSet{Pass::kInputGradient});
  EXPECT_TRUE(Find(segment, OpKind::kAdd)->with_next.empty()) << "only a device adds and normalizes at once";
  const double rotated = WorkOf(segment, rope, kGradients, true)[Resource::kMovedBytes] +
                         WorkOf(segment, attention, kGradients, true)[Resource::kMovedBytes];
  for (Operator& op : segment.operators) {
    op.with_next = op.with_previous = {};
    if (op.kind != OpKind::kRope) continue;
    RopeAttributes attributes = op.As<RopeAttributes>();
    --attributes.rotated_heads;
    op.attributes = attributes;
  }
  MarkPeepholes(segment);
  EXPECT_TRUE(rope.with_next.empty());
  EXPECT_TRUE(attention.with_previous.empty());
  EXPECT_DOUBLE_EQ(WorkOf(segment, rope, kGradients, true)[Resource::kMovedBytes] +
                       WorkOf(segment, attention, kGradients, true)[Resource::kMovedBytes],
                   rotated)
      << "a CPU rotates in a pass of its own either way";
}

// The gradient runs in the other direction: it sums values that the pass gathers, and if the pass sums over
// ranks, each rank gets the whole gradient.
TEST(Operators, ExchangesAreDeclaredInBothDirections) {
  Architecture spec = *Preset("llama3.2-1b");
  for (const bool cuts_sequence : {true, false}) {
    std::map<OpKind, int> seen;
    for (const Segment& segment : SegmentsOf(spec, {.ranks = 4, .cuts_sequence = cuts_sequence})) {
      for (const Operator& op : segment.operators) {
        const auto forward = ExchangesOf(segment, op, Pass::kForward);
        const auto gradient = ExchangesOf(segment, op, Pass::kInputGradient);
        const bool is_exchange = op.kind == OpKind::kTensorExchange;
        const bool is_loss = op.kind == OpKind::kLinearCrossEntropy;
        EXPECT_EQ(forward.size() + gradient.size(), is_exchange ? (cuts_sequence ? 2u : 1u)
                                                    : is_loss   ? 1u
                                                                : 0u);
        seen[op.kind] += static_cast<int>(forward.size());
        if (!is_exchange) continue;
        for (const auto& list : {forward, gradient}) {
          for (const OperatorExchange& exchange : list)
            EXPECT_EQ(exchange.bytes,
                      static_cast<double>(segment.shape.tokens() * spec.hidden * DTypeBytes(segment.dtype)));
        }
        if (cuts_sequence) {
          EXPECT_NE(IsSum(forward[0].collective), IsSum(gradient[0].collective));
        }
      }
    }
    EXPECT_EQ(seen[OpKind::kTensorExchange], cuts_sequence ? 6 : 3);
    EXPECT_EQ(seen[OpKind::kLinearCrossEntropy], 1);
  }
}

}  // namespace
}  // namespace trainctl::model
