#include "model/operators.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

#include "model/segment.h"

namespace trainctl::model {
namespace {

std::vector<Segment> SegmentsOf(const ModelSpec& spec, const TensorPart& tensor = {}) {
  const std::vector<Parameter> inventory = Inventory(spec);
  std::vector<Segment> segments;
  for (int block : {EmbeddingBlock(), EmbeddingBlock() + 1, HeadBlock(spec)}) {
    segments.push_back(BuildSegment(spec, inventory, block, {.shape = {2, 64}, .tensor = tensor}));
  }
  return segments;
}

// With a part of one whose products have biases: there is every kind.
std::vector<Segment> AllSegments() {
  ModelSpec spec = *Preset("llama3.2-1b");
  std::vector<Segment> segments = SegmentsOf(spec);
  spec.qkv_bias = spec.attention_out_bias = spec.mlp_bias = true;
  for (Segment& part : SegmentsOf(spec, {.ranks = 2})) segments.push_back(std::move(part));
  return segments;
}

double Sum(const std::vector<Segment>& segments, Resource resource) {
  double sum = 0;
  for (const Segment& segment : segments) {
    for (const Operator& op : segment.operators) {
      const OperatorEntry& entry = EntryOf(op.kind);
      sum += entry.forward_work(segment, op)[resource] + BackwardWork(segment, op, true)[resource];
      if (entry.loss_and_gradient_work != nullptr) sum += entry.loss_and_gradient_work(segment, op)[resource];
    }
  }
  return sum;
}

// Products, attention and logits are dealt out, whether or not the vocabulary divides.
TEST(Operators, PartsAddUpToTheWhole) {
  ModelSpec spec = *Preset("llama3.2-1b");
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
      EXPECT_EQ(EntryOf(op.kind).loss_and_gradient_work != nullptr, is_loss);
      EXPECT_EQ(EntryOf(op.kind).input_gradient_work == nullptr, is_loss);
      kinds.insert(op.kind);
      names.insert(OpKindName(op.kind));
    }
  }
  EXPECT_EQ(kinds.size(), static_cast<size_t>(kNumOpKinds)) << "a Llama and a part of it have them all";
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
      const OperatorEntry& entry = EntryOf(op.kind);
      const auto& [in, out] = op.As<LinearAttributes>();
      EXPECT_EQ(segment.values[static_cast<size_t>(op.inputs[0])].rows, segment.shape.tokens());
      const double flops = static_cast<double>(2 * segment.shape.tokens() * in * out);
      EXPECT_EQ(entry.forward_work(segment, op)[Resource::kMatmulFlops], flops);
      EXPECT_EQ(entry.input_gradient_work(segment, op, true)[Resource::kMatmulFlops], flops);
      EXPECT_EQ(entry.weight_gradient_work(segment, op, true)[Resource::kMatmulFlops], flops);
      EXPECT_EQ(BackwardWork(segment, op, true)[Resource::kMatmulFlops], 2 * flops);
      EXPECT_EQ(BackwardWork(segment, op, true)[Resource::kOperators], 2);
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
    EXPECT_GT(BackwardWork(segment, half, true)[Resource::kAttentionBackwardFlops], 0);
    for (int i = 0; i < kNumResources; ++i) {
      const auto resource = static_cast<Resource>(i);
      if (resource == Resource::kOperators) continue;  // one, whatever its heads
      EXPECT_EQ(2 * BackwardWork(segment, half, true)[resource],
                BackwardWork(segment, whole, true)[resource]);
      EXPECT_EQ(2 * EntryOf(half.kind).forward_work(segment, half)[resource],
                EntryOf(whole.kind).forward_work(segment, whole)[resource]);
    }
  }
}

}  // namespace
}  // namespace trainctl::model
