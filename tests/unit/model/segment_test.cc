#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "model/families.h"
#include "model/graph.h"
#include "model/presets.h"

namespace trainctl::model {
namespace {

Segment Build(const Architecture& spec, int block, MicroBatchShape shape, DType dtype, bool on_device = false,
              bool forms_again = false) {
  return BuildGraph(spec, Inventory(spec),
                    {.shape = shape,
                     .dtype = dtype,
                     .threads = 1,
                     .on_device = on_device,
                     .tensor = {},
                     .forms_again = forms_again})
      ->segment(block);
}

Architecture Tiny() {
  return LlamaOf({.layers = 1, .hidden = 4, .ffn = 3, .heads = 2, .kv_heads = 1, .head_dim = 2, .vocab = 8});
}

std::vector<Architecture> Variants() {
  std::vector<Architecture> specs = {*Preset("toy-1m"), *Preset("llama-120m"), *Preset("llama3.2-1b")};
  specs.push_back(specs[0]);
  SetEach(specs.back(), &Attention::head_dim, 48);  // heads * head_dim != hidden
  specs.push_back(specs[0]);
  SetAllLinearBiases(specs.back(), true);
  return specs;
}

// Analyze fails for a table that recomputes an operator from a value that is not saved.
TEST(Segment, EveryFamilyCanFormItsPassesAgainInParts) {
  for (const std::string& family : NamedFamilies()) {
    Architecture spec = BaseOfFamily(family);
    SetNumLayers(spec, 1);
    spec.hidden = 8;
    spec.vocab = 10;
    SetEach(spec, &Attention::heads, 2);
    SetEach(spec, &Attention::kv_heads, 2);
    SetEach(spec, &Attention::head_dim, 4);
    SetEach(spec, &Mlp::ffn, 16);
    for (const bool cuts_sequence : {false, true}) {
      const auto graph = BuildGraph(spec, Inventory(spec),
                                    {.shape = {1, 8},
                                     .tensor = {.ranks = 2, .cuts_sequence = cuts_sequence},
                                     .forms_again = true,
                                     .forms_attention_again = true});
      for (const Segment& kind : graph->kinds) EXPECT_GT(Analyze(kind).inference_peak, 0) << family;
    }
  }
}

// Layers of one kind are built once, and kinds whose tables are equal are one.
TEST(Segment, LayersThatDifferHaveTablesOfTheirOwn) {
  Architecture spec = Tiny();
  SetNumLayers(spec, 4);
  spec.kinds.push_back(spec.kinds[0]);
  spec.layers = {0, 1, 0, 1};
  const auto build = [&] { return BuildGraph(spec, Inventory(spec), {.shape = {1, 8}}); };
  EXPECT_EQ(build()->kinds.size(), 3U);
  spec.kinds[1].mlp.ffn = 2 * spec.kinds[0].mlp.ffn;
  const auto graph = build();
  ASSERT_EQ(graph->kinds.size(), 4U);
  const std::vector<Parameter> inventory = Inventory(spec);
  for (int block = 1; block <= 4; ++block) {
    EXPECT_EQ(graph->blocks[static_cast<size_t>(block)].kind, block % 2 == 1 ? 1 : 2);
    for (const int parameter : graph->blocks[static_cast<size_t>(block)].parameters)
      EXPECT_EQ(inventory[static_cast<size_t>(parameter)].block, block);
  }
}

// What a Llama layer keeps for its backward, as the literature counts it: 12 h + 4 h kv/a + 6 f bytes
// in bf16 and the softmax statistics, of which 2 h is the layer's input (held by the layer before);
// two reciprocal norms in fp32 besides.
TEST(Segment, ALayerSavesWhatThePublishedFormulaSays) {
  for (const char* name : {"llama-25m", "llama2-7b", "llama3.1-8b", "llama3.1-405b"}) {
    const Architecture spec = *Preset(name);
    const MicroBatchShape shape{2, 64};
    const SegmentMemory memory = Analyze(Build(spec, 1, shape, DType::kBF16));
    const Attention& a = AttentionOf(spec);
    const int64_t per_token = 12 * spec.hidden + 4 * spec.hidden * a.kv_heads / a.heads +
                              6 * MlpOf(spec).ffn + 4 * a.heads + 4 * 2 - 2 * spec.hidden;
    EXPECT_EQ(memory.saved_bytes, per_token * shape.tokens()) << name;
    EXPECT_EQ(memory.output_bytes, 2 * spec.hidden * shape.tokens()) << name;
  }
}

// Without the outputs of the norms and of the activation function 4 h + 2 f bytes less, and no reciprocal
// norms: of llama-1b (f = 2.75 h, four queries a key) 13.5 values of the size of h become 8.75.
TEST(Segment, ALayerThatFormsAgainSavesWhatProductsMake) {
  for (const char* name : {"llama-25m", "llama2-7b", "llama3.1-8b", "llama3.1-405b"}) {
    const Architecture spec = *Preset(name);
    const MicroBatchShape shape{2, 64};
    const SegmentMemory memory = Analyze(Build(spec, 1, shape, DType::kBF16, false, /*forms_again=*/true));
    const Attention& a = AttentionOf(spec);
    const int64_t per_token =
        6 * spec.hidden + 4 * spec.hidden * a.kv_heads / a.heads + 4 * MlpOf(spec).ffn + 4 * a.heads;
    EXPECT_EQ(memory.saved_bytes, per_token * shape.tokens()) << name;
    // Between two passes products wait for their operands all the same.
    EXPECT_EQ(memory.queued_bytes, Analyze(Build(spec, 1, shape, DType::kBF16)).queued_bytes);
  }
}

// What attention has made, as wide as the heads, and the logarithms of its sums are formed again where they
// are read: once, for the weight gradient of the product by which it leaves, the later operator.
TEST(Segment, AttentionIsFormedAgainFromQueriesKeysAndValues) {
  const Architecture spec = *Preset("llama3.1-8b");
  const SegmentOptions kept{.shape = {2, 64}, .dtype = DType::kBF16, .forms_again = true};
  SegmentOptions again = kept;
  again.forms_attention_again = true;
  const Segment segment = BuildGraph(spec, Inventory(spec), again)->segment(1);
  EXPECT_EQ(
      Analyze(segment).saved_bytes + (2 * spec.hidden + 4 * AttentionOf(spec).heads) * kept.shape.tokens(),
      Analyze(BuildGraph(spec, Inventory(spec), kept)->segment(1)).saved_bytes);
  const Lifetimes lifetimes = ComputeLifetimes(segment);
  int64_t times = 0;
  for (size_t i = 0; i < segment.operators.size(); ++i) {
    for (int formed : lifetimes.formed_again[i]) {
      if (segment.operators[static_cast<size_t>(formed)].kind != OpKind::kAttention) continue;
      ++times;
      EXPECT_EQ(formed + 1, static_cast<int>(i));
      EXPECT_EQ(segment.operators[i].kind, OpKind::kLinear);
    }
  }
  EXPECT_EQ(times, 1);
}

// By hand, the gathered rows of two ranks: neither they nor what they are gathered from is kept, each norm
// runs again before its gather, and what it made is dropped when the rows are there.
TEST(Segment, GatheredRowsAreFormedAgainFromTheirNorms) {
  const Architecture spec = *Preset("toy-1m");
  const Segment segment =
      BuildGraph(spec, Inventory(spec),
                 {.shape = {2, 64}, .tensor = {.ranks = 2, .index = 0}, .forms_again = true})
          ->segment(1);
  const Lifetimes lifetimes = ComputeLifetimes(segment);
  for (size_t i = 0; i < segment.operators.size(); ++i) {
    const Operator& op = segment.operators[i];
    const std::vector<int>& formed = lifetimes.formed_again[i];
    const std::string& made =
        op.outputs.empty() ? "" : segment.values[static_cast<size_t>(op.outputs[0])].name;
    if (made == "qkv" || made == "gate_up") {
      const int last = static_cast<int>(i) - 1;
      EXPECT_THAT(formed, ::testing::ElementsAre(last - 1, last)) << made;
      const Operator& norm = segment.operators[i - 2];
      ASSERT_EQ(norm.kind, OpKind::kRmsNorm);
      EXPECT_THAT(lifetimes.formed_again_drops[i], ::testing::ElementsAre(norm.outputs[0]));
    } else {
      EXPECT_EQ(formed.size(), made == "mlp_output" ? 1u : 0u) << made;
    }
  }
  for (int value : lifetimes.saved) {
    EXPECT_EQ(segment.values[static_cast<size_t>(value)].name.find("gathered"), std::string::npos);
  }
}

// By hand: hidden 4, two heads of 2, one key-value head, ffn 3, one token, fp32.
TEST(Segment, ATinyLayerWalkedByHand) {
  const Architecture spec = Tiny();
  const SegmentMemory memory = Analyze(Build(spec, 1, {1, 1}, DType::kF32));
  // normed 16 + rstd 4 + qkv 32 + attended 16 + lse 8 + middle 16 + normed 16 + rstd 4 + gate_up 24 +
  // activated 12; the output (16) takes the storage of the last product.
  EXPECT_EQ(memory.saved_bytes, 148);
  EXPECT_EQ(memory.output_bytes, 16);
  // The widest moment is attention: what lives then, and the kernel's workspace, whose rows are vectors of 16
  // fp32: keys [2, 16], values [1, 16], a query, its result and its scores, a maximum and a sum, 98 elements
  // that become 112.
  EXPECT_EQ(memory.forward_peak, (16 + 4 + 32 + 16 + 8) + 448);
  EXPECT_EQ(memory.inference_peak, (32 + 16 + 8) + 448);
  EXPECT_EQ(memory.input_gradient_bytes, 0);  // written over the output's gradient

  const SegmentMemory again = Analyze(Build(spec, 1, {1, 1}, DType::kF32, false, /*forms_again=*/true));
  EXPECT_EQ(again.saved_bytes, 32 + 16 + 8 + 16 + 24);  // qkv, attended, lse, middle, gate_up
  EXPECT_EQ(again.input_gradient_bytes, 0);
}

// By hand, the same layer: two passes keep the operands of its four products. Saved are normed 16, attended
// 16, normed 16 and activated 12; gradients are those of qkv 32, of the middle 16 (the residual's copy), of
// gate_up 24 (over the saved one) and of the output 16.
TEST(Segment, TheQueueOfATinyLayerCountedByHand) {
  const Architecture spec = Tiny();
  const SegmentMemory memory = Analyze(Build(spec, 1, {1, 1}, DType::kF32));
  EXPECT_EQ(memory.queued_bytes, 60 + 88);
  EXPECT_EQ(memory.weight_backward_peak, 0);  // in fp32 products are added where they belong
  // In bf16 a product is rounded on its way. The widest moment is gate_up's, 6 x 4, when the operands of the
  // down projection before it, 3 + 4, are gone.
  EXPECT_EQ(Analyze(Build(spec, 1, {1, 1}, DType::kBF16)).weight_backward_peak, 2 * (6 * 4 - (3 + 4)));
}

// By hand: 48 queries are four strips, which see 12, 24, 36 and 48 keys in vectors of 16; a tile more of 16
// has strips of 12 and 4.
TEST(Segment, ScoresAreComputedInStrips) {
  EXPECT_EQ(ScoresComputed(1, 0), 16);
  EXPECT_EQ(ScoresComputed(48, 0), 12 * (16 + 32 + 48 + 48));
  EXPECT_EQ(ScoresComputed(64, 0), 12 * (16 + 32 + 48 + 48) + 12 * 64 + 4 * 64);
}

// Each query sees the keys up to the end of its strip, in whole vectors.
TEST(Segment, ScoresComputedAreThoseOfEachQuery) {
  for (int64_t seq_len = 1; seq_len <= 500; ++seq_len) {
    int64_t scores = 0;
    for (int64_t query = 0; query < seq_len; ++query) {
      const int64_t strip = query - query % 48 % 12;  // strips of 12 in tiles of 48
      scores += (std::min(strip + 12, seq_len) + 15) / 16 * 16;
    }
    EXPECT_EQ(ScoresComputed(seq_len, 0), scores) << seq_len;
  }
}

// By hand, a window of 20: the strips of the first 48 queries end with keys 12, 24, 36 and 48, and their
// first queries see keys from 0, 0, 5 and 17, in vectors from 0, 0, 0 and 16. The next tile is like one
// further on: its first queries see keys from 29, 41, 53 and 65, in vectors from 16, 32, 48 and 64.
TEST(Segment, ScoresBeforeAWindowAreNotComputed) {
  const int64_t first = 12 * (16 + 32 + 48 + (48 - 16));
  const int64_t other = 12 * ((64 - 16) + (80 - 32) + (96 - 48) + (96 - 64));
  EXPECT_EQ(ScoresComputed(48, 20), first);
  EXPECT_EQ(ScoresComputed(96, 20), first + other);
  EXPECT_EQ(ScoresComputed(4800, 20), first + 99 * other);
}

// Each query sees the keys from the beginning of its strip's window, in whole vectors.
TEST(Segment, ScoresComputedInAWindowAreThoseOfEachQuery) {
  for (const int64_t window : {1, 2, 11, 12, 16, 17, 33, 47, 48, 49, 63, 64, 96, 100, 255, 499, 500, 501}) {
    for (int64_t seq_len = 1; seq_len <= 500; ++seq_len) {
      int64_t scores = 0;
      for (int64_t query = 0; query < seq_len; ++query) {
        const int64_t strip = query - query % 48 % 12;
        const int64_t first_key = std::max<int64_t>(strip - window + 1, 0);
        scores += (std::min(strip + 12, seq_len) + 15) / 16 * 16 - first_key / 16 * 16;
      }
      EXPECT_EQ(ScoresComputed(seq_len, window), scores) << seq_len << ", window " << window;
    }
  }
}

TEST(Segment, TheMeanOfVisibleKeysIsThatOfEachQuery) {
  for (const int64_t window : {0, 1, 2, 7, 63, 64, 65, 1000}) {
    for (const int64_t seq_len : {1, 2, 64, 200}) {
      double keys = 0;
      for (int64_t query = 0; query < seq_len; ++query)
        keys += static_cast<double>(window == 0 ? query + 1 : std::min(query + 1, window));
      EXPECT_DOUBLE_EQ(MeanVisibleKeys(static_cast<double>(seq_len), static_cast<double>(window)),
                       keys / static_cast<double>(seq_len))
          << seq_len << ", window " << window;
    }
  }
}

TEST(Segment, AttentionIsCutUntilEachThreadHasFourParts) {
  EXPECT_EQ(AttentionCuts(1, 1), 1);
  EXPECT_EQ(AttentionCuts(2, 4), 8);
  EXPECT_EQ(AttentionCuts(100, 8), 1);
}

TEST(Segment, BytesAreProportionalToTheTokens) {
  for (const Architecture& spec : Variants()) {
    for (int block : {0, 1, HeadBlock(spec)}) {
      // On a device: a CPU's attention has a workspace for each thread, however many sequences there are.
      const SegmentMemory one = Analyze(Build(spec, block, {1, 8}, DType::kF32, /*on_device=*/true));
      const SegmentMemory five = Analyze(Build(spec, block, {5, 8}, DType::kF32, /*on_device=*/true));
      EXPECT_EQ(five.saved_bytes, 5 * one.saved_bytes);
      EXPECT_EQ(five.output_bytes, 5 * one.output_bytes);
      EXPECT_EQ(five.forward_peak, 5 * one.forward_peak);
      EXPECT_EQ(five.inference_peak, 5 * one.inference_peak);
      EXPECT_EQ(five.backward_peak, 5 * one.backward_peak);
    }
  }
}

TEST(Segment, NotSavingNeverNeedsMoreThanSaving) {
  for (const Architecture& spec : Variants()) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      const SegmentMemory memory = Analyze(Build(spec, 1, {2, 16}, dtype));
      EXPECT_LE(memory.inference_peak, memory.forward_peak);
      EXPECT_LE(memory.saved_bytes + memory.output_bytes, memory.forward_peak);
      EXPECT_GE(memory.backward_peak, 0);
    }
  }
}

