#include "simulate/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "model/architecture.h"
#include "model/parameters.h"
#include "model/presets.h"
#include "schedule/build_step.h"

namespace trainctl::simulate {
namespace {

using schedule::Category;

int64_t Of(const MemoryReport& report, Category category) {
  return report.at_peak[static_cast<size_t>(category)];
}

struct Given {
  layout::Mesh mesh;
  int stage = 0;
  schedule::BuildOptions options;
};

MemoryReport Simulate(const model::Architecture& spec, const Given& given) {
  const layout::Ledger ledger(model::Inventory(spec), given.mesh, given.stage);
  return SimulateMemory(BuildStep(GraphOf(spec, ledger, given.options), ledger, given.options).programs[0]);
}

Given Make(int stage, int workers, DType dtype = DType::kF32) {
  Given given;
  given.stage = stage;
  (stage == 0 ? given.mesh.dp_replicate : given.mesh.dp_shard) = workers;
  given.options.micro_batch = 2;
  given.options.setting.seq_len = 64;
  given.options.setting.types.compute = dtype;
  return given;
}

// A program of three instructions, walked by hand.
TEST(Memory, PlaysTheValuesOfASmallProgramByHand) {
  using schedule::ValueKind;
  schedule::Program program;
  program.values = {{ValueKind::kParameters, Category::kParameters, true, -1, -1, 100},
                    {ValueKind::kHidden, Category::kActivations, false, 1, 0, 10},
                    {ValueKind::kHidden, Category::kActivations, false, 2, 0, 30}};
  schedule::Instruction first{.op = schedule::Op::kForward, .block = 0, .micro_batch = 0};
  first.writes = {1};
  first.peak_extra_bytes = 15;
  schedule::Instruction second{.op = schedule::Op::kForward, .block = 1, .micro_batch = 0};
  second.reads = {1};
  second.writes = {2};
  second.frees = {1};
  second.peak_extra_bytes = 33;  // 100 + 10 + 33 at its peak, 130 at its end
  schedule::Instruction third{.op = schedule::Op::kLoss, .block = 2, .micro_batch = 0};
  third.reads = third.frees = {2};
  third.peak_extra_bytes = 12;  // 142
  program.instructions = {first, second, third};
  const MemoryReport report = SimulateMemory(program);
  EXPECT_EQ(report.peak_bytes, 143);
  EXPECT_EQ(report.peak_instruction, 1);
  EXPECT_EQ(report.peak_where, "forward block 1 micro-batch 0");
  EXPECT_EQ(Of(report, Category::kParameters), 100);
  EXPECT_EQ(Of(report, Category::kActivations), 43);
}

// Bytes per parameter as the literature has them (ZeRO paper; Megatron-LM's README): mixed precision
// with fp32 gradients 18, the optimizer's 12 cut by stage 1; everything in fp32 16.
TEST(Memory, StatesPerParameterAreThePublishedOnes) {
  const model::Architecture spec = *model::Preset("llama-25m");
  const double parameters = static_cast<double>(model::NumParameters(spec));
  const double n = 4;
  const std::tuple<int, DType, double> published[] = {
      {0, DType::kBF16, 18},        {1, DType::kBF16, 6 + 12 / n}, {2, DType::kBF16, 2 + 16 / n},
      {3, DType::kBF16, 16 / n},    {0, DType::kF32, 16},          {1, DType::kF32, 8 + 8 / n},
      {2, DType::kF32, 4 + 12 / n}, {3, DType::kF32, 16 / n},
  };
  for (const auto& [stage, dtype, bytes] : published) {
    const MemoryReport report = Simulate(spec, Make(stage, 4, dtype));
    const double states =
        static_cast<double>(Of(report, Category::kParameters) + Of(report, Category::kGradients) +
                            Of(report, Category::kOptimizer));
    // Shards are padded to whole blocks of 64 bytes.
    EXPECT_NEAR(states / parameters, bytes, 0.001 * bytes) << "stage " << stage;
    EXPECT_GE(states, parameters * bytes) << "stage " << stage;
  }
}

// One state of fp32 less: 14 and 12 bytes where AdamW has 18 and 16; the copy for checkpoints is of what is
// saved, master and states.
TEST(Memory, StatesAreTheOptimizers) {
  const model::Architecture spec = *model::Preset("llama-25m");
  const double parameters = static_cast<double>(model::NumParameters(spec));
  const std::tuple<const char*, double, double, double> expected[] = {
      {"adamw", 12, 8, 12}, {"lion", 8, 4, 8}, {"sgd", 8, 4, 8}};
  for (const auto& [name, with_master, alone, copy] : expected) {
    Given given = Make(0, 1, DType::kBF16);
    given.options.setting.optimizer = optim::Find(name);
    const MemoryReport mixed = Simulate(spec, given);
    EXPECT_NEAR(Of(mixed, Category::kOptimizer) / parameters, with_master, 0.01) << name;
    given.options.setting.checkpoint_copy = true;
    const MemoryReport copied = Simulate(spec, given);
    EXPECT_NEAR((copied.peak_bytes - mixed.peak_bytes) / parameters, copy, 0.01) << name;
    given.options.setting.types.compute = DType::kF32;
    EXPECT_NEAR(Of(Simulate(spec, given), Category::kOptimizer) / parameters, alone, 0.01) << name;
  }
}

// Numbers of twice the size take twice the bytes, and nothing else changes.
TEST(Memory, FollowsTheTypesOfMastersGradientsAndSums) {
  const model::Architecture spec = *model::Preset("toy-1m");
  for (int stage = 0; stage <= 3; ++stage) {
    Given given = Make(stage, 2, DType::kBF16);
    const MemoryReport fp32 = Simulate(spec, given);
    const auto with = [&](DType schedule::Types::*type) {
      Given other = given;
      other.options.setting.types.*type = DType::kF64;
      return Simulate(spec, other);
    };
    const layout::Ledger ledger(model::Inventory(spec), given.mesh, stage);
    int64_t shard = 0, full = 0, largest = 0;
    for (const layout::Bucket& bucket : ledger.buckets()) {
      shard += bucket.shard_numel;
      full += bucket.padded_numel;
      largest = std::max(largest, bucket.padded_numel);
    }
    // AdamW's two states are as wide as the master.
    EXPECT_EQ(with(&schedule::Types::master).peak_bytes - fp32.peak_bytes, 3 * 4 * shard) << stage;
    const double gradients =
        Of(with(&schedule::Types::gradient), Category::kGradients) - Of(fp32, Category::kGradients);
    EXPECT_EQ(gradients, static_cast<double>(4 * (stage >= 2 ? shard : full))) << stage;
    // A piece from the other rank: half of the largest bucket, which is less than a whole piece.
    EXPECT_EQ(with(&schedule::Types::sum).peak_bytes - fp32.peak_bytes, 4 * largest / 2) << stage;
  }
}

TEST(Memory, CategoriesSumToThePeak) {
  const model::Architecture spec = *model::Preset("toy-1m");
  for (int stage = 0; stage <= 3; ++stage) {
    const MemoryReport report = Simulate(spec, Make(stage, 2));
    EXPECT_EQ(std::accumulate(report.at_peak.begin(), report.at_peak.end(), int64_t{0}), report.peak_bytes);
    EXPECT_GE(report.peak_instruction, 0);
    EXPECT_FALSE(report.peak_where.empty());
  }
}

TEST(Memory, AHigherStageNeedsNoMoreStateAndMoreWorkersNeedLess) {
  const model::Architecture spec = *model::Preset("toy-5m");
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const auto states = [&](int stage, int workers) {
      const MemoryReport report = Simulate(spec, Make(stage, workers, dtype));
      return report.peak_bytes - Of(report, Category::kActivations) - Of(report, Category::kBuffers);
    };
    for (int workers : {2, 3, 4, 8}) {
      for (int stage = 1; stage <= 3; ++stage) {
        EXPECT_LT(states(stage, workers), states(stage - 1, workers)) << stage << " on " << workers;
        EXPECT_LT(states(stage, 2 * workers), states(stage, workers)) << stage << " on " << workers;
      }
    }
  }
}

// The planner simulates a few micro-batches and means all of them.
TEST(Memory, ThePeakDoesNotDependOnTheNumberOfMicroBatches) {
  const model::Architecture spec = *model::Preset("toy-1m");
  for (int stage = 0; stage <= 3; ++stage) {
    for (layout::Recompute recompute : layout::kRecomputes) {
      for (bool prefetch : {false, true}) {
        Given given = Make(stage, 2, DType::kBF16);
        given.options.recompute = recompute;
        given.options.setting.prefetch = prefetch;
        const MemoryReport one = Simulate(spec, given);
        for (int count : {2, 3, 7}) {
          given.options.num_micro_batches = count;
          EXPECT_EQ(Simulate(spec, given).at_peak, one.at_peak) << "stage " << stage;
          EXPECT_EQ(Simulate(spec, given).peak_where, one.peak_where) << "stage " << stage;
        }
      }
    }
  }
}

TEST(Memory, ActivationsAreLinearInTheMicroBatch) {
  const model::Architecture spec = *model::Preset("toy-1m");
  for (layout::Recompute recompute : layout::kRecomputes) {
    Given given = Make(3, 2);
    given.options.recompute = recompute;
    std::vector<int64_t> activations;
    for (int64_t batch : {1, 2, 3, 6}) {
      given.options.micro_batch = batch;
      activations.push_back(Of(Simulate(spec, given), Category::kActivations));
    }
    EXPECT_EQ(activations[1], 2 * activations[0]);
    EXPECT_EQ(activations[2], 3 * activations[0]);
    EXPECT_EQ(activations[3], 6 * activations[0]);
  }
}

// Recompute keeps one hidden state a layer; what a layer saves lives for one layer at a time.
TEST(Memory, RecomputeKeepsOnlyTheInputsOfTheLayers) {
  const model::Architecture spec = *model::Preset("llama-25m");
  Given given = Make(0, 1);
  const int64_t hidden_bytes = given.options.shape().tokens() * spec.hidden * 4;
  const auto activations = [&](int64_t layers) {
    model::Architecture deep = spec;
    SetNumLayers(deep, layers);
    return Of(Simulate(deep, given), Category::kActivations);
  };
  const int64_t kept = activations(20) - activations(10);
  given.options.recompute = layout::Recompute::kFull;
  const int64_t recomputed = activations(20) - activations(10);
  EXPECT_EQ(recomputed, 10 * hidden_bytes);
  EXPECT_GT(kept, 5 * recomputed);
}

// The peak is at the end of the model, where nothing is formed again yet: each recomputed layer is there with
// its input alone, whichever ZeRO stage moves its parameters.
TEST(Memory, EachRecomputedLayerKeepsItsInputAlone) {
  model::Architecture spec = *model::Preset("llama-25m");
  SetNumLayers(spec, 12);
  for (const int stage : {0, 3}) {
    Given given = Make(stage, stage == 0 ? 1 : 2);
    const auto activations = [&] { return Of(Simulate(spec, given), Category::kActivations); };
    const int64_t kept = activations();
    const layout::Ledger ledger(model::Inventory(spec), given.mesh, stage);
    const int64_t saved_bytes =
        model::Analyze(model::BuildGraph(spec, ledger.inventory(), given.options.segment(ledger))->segment(1))
            .saved_bytes;
    given.options.recompute = layout::Recompute::kFull;
    for (int64_t recomputed = 0; recomputed < 12; ++recomputed) {
      given.options.recomputed_layers = {recomputed};
      EXPECT_EQ(activations(), kept - recomputed * saved_bytes) << recomputed;
    }
    given.options.recomputed_layers = {12};
    const int64_t all = activations();
    given.options.recomputed_layers = {};
    EXPECT_EQ(activations(), all);
  }
}

TEST(Memory, PrefetchCostsOneMoreSlotOfEachKind) {
  const model::Architecture spec = *model::Preset("llama-25m");
  Given given = Make(3, 2);
  const int64_t with = Of(Simulate(spec, given), Category::kBuffers);
  given.options.setting.prefetch = false;
  const int64_t without = Of(Simulate(spec, given), Category::kBuffers);
  const layout::Ledger ledger(model::Inventory(spec), given.mesh, given.stage);
  EXPECT_EQ(with - without, 2 * 4 * ledger.buckets()[1].padded_numel);  // parameters and gradient, fp32
}

TEST(Memory, TheRuleOfThePromise) {
  const int64_t mib = int64_t{1} << 20;
  EXPECT_TRUE(MeetsPeak(10 * mib, 12 * mib));
  EXPECT_FALSE(MeetsPeak(10 * mib, 12 * mib + 1));
  EXPECT_FALSE(MeetsPeak(14 * mib + 1, 12 * mib));
  EXPECT_TRUE(MeetsPeak(97 * mib, 100 * mib));
  EXPECT_FALSE(MeetsPeak(97 * mib - 1, 100 * mib));
  EXPECT_FALSE(MeetsPeak(61 * mib, 64 * mib));
}

}  // namespace
}  // namespace trainctl::simulate
