#include "published/notes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/catalogue.h"
#include "frameworks/framework.h"

namespace trainctl::published {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

frameworks::Workload Of(const char* framework, const char* device) {
  frameworks::Workload w;
  w.model.layers = 70;
  w.seq_len = 4096;
  w.framework = frameworks::FindFramework(framework);
  w.device = cluster::FindDevice(device)->device;
  w.node = &cluster::DefaultNodeFor(*w.device);
  return w;
}

std::vector<std::string> Apply(const RunText& text, frameworks::Workload& w) {
  std::vector<std::string> assumptions;
  ApplyNotes(text, w, assumptions);
  return assumptions;
}

// bigscience-workshop/bigscience train/tr11-176B-ml/chronicles-prequel.md:899-901.
TEST(ApplyNotes, BloomsSectionsDecideStagesAndGradients) {
  frameworks::Workload before = Of("megatron-deepspeed", "A100-80GB");
  Apply({.notes = "BLOOM prep, sect \"Best TFLOPs\""}, before);
  EXPECT_EQ(before.embedding_is_layer, false);
  EXPECT_DOUBLE_EQ(before.GradientBytes(), 2);
  frameworks::Workload after = Of("megatron-deepspeed", "A100-80GB");
  Apply({.notes = "BLOOM prep, sect \"Rebalancing layers\""}, after);
  EXPECT_EQ(after.embedding_is_layer, true);
  EXPECT_DOUBLE_EQ(after.GradientBytes(), 6);  // bf16, and fp32 of all parameters
  EXPECT_TRUE(after.model.dropout);
}

TEST(ApplyNotes, TheModelsNameSaysThatTokensAreDropped) {
  frameworks::Workload w = Of("megatron-bridge", "H100-80GB");
  Apply({.model = "Qwen3-30B-A3B (tokendrop)"}, w);
  EXPECT_TRUE(w.drops_tokens);
  Apply({.model = "Qwen3-30B-A3B (dropless)"}, w);
  EXPECT_FALSE(w.drops_tokens);
}

TEST(ApplyNotes, ASeriesAddsASwitchARow) {
  const auto row = [](const char* notes, const char* optimizer = "AdamW") {
    frameworks::Workload w = Of("torchtune", "A100-80GB");
    Apply({.source = "pytorch/torchtune", .optimizer = optimizer, .notes = notes}, w);
    return w;
  };
  EXPECT_EQ(row("cumulative baseline (unpacked)").seq_len, 512);
  EXPECT_FALSE(row("cumulative +packed").FusedElementwise());
  EXPECT_TRUE(row("cumulative +compile").FusedElementwise());
  EXPECT_EQ(row("cumulative +compile").loss_chunks, 1);
  EXPECT_EQ(row("cumulative +chunked CE").loss_chunks, 8);
  EXPECT_FALSE(row("cumulative +chunked CE").optimizer_in_backward);
  EXPECT_TRUE(row("cumulative +optimizer in backward").optimizer_in_backward);
  EXPECT_TRUE(row("cumulative +activation offload").activations_on_host);
  const frameworks::Workload last = row("cumulative +8-bit AdamW", "AdamW8bit");
  EXPECT_TRUE(last.activations_on_host && last.optimizer_in_backward);
  EXPECT_DOUBLE_EQ(last.OptimizerBytes(), 2);
}

TEST(ApplyNotes, OneDevicesRecipePagesItsMoments) {
  frameworks::Workload w = Of("torchtune", "RTX 4090");
  EXPECT_THAT(Apply({.notes = "packed 2048, compile; single-device recipe"}, w),
              Contains(HasSubstr("8B_full_single_device.yaml")));
  EXPECT_TRUE(w.optimizer_in_backward);
  EXPECT_LT(w.OptimizerBytes(), 0.01);
  EXPECT_EQ(w.recompute, frameworks::RecomputeKind::kFull);
  // The same table's row with most tokens a second, on 48 GB.
  frameworks::Workload fast = Of("torchtune", "A6000");
  EXPECT_THAT(Apply({.notes = "packed 2048, compile; single-device recipe"}, fast),
              Contains(HasSubstr("without its recompute")));
  EXPECT_EQ(fast.recompute, frameworks::RecomputeKind::kNone);
  EXPECT_LT(fast.OptimizerBytes(), 0.01);
}

TEST(ApplyNotes, LowPrecisionKeepsItsWeightsInIt) {
  const auto in_fp8 = [](const char* device, const char* model, frameworks::Precision precision) {
    frameworks::Workload w = Of("megatron-bridge", device);
    w.precision = precision;
    Apply({.model = model}, w);
    return w.weights_in_fp8;
  };
  const auto transposed = [](const char* device, const char* model) {
    frameworks::Workload w = Of("megatron-bridge", device);
    w.precision = frameworks::Precision::kFp8;
    Apply({.model = model}, w);
    return w.transposed_weights;
  };
  EXPECT_TRUE(transposed("H100-80GB", "Llama3 70B"));  // FP8 products of Hopper read operands one way
  EXPECT_FALSE(transposed("GB200", "Llama3 70B"));
  EXPECT_TRUE(in_fp8("GB200", "DeepSeek-V3", frameworks::Precision::kFp8));
  EXPECT_FALSE(in_fp8("GB200", "DeepSeek-V3", frameworks::Precision::kMxfp8));  // two copies, as much as bf16
  EXPECT_FALSE(in_fp8("H100-80GB", "DeepSeek-V3", frameworks::Precision::kFp8));
  EXPECT_TRUE(in_fp8("H100-80GB", "Llama3 70B", frameworks::Precision::kFp8));
  EXPECT_FALSE(in_fp8("GB200", "Llama3 70B", frameworks::Precision::kBf16));
}

TEST(ApplyNotes, AdaptersLeaveTheRestAsItIs) {
  frameworks::Workload w = Of("megatron-bridge", "H100-80GB");
  Apply({.notes = "LoRA; 26.06 NeMo Container"}, w);
  EXPECT_TRUE(w.frozen);
}

TEST(ApplyNotes, TensorwiseFloat8IsGatheredAsSuch) {
  const auto gathers = [](const char* notes, frameworks::Precision precision) {
    frameworks::Workload w = Of("torchtitan", "H100");
    w.precision = precision;
    Apply({.source = "pytorch/ao@1:x.md", .notes = notes}, w);
    return w.gathers_fp8;
  };
  EXPECT_TRUE(gathers("tensorwise fp8 all-gather; torchtitan+compile", frameworks::Precision::kFp8));
  EXPECT_TRUE(gathers("float8 tensorwise", frameworks::Precision::kFp8));
  EXPECT_FALSE(gathers("float8 rowwise", frameworks::Precision::kFp8));
  EXPECT_FALSE(gathers("tensorwise", frameworks::Precision::kBf16));
  frameworks::Workload small = Of("torchtitan-eager", "A100-80GB");
  small.model.hidden = 5120;
  frameworks::Workload large = small;
  large.model.hidden = 8192;
  const RunText text = {.source = "pytorch/torchtitan@1:docs/performance.md#L44"};
  Apply(text, small);
  Apply(text, large);
  EXPECT_TRUE(small.fused_norms);
  EXPECT_FALSE(large.fused_norms);
}

// pytorch/ao@36027d82 torchao/testing/training/roofline_utils.py: by rows 2 + 1 + 2 and 2 + 1 bytes are moved
// of an operand; with gradients of weights in high precision 2 + 1; in blocks 2 + 1 twice.
TEST(ApplyNotes, RecipesOfFloat8CastByTheirScales) {
  const auto read = [](const char* notes, frameworks::Precision precision) {
    frameworks::Workload w = Of("torchtitan", "H100");
    w.precision = precision;
    Apply({.source = "pytorch/ao@1:x.md", .notes = notes}, w);
    return w;
  };
  EXPECT_EQ(read("rowwise bf16 all-gather", frameworks::Precision::kFp8).quantize_bytes, 8);
  EXPECT_EQ(read("rowwise bf16 all-gather", frameworks::Precision::kFp8).quantize_weight_bytes, 10);
  EXPECT_FALSE(read("rowwise", frameworks::Precision::kFp8).half_weight_gradients);
  EXPECT_EQ(read("rowwise_with_gw_hp", frameworks::Precision::kFp8).quantize_bytes, 3);
  EXPECT_TRUE(read("rowwise_with_gw_hp", frameworks::Precision::kFp8).half_weight_gradients);
  EXPECT_EQ(read("mxfp8_cublas", frameworks::Precision::kMxfp8).quantize_weight_bytes, 6);
  EXPECT_EQ(read("tensorwise", frameworks::Precision::kFp8).quantize_bytes, 0);
  EXPECT_EQ(read("bf16", frameworks::Precision::kBf16).quantize_bytes, 0);
  // The loss that is not compiled moves what the eager profile's does.
  EXPECT_EQ(read("bf16", frameworks::Precision::kBf16).logit_moved_bytes, 36);
}

// mosaicml/llm-foundry@9fa3ceb9 and @b2a43a14, sweep.sh: PyTorch 1.13.1 and 2.1.0.
TEST(ApplyNotes, FoundrysTablesAreOfTwoReleases) {
  frameworks::Workload april = Of("fsdp1", "A100-40GB");
  EXPECT_THAT(Apply({.notes = "grad_accum=8; raw precision=bf16 MP mode=PURE"}, april),
              Contains(HasSubstr("PURE")));
  EXPECT_FALSE(april.StopsRecomputeEarly());
  EXPECT_DOUBLE_EQ(april.ExchangedGradientBytes(), 2);
  frameworks::Workload october = Of("fsdp1", "H100-80GB");
  EXPECT_TRUE(Apply({.notes = "grad_accum=1; raw precision=amp_bf16 MP mode=DEFAULT"}, october).empty());
  EXPECT_TRUE(october.StopsRecomputeEarly());
  EXPECT_DOUBLE_EQ(october.ExchangedGradientBytes(), 4);
}

TEST(ApplyNotes, TorchaosTablesAreOfTwoReleases) {
  frameworks::Workload h100 = Of("torchtitan", "H100");
  Apply({.source = "pytorch/ao@1:x.md"}, h100);
  EXPECT_DOUBLE_EQ(h100.LogitBytes(), 14);
  EXPECT_FALSE(h100.recompute_attention);
  frameworks::Workload b200 = Of("torchtitan", "B200");
  Apply({.source = "pytorch/ao@1:x.md"}, b200);
  EXPECT_DOUBLE_EQ(b200.LogitBytes(), 4);
  EXPECT_TRUE(b200.recompute_attention);
  frameworks::Workload other = Of("torchtitan", "B200");
  Apply({.source = "pytorch/torchtitan@1:x.md"}, other);
  EXPECT_FALSE(other.recompute_attention);
}

}  // namespace
}  // namespace trainctl::published