// Of a layer the last product, the sum over tp and the residual addition make nothing that is saved.
TEST(Segment, AForwardThatOnlySavesEndsBeforeTheLastProduct) {
  for (const Architecture& spec : Variants()) {
    const Segment layer = Build(spec, 1, {2, 16}, DType::kF32);
    const size_t count = NumOperatorsThatSave(layer);
    ASSERT_LT(count, layer.operators.size());
    EXPECT_EQ(layer.operators[count].kind, OpKind::kLinear);
    for (size_t i = count + 1; i < layer.operators.size(); ++i)
      EXPECT_NE(layer.operators[i].kind, OpKind::kLinear);
    const SegmentMemory memory = Analyze(layer);
    EXPECT_LE(memory.saved_bytes, memory.recompute_peak);
    EXPECT_LE(memory.recompute_peak, memory.forward_peak);
  }
}

// The table is a program: values are written before they are read, storage is dropped once, and
// never while something later reads it.
TEST(Segment, StorageLivesExactlyAsLongAsItIsRead) {
  for (const Architecture& spec : Variants()) {
    for (int block : {0, 1, 1 + HeadBlock(spec), HeadBlock(spec)}) {
      const bool forms_again = block > HeadBlock(spec);  // the layer once more
      const Segment segment = Build(spec, forms_again ? 1 : block, {2, 4}, DType::kBF16, false, forms_again);
      const Lifetimes lifetimes = ComputeLifetimes(segment);
      const std::vector<int> root = StorageRoots(segment);
      const auto root_of = [&](int value) { return root[static_cast<size_t>(value)]; };
      for (bool keep : {true, false}) {
        const auto& drops = keep ? lifetimes.forward_drops : lifetimes.inference_drops;
        std::set<int> live;
        live.insert(segment.inputs.begin(), segment.inputs.end());
        for (size_t i = 0; i < segment.operators.size(); ++i) {
          const Operator& op = segment.operators[i];
          for (int input : op.inputs)
            EXPECT_EQ(live.count(root_of(input)), 1u) << segment.values[static_cast<size_t>(input)].name;
          for (int output : op.outputs) live.insert(root_of(output));
          for (int value : drops[i]) EXPECT_EQ(live.erase(value), 1u);
        }
        std::set<int> expected;
        expected.insert(segment.inputs.begin(), segment.inputs.end());
        for (int output : segment.outputs) expected.insert(root_of(output));
        if (keep) expected.insert(lifetimes.saved.begin(), lifetimes.saved.end());
        EXPECT_EQ(live, expected);
      }
      // Backward, from the last operator: what it reads still lives, and all of it is gone at the end.
      std::set<int> live(lifetimes.saved.begin(), lifetimes.saved.end());
      live.insert(segment.inputs.begin(), segment.inputs.end());
      const auto form_again = [&](size_t i) {
        for (int formed : lifetimes.formed_again[i]) {
          const Operator& op = segment.operators[static_cast<size_t>(formed)];
          for (int input : op.inputs) EXPECT_EQ(live.count(root_of(input)), 1u);
          for (int output : op.outputs) live.insert(root_of(output));
        }
        for (int value : lifetimes.formed_again_drops[i]) EXPECT_EQ(live.erase(value), 1u);
      };
      for (size_t i = segment.operators.size(); i-- > 0;) {
        form_again(i);
        for (int value : segment.operators[i].weight_saved) EXPECT_EQ(live.count(root_of(value)), 1u);
        for (int value : lifetimes.weight_gradient_drops[i]) EXPECT_EQ(live.erase(value), 1u);
        for (int value : segment.operators[i].saved) EXPECT_EQ(live.count(root_of(value)), 1u);
        for (int value : lifetimes.backward_drops[i]) EXPECT_EQ(live.erase(value), 1u);
      }
      for (int input : segment.inputs) live.erase(input);
      EXPECT_TRUE(live.empty());
      // The same in two passes: what the first leaves is queued, and the second uses it up.
      live.insert(lifetimes.saved.begin(), lifetimes.saved.end());
      live.insert(segment.inputs.begin(), segment.inputs.end());
      for (size_t i = segment.operators.size(); i-- > 0;) {
        form_again(i);
        for (int value : segment.operators[i].saved) EXPECT_EQ(live.count(root_of(value)), 1u);
        for (int value : lifetimes.input_pass_drops[i]) EXPECT_EQ(live.erase(value), 1u);
      }
      for (int input : segment.inputs) live.erase(input);
      EXPECT_EQ(live, std::set<int>(lifetimes.queued.begin(), lifetimes.queued.end()));
      for (size_t i = segment.operators.size(); i-- > 0;) {
        for (int value : segment.operators[i].weight_saved) EXPECT_EQ(live.count(root_of(value)), 1u);
        for (int value : lifetimes.weight_pass_drops[i]) EXPECT_EQ(live.erase(value), 1u);
      }
      EXPECT_TRUE(live.empty());
    }
  }
}

