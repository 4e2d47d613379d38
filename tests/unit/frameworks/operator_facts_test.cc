// The operators' times against what others measured of single kernels and published: none of these runs is
// among those that whole steps are scored on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "cluster/catalogue.h"
#include "frameworks/operator_time.h"
#include "simulate/device_matmul.h"

namespace trainctl::frameworks {
namespace {

const cluster::Device& Device(const char* name) {
  const auto match = cluster::FindDevice(name);
  EXPECT_TRUE(match.ok()) << match.status();
  return *match->device;
}

constexpr char kSimuMaxA100[] = "MooreThreads/SimuMax configs/system/a100_pcie.json";
constexpr char kCudnn[] =
    "NVIDIA/cudnn-frontend benchmark/sdpa_benchmark_training/results/gb*_919_only_cudnn";
constexpr char kSimuMaxB200[] = "MooreThreads/SimuMax configs/system/b200_bf16_ceperm.json";
constexpr char kHipKittens[] = "HazyResearch/HipKittens@f09e9685 analysis/attn/{fwd,bkwd}";

struct AttentionFact {
  const char* device;
  AttentionKernel kernel;
  double sequences, seq_len, heads, head_dim;
  double forward, backward;  // TFLOP/s of the causal half; 0: not published
  double tolerance;
  const char* source;
};

constexpr char kFlash3[] = "arXiv 2407.08608, figures 5 (causal) and 6 (unmasked)";

const AttentionFact kAttentions[] = {
    {"a100-pcie-80gb", AttentionKernel::kFlash2, 1, 4096, 64, 128, 185, 157, 0.05, kSimuMaxA100},
    {"a100-pcie-80gb", AttentionKernel::kFlash2, 1, 4096, 16, 128, 154, 139, 0.08, kSimuMaxA100},
    {"a100-pcie-80gb", AttentionKernel::kFlash2, 1, 4096, 4, 128, 80, 105, 0.15, kSimuMaxA100},
    {"a100-pcie-80gb", AttentionKernel::kFlash2, 1, 4096, 128, 160, 167, 125, 0.12, kSimuMaxA100},
    {"h100-sxm-80gb", AttentionKernel::kFlash2, 32, 512, 16, 128, 191, 214, 0.15, kFlash3},
    {"h100-sxm-80gb", AttentionKernel::kFlash2, 8, 2048, 16, 128, 298, 291, 0.06, kFlash3},
    {"h100-sxm-80gb", AttentionKernel::kFlash2, 1, 16384, 16, 128, 335, 322, 0.05, kFlash3},
    {"h100-sxm-80gb", AttentionKernel::kFlash2, 1, 16384, 32, 64, 299, 291, 0.08, kFlash3},
    {"h100-sxm-80gb", AttentionKernel::kVendor, 8, 2048, 16, 128, 484, 465, 0.06, kFlash3},
    {"h100-sxm-80gb", AttentionKernel::kVendor, 1, 16384, 16, 128, 539, 516, 0.06, kFlash3},
    {"h100-sxm-80gb", AttentionKernel::kVendor, 1, 16384, 32, 64, 388, 433, 0.1, kFlash3},
    {"b200-sxm-180gb", AttentionKernel::kVendor, 1, 4096, 128, 128, 1121, 936, 0.05, kSimuMaxB200},
    {"b200-sxm-180gb", AttentionKernel::kVendor, 1, 4096, 16, 128, 651, 850, 0.15, kSimuMaxB200},
    {"b200-sxm-180gb", AttentionKernel::kVendor, 1, 32768, 16, 128, 1311, 981, 0.15, kSimuMaxB200},
    {"b200-sxm-180gb", AttentionKernel::kVendor, 1, 4096, 64, 160, 996, 685, 0.15, kSimuMaxB200},
    // 4 x heads x tokens x mean keys x head size, 2.5 times backward, over the milliseconds of the tables.
    {"gb200-186gb", AttentionKernel::kVendor, 1, 4096, 64, 128, 1335, 1132, 0.2, kCudnn},
    {"gb200-186gb", AttentionKernel::kVendor, 1, 8192, 64, 128, 1598, 1311, 0.12, kCudnn},
    {"gb200-186gb", AttentionKernel::kVendor, 1, 8192, 128, 160, 1527, 1248, 0.12, kCudnn},
    {"gb300-288gb", AttentionKernel::kVendor, 1, 4096, 64, 128, 1672, 1195, 0.2, kCudnn},
    {"gb300-288gb", AttentionKernel::kVendor, 1, 8192, 64, 128, 1887, 1385, 0.12, kCudnn},
    {"gb300-288gb", AttentionKernel::kVendor, 1, 4096, 128, 160, 1515, 1158, 0.15, kCudnn},
    {"mi355x", AttentionKernel::kFlash2, 16, 16384, 64, 128, 789, 259, 0.03, kHipKittens},
    {"mi355x", AttentionKernel::kFlash2, 16, 8192, 64, 128, 705, 224, 0.15, kHipKittens},
    {"mi355x", AttentionKernel::kVendor, 16, 16384, 16, 128, 1247, 1109, 0.03, kHipKittens},
    {"mi355x", AttentionKernel::kVendor, 16, 8192, 16, 128, 1173, 1034, 0.08, kHipKittens},
};

// Of one kernel with less power, whose products are at 500 of 700 W and 750 of 1000 W: as much slower.
TEST(OperatorFacts, AttentionKeepsToTheClockThatProductsLeave) {
  const auto forward = [](const char* device, AttentionKernel kernel) {
    FrameworkProfile framework;
    framework.attention = kernel;
    Workload w;
    w.device = &Device(device);
    w.framework = &framework;
    w.seq_len = 8192;
    return OperatorSeconds(
               {.kind = WorkKind::kAttention, .rows = 8192, .inner = 4096, .columns = 32, .head_dim = 128}, w)
        .forward;
  };
  EXPECT_NEAR(forward("h100-sxm-96gb-hbm2e", AttentionKernel::kFlash2) /
                  forward("h100-sxm-80gb", AttentionKernel::kFlash2),
              7.0 / 5, 0.01);
  EXPECT_NEAR(forward("b200-sxm-180gb-750w", AttentionKernel::kVendor) /
                  forward("b200-sxm-180gb", AttentionKernel::kVendor),
              1000.0 / 750, 0.01);
}

TEST(OperatorFacts, AttentionTakesWhatWasMeasured) {
  for (const AttentionFact& fact : kAttentions) {
    FrameworkProfile framework;
    framework.attention = fact.kernel;
    Workload w;
    w.device = &Device(fact.device);
    w.framework = &framework;
    w.seq_len = static_cast<int64_t>(fact.seq_len);
    const WorkItem item = {.kind = WorkKind::kAttention,
                           .rows = fact.sequences * fact.seq_len,
                           .inner = fact.seq_len / 2,
                           .columns = fact.heads,
                           .head_dim = fact.head_dim};
    const ForwardBackward seconds = OperatorSeconds(item, w);
    const double flops = 4 * item.rows * item.inner * item.columns * item.head_dim / 1e12;
    const std::string what = absl::StrCat(fact.device, " ", fact.sequences, " x ", fact.seq_len, " tokens, ",
                                          fact.heads, " heads of ", fact.head_dim, " (", fact.source, ")");
    EXPECT_LT(std::abs(seconds.forward / (flops / fact.forward) - 1), fact.tolerance)
        << "forward " << flops / seconds.forward << " TFLOP/s against " << fact.forward << ", " << what;
    EXPECT_LT(std::abs(seconds.backward / (2.5 * flops / fact.backward) - 1), fact.tolerance)
        << "backward " << 2.5 * flops / seconds.backward << " TFLOP/s against " << fact.backward << ", "
        << what;
  }
}

// The vendor's kernel over causal sequences of 4,096 tokens, `keys` of which a query sees on average.
ForwardBackward VendorSeconds(const char* device, bool fp8, double queries, double keys, double heads,
                              double head_dim) {
  FrameworkProfile framework;
  framework.attention = AttentionKernel::kVendor;
  Workload w;
  w.device = &Device(device);
  w.framework = &framework;
  w.seq_len = 4096;
  w.fp8_attention = fp8;
  return OperatorSeconds(
      {.kind = WorkKind::kAttention, .rows = queries, .inner = keys, .columns = heads, .head_dim = head_dim},
      w);
}

// cudnn-frontend, ibid.
TEST(OperatorFacts, AttentionOfGptOssTakesWhatWasMeasured) {
  // Two sequences of 4,096 tokens, 64 heads of 64, in a window of 1,024: queries see 1,024 - 1,024^2 / 8,192
  // keys on average. The backward in FP8 takes what it does without a window.
  struct Fact {
    const char* device;
    bool fp8;
    double forward_ms, backward_ms;
  };
  for (const Fact& fact :
       {Fact{"gb200-186gb", false, 0.209, 0.487}, Fact{"gb200-186gb", true, 0.203, 0.862},
        Fact{"gb300-288gb", false, 0.178, 0.472}, Fact{"gb300-288gb", true, 0.148, 0.792}}) {
    const ForwardBackward seconds = VendorSeconds(fact.device, fact.fp8, 2 * 4096, 896, 64, 64);
    EXPECT_NEAR(seconds.forward * 1e3 / fact.forward_ms, 1, 0.05) << fact.device << " " << fact.fp8;
    EXPECT_NEAR(seconds.backward * 1e3 / fact.backward_ms, 1, 0.05) << fact.device << " " << fact.fp8;
  }
}

// cudnn-frontend, ibid.: milliseconds of 4,096 tokens in FP8.
TEST(OperatorFacts, AttentionInFp8TakesWhatWasMeasured) {
  struct Fact {
    const char* device;
    double heads, head_dim, forward_ms, backward_ms;
  };
  for (const Fact& fact :
       {Fact{"gb200-186gb", 64, 128, 0.161, 0.559}, Fact{"gb200-186gb", 128, 160, 0.359, 1.31},
        Fact{"gb300-288gb", 64, 128, 0.118, 0.525}, Fact{"gb300-288gb", 128, 160, 0.285, 1.197}}) {
    const ForwardBackward seconds =
        VendorSeconds(fact.device, /*fp8=*/true, 4096, 2048, fact.heads, fact.head_dim);
    EXPECT_NEAR(seconds.forward * 1e3 / fact.forward_ms, 1, 0.15) << fact.device << " " << fact.head_dim;
    EXPECT_NEAR(seconds.backward * 1e3 / fact.backward_ms, 1, 0.18) << fact.device << " " << fact.head_dim;
  }
}

// EleutherAI/cookbook, ibid., h_sweep_tp.out: forward of Megatron-DeepSpeed's unfused attention, with its two
// products of weights, 4 sequences of 2,048, 128 heads.
TEST(OperatorFacts, AttentionThroughMemoryTakesWhatWasMeasured) {
  FrameworkProfile framework;
  framework.attention = AttentionKernel::kScores;
  Workload w;
  w.device = &Device("a100-sxm-80gb");
  w.framework = &framework;
  w.seq_len = 2048;
  w.micro_batch = 4;
  w.model.dropout = true;
  const std::pair<double, double> kHiddenAndMilliseconds[] = {{8192, 38.8},  {8320, 53.3},  {10240, 51.2},
                                                              {13824, 77.3}, {14336, 79.5}, {16384, 95.8}};
  for (const auto& [hidden, milliseconds] : kHiddenAndMilliseconds) {
    const double tokens = 4 * 2048;
    const ForwardBackward scores = OperatorSeconds({.kind = WorkKind::kAttention,
                                                    .rows = tokens,
                                                    .inner = 1024,
                                                    .columns = 128,
                                                    .head_dim = hidden / 128},
                                                   w);
    const double seconds =
        scores.forward + simulate::MatmulSeconds(*w.device, w.precision, {1, tokens, hidden, 3 * hidden, 2}) +
        simulate::MatmulSeconds(*w.device, w.precision, {1, tokens, hidden, hidden, 2});
    EXPECT_LT(std::abs(seconds * 1e3 / milliseconds - 1), 0.1) << hidden << ": " << seconds * 1e3 << " ms";
  }
}

// linkedin/Liger-Kernel@ead96b61 benchmark/data/all_benchmark_data.csv, layer_norm of PyTorch in fp32, of
// which half precision moves half: 4,096 rows, forward and forward with backward. Dao-AILab/quack@c8ec317
// media/bf16_kernel_benchmarks_single_row.svg: compiled, 32,768 rows of 4,096, 2,303 GB/s.
TEST(OperatorFacts, NormsTakeWhatWasMeasured) {
  struct Fact {
    const char* device;
    NormKernel kernel;
    double rows, columns, forward_ms, both_ms;
  };
  for (const Fact& fact :
       {Fact{"a100-sxm-80gb", NormKernel::kPlain, 4096, 4096, 0.1218 / 2, 0.4314 / 2},
        Fact{"a100-sxm-80gb", NormKernel::kPlain, 4096, 16384, 0.5067 / 2, 1.6213 / 2},
        Fact{"h100-sxm-80gb", NormKernel::kPlain, 4096, 8192, 0.1527 / 2, 0.4833 / 2},
        Fact{"h100-sxm-80gb", NormKernel::kPlain, 4096, 16384, 0.3068 / 2, 0.9506 / 2},
        Fact{"h100-sxm-80gb", NormKernel::kCompiled, 32768, 4096, 4 * 32768 * 4096.0 / 2303e9 * 1e3, 0}}) {
    FrameworkProfile framework;
    framework.norm = fact.kernel;
    Workload w;
    w.device = &Device(fact.device);
    w.framework = &framework;
    const ForwardBackward seconds = OperatorSeconds({.kind = WorkKind::kElementwise,
                                                     .pass = PassKind::kNorm,
                                                     .moved_bytes = 4 * fact.rows * fact.columns},
                                                    w);
    EXPECT_NEAR(seconds.forward * 1e3 / fact.forward_ms, 1, 0.15) << fact.device << " " << fact.columns;
    if (fact.both_ms == 0) continue;
    EXPECT_NEAR((seconds.forward + seconds.backward) * 1e3 / fact.both_ms, 1, 0.15) << fact.device;
  }
}

// EleutherAI/cookbook, ibid., h_sweep_tp.out: a layer less its attention and its MLP, two norms and two
// biases, dropouts and additions, 4 sequences of 2,048; three durations in tenths of a millisecond decide
// each.
TEST(OperatorFacts, WhatIsBesideAttentionAndMlpTakesWhatWasMeasured) {
  for (const auto& [hidden, milliseconds] :
       {std::pair{8192, 3.1}, std::pair{12288, 4.0}, std::pair{14336, 4.6}, std::pair{16384, 6.6}}) {
    Workload w;
    w.device = &Device("a100-sxm-80gb");
    w.framework = FindFramework("megatron-deepspeed");
    w.model.dropout = true;
    FrameworkProfile asynchronous = *w.framework;
    asynchronous.blocking_launches = false;
    w.framework = &asynchronous;
    const double bytes = 2 * 8192.0 * hidden;
    const auto forward = [&](PassKind pass, double passes) {
      return OperatorSeconds({.kind = WorkKind::kElementwise, .pass = pass, .moved_bytes = passes * bytes}, w)
          .forward;
    };
    const double seconds = 2 * forward(PassKind::kNorm, 2) + 2 * forward(PassKind::kResidual, 3);
    EXPECT_NEAR(seconds * 1e3 / milliseconds, 1, 0.15) << hidden;
  }
}

// Liger-Kernel, ibid., megatron_cross_entropy, 8,192 tokens on H100: Triton's kernels, as Transformer
// Engine's are, 7.96 ms with the backward for 131,072 columns and 4.02 for 65,536.
TEST(OperatorFacts, LossesTakeWhatWasMeasured) {
  for (const auto& [columns, milliseconds] : {std::pair{131072, 7.96}, std::pair{65536, 4.02}}) {
    Workload w;
    w.device = &Device("h100-sxm-80gb");
    w.framework = FindFramework("megatron-core");
    w.seq_len = 8192;
    w.model.hidden = 64;
    w.model.vocab = columns;
    FrameworkProfile without = *w.framework;
    without.logit_moved_bytes = without.logit_row_bytes = 0;
    const ForwardBackward all = HeadSeconds(w);
    w.framework = &without;
    const ForwardBackward products = HeadSeconds(w);
    const double loss = all.forward + all.backward - products.forward - products.backward;
    EXPECT_NEAR(loss * 1e3 / milliseconds, 1, 0.03) << columns;
  }
}

}  // namespace
}  // namespace trainctl::frameworks
