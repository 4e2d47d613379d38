#include "frameworks/operator_time.h"

#include <gtest/gtest.h>

#include "frameworks/layer_time.h"
#include "tests/unit/frameworks/time_job.h"

namespace trainctl::frameworks {
namespace {

// Bytes/s that passes over memory reach on an A100 of 80 GB: 2,039 GB/s nominal, 85 % where nobody measured.
constexpr double kA100 = 2039e9 * 0.85;

TEST(GradientAddition, MovesWhatTheFrameworkMoves) {
  // Eight micro-batches, of which seven find a gradient: two read, one written, two bytes each.
  Workload w = SmallJob("internevo", "a100-sxm-80gb");
  EXPECT_NEAR(GradientAdditionSeconds(w, 1e9), 7.0 / 8 * (6e9 / kA100 + 2e-6), 1e-9);
  // One micro-batch has nothing to add to.
  w.global_batch = 1;
  EXPECT_EQ(GradientAdditionSeconds(w, 1e9), 0);
  // DeepSpeed's optimizer for bf16 copies it to fp32 (2 + 4 bytes) and adds that to fp32 ones (4 + 4 + 4).
  w = SmallJob("megatron-deepspeed", "a100-sxm-80gb");
  EXPECT_NEAR(GradientAdditionSeconds(w, 1e9), 7.0 / 8 * (18e9 / kA100 + 2e-6), 1e-9);
  w.precision = Precision::kFp16;
  EXPECT_NEAR(GradientAdditionSeconds(w, 1e9), 7.0 / 8 * (6e9 / kA100 + 2e-6), 1e-9);
}

TEST(GradientAddition, IsNoneWhereTheProductAddsOrGradientsAreScattered) {
  EXPECT_EQ(GradientAdditionSeconds(SmallJob("megatron-core"), 1e9), 0);
  Workload w = SmallJob("torchtitan");
  EXPECT_GT(GradientAdditionSeconds(w, 1e9), 0);
  for (const int stage : {2, 3}) {
    w.zero_stage = stage;
    EXPECT_EQ(GradientAdditionSeconds(w, 1e9), 0);
  }
  // Under a pipeline they are added up before they are scattered.
  w.mesh.pp = 4;
  EXPECT_GT(GradientAdditionSeconds(w, 1e9), 0);
  w = SmallJob("internevo");
  w.frozen = true;
  EXPECT_EQ(GradientAdditionSeconds(w, 1e9), 0);
}

TEST(GradientAddition, IsThatOfTheMatricesOfALayerAndOfTheHead) {
  Workload w = SmallJob("internevo", "a100-sxm-80gb");
  Workload one = w;
  one.global_batch = 1;
  // Queries, keys and values 4096 x 6144, output 4096 x 4096, gate, up and down 4096 x 14336 each.
  const double layer = 4096.0 * (6144 + 4096 + 3 * 14336);
  EXPECT_NEAR(
      LayerPassTimes(w, 0, {}, true).weight_backward - LayerPassTimes(one, 0, {}, true).weight_backward,
      7.0 / 8 * (6 * layer / kA100 + 2e-6), 1e-9);
  EXPECT_NEAR(HeadPassTimes(w).weight_backward - HeadPassTimes(one).weight_backward,
              7.0 / 8 * (6 * 128256.0 * 4096 / kA100 + 2e-6), 1e-9);
}

TEST(Bias, ItsGradientReadsThoseOfTheOutputs) {
  Workload w = SmallJob("internevo", "a100-sxm-80gb");
  const WorkItem item = {.kind = WorkKind::kMatmul, .rows = 4096, .inner = 4096, .columns = 14336};
  const ForwardBackward without = OperatorSeconds(item, w);
  SetAllLinearBiases(w.model, true);
  const ForwardBackward with = OperatorSeconds(item, w);
  EXPECT_EQ(with.forward, without.forward);
  EXPECT_NEAR(with.backward - without.backward, 4096.0 * 14336 * 2 / kA100 + 2e-6, 1e-9);
  // Where the product adds to the gradient of the weights it sums that of the bias too.
  w = SmallJob("megatron-core");
  const double fused = OperatorSeconds(item, w).backward;
  SetAllLinearBiases(w.model, true);
  EXPECT_EQ(OperatorSeconds(item, w).backward, fused);
}

TEST(JoinedGradients, AreAddedUpInTheBackward) {
  // Queries, keys and values make three gradients of their input, gate and up two: three additions a layer,
  // of two tensors to one, bf16, beside the two where a residual leaves the stream.
  FrameworkProfile framework = *FindFramework("torchtitan");
  Workload w = SmallJob("torchtitan", "a100-sxm-80gb");
  w.framework = &framework;
  const PassTimes apart = LayerPassTimes(w, 0, {}, true);
  framework.joined_gradients = 0;
  const PassTimes joined = LayerPassTimes(w, 0, {}, true);
  EXPECT_NEAR(apart.input_backward - joined.input_backward, 3 * 4096.0 * 4096 * 6 / kA100, 1e-9);
  EXPECT_EQ(apart.forward, joined.forward);
}

TEST(Update, MovesWhatItsKernelsMove) {
  // InternEvo: 122 bytes of a parameter (framework.cc), of which clearing and reading of gradients are eight.
  const Workload w = SmallJob("internevo", "a100-sxm-80gb");
  EXPECT_NEAR(OptimizerSeconds(w, 1e9), 122e9 / kA100, 1e-9);
}

TEST(ScoreBias, IsWrittenForTheProductThatReadsIt) {
  FrameworkProfile framework = *FindFramework("megatron-deepspeed");
  Workload w = SmallJob("megatron-deepspeed", "a100-sxm-80gb");
  w.framework = &framework;
  const WorkItem item = {
      .kind = WorkKind::kAttention, .rows = 4096, .inner = 2048, .columns = 8, .head_dim = 128};
  const ForwardBackward alibi = OperatorSeconds(item, w);
  framework.score_bias_bytes = 0;
  const ForwardBackward none = OperatorSeconds(item, w);
  // Eight heads of 4096 x 4096 scores, two bytes written and two read, and one more kernel to wait for.
  EXPECT_NEAR(alibi.forward - none.forward, 8 * 4096.0 * 4096 * 4 / kA100 + 37e-6, 1e-9);
  EXPECT_EQ(alibi.backward, none.backward);
  // Learned positions are part of the embedding.
  framework.score_bias_bytes = 4;
  w.model.learned_positions = 4096;
  EXPECT_EQ(OperatorSeconds(item, w).forward, none.forward);
}

TEST(Launches, AWaitingHostAddsItsTimeToEveryKernel) {
  FrameworkProfile framework = *FindFramework("megatron-deepspeed");
  Workload w = SmallJob("megatron-deepspeed", "a100-sxm-80gb");
  w.framework = &framework;
  SetEach(w.model, &model::Mlp::gated, false);
  SetAllLinearBiases(w.model, true);
  w.mesh.tp = 2;
  w.recompute = RecomputeKind::kFull;
  const PassTimes waits = LayerPassTimes(w, 0, {}, true);
  framework.blocking_launches = false;
  const PassTimes runs = LayerPassTimes(w, 0, {}, true);
  // Forward: four products, six kernels of attention, two norms, two times three of a residual, one
  // activation.
  EXPECT_NEAR(waits.forward - runs.forward, 19 * 37e-6, 1e-9);
  EXPECT_NEAR(waits.recompute - runs.recompute, 19 * 37e-6, 1e-9);
  // Backward: of a product two and the addition, of its bias the sum and the addition; nine of attention; of
  // a norm three and two additions; two of a residual; the joining of queries, keys and values; the
  // activation.
  EXPECT_NEAR(waits.input_backward + waits.weight_backward - runs.input_backward - runs.weight_backward,
              (4 * 5 + 9 + 2 * 5 + 2 * 2 + 1 + 1) * 37e-6, 1e-9);
  // Two all-reduces a pass.
  EXPECT_NEAR(waits.tensor() - runs.tensor(), 6 * 37e-6, 1e-9);
}

}  // namespace
}  // namespace trainctl::frameworks