TEST(Segment, EveryWeightOfABlockIsUsedOnceAndFusedOnesAreAdjacent) {
  for (const Architecture& spec : Variants()) {
    const std::vector<Parameter> inventory = Inventory(spec);
    const auto graph = BuildGraph(spec, inventory, {.shape = {1, 4}});
    ASSERT_EQ(graph->num_blocks(), NumBlocks(spec));
    for (int block = 0; block < graph->num_blocks(); ++block) {
      const std::vector<int>& parameters = graph->blocks[static_cast<size_t>(block)].parameters;
      std::set<int> used;
      for (const Operator& op : graph->segment(block).operators) {
        for (const std::vector<int>* list : {&op.weights, &op.biases}) {
          for (size_t k = 0; k < list->size(); ++k) {
            const int parameter = parameters[static_cast<size_t>((*list)[k])];
            EXPECT_TRUE(used.insert(parameter).second);
            if (k > 0) {
              EXPECT_EQ(parameter, parameters[static_cast<size_t>((*list)[k - 1])] + 1);
            }
          }
        }
      }
      std::set<int> expected;
      for (size_t i = 0; i < inventory.size(); ++i) {
        for (int user : inventory[i].used_by) {
          if (user == block) expected.insert(static_cast<int>(i));
        }
      }
      EXPECT_EQ(used, expected) << "block " << block;
      EXPECT_EQ(parameters.size(), expected.size()) << "block " << block;
    }
  }
}

TEST(Segment, LogitsAreComputedInPiecesThatStayBelowTheirBound) {
  for (const bool on_device : {false, true}) {
    const int64_t bound = int64_t{on_device ? 512 : 32} << 20;
    EXPECT_EQ(LogitRowsAtOnce({1, 4}, 1000, DType::kF32, on_device), 4);  // all at once
    const int64_t rows = LogitRowsAtOnce({64, 4096}, 128256, DType::kBF16, on_device);
    EXPECT_LE(rows * 128256 * 2, bound);
    const int64_t rows_of_tile = on_device ? 256 : 1;  // a device's pieces are whole tiles
    EXPECT_EQ(rows % rows_of_tile, 0);
    EXPECT_GT((rows + rows_of_tile) * 128256 * 2, bound);
    EXPECT_EQ(LogitRowsAtOnce({1, 4}, int64_t{1} << 40, DType::kF32, on_device), 1);  // at least one
  }
}

}  // namespace
}  // namespace trainctl::model
