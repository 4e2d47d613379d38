#include "simulate/cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/status.h"
#include "model/presets.h"
#include "schedule/layout_step.h"

namespace trainctl::simulate {
namespace {

struct Priced {
  StepCost cost;
  double parameters = 0;
};

Priced Price(int stage, int workers, int64_t num_micro_batches, int64_t priced_micro_batches,
             bool overlap = false) {
  model::Architecture spec = *model::Preset("toy-5m");
  SetNumLayers(spec, 12);
  layout::Mesh mesh;
  (stage == 0 ? mesh.dp_replicate : mesh.dp_shard) = workers;
  const layout::Ledger ledger(model::Inventory(spec), mesh, stage);
  schedule::BuildOptions options;
  options.micro_batch = 2;
  options.setting.seq_len = 64;
  options.num_micro_batches = static_cast<int>(priced_micro_batches);
  Rates rates = CpuRates(1, DType::kF32, false);
  rates.overlap = overlap;
  return {PriceStep(BuildStep(GraphOf(spec, ledger, options), ledger, options), ledger, options,
                    num_micro_batches, rates),
          static_cast<double>(model::NumParameters(spec))};
}

// The ZeRO paper: data parallelism and stages 1 and 2 move 2 elements per parameter (times (n-1)/n),
// stage 3 half as much again: it gathers once more. What is still in its slot is not gathered twice.
TEST(Cost, BytesMovedAreThoseOfTheZeroPaper) {
  for (int workers : {2, 4}) {
    for (int stage = 0; stage <= 2; ++stage) {
      const Priced priced = Price(stage, workers, 1, 1);
      const double expected = 2 * 4 * priced.parameters * (workers - 1) / workers;
      EXPECT_NEAR(static_cast<double>(priced.cost.sent_bytes), expected, 0.01 * expected)
          << "stage " << stage;
    }
    const double ratio = static_cast<double>(Price(3, workers, 1, 1).cost.sent_bytes) /
                         static_cast<double>(Price(0, workers, 1, 1).cost.sent_bytes);
    EXPECT_LE(ratio, 1.5);
    EXPECT_GT(ratio, 1.3);
  }
  EXPECT_EQ(Price(0, 1, 1, 1).cost.sent_bytes, 0);
}

TEST(Cost, AccumulationIsFreeForStage1AndNotForStages2And3) {
  EXPECT_EQ(Price(1, 2, 6, 3).cost.sent_bytes, Price(1, 2, 1, 1).cost.sent_bytes);
  EXPECT_GT(Price(2, 2, 6, 3).cost.sent_bytes, 3 * Price(2, 2, 1, 1).cost.sent_bytes);
  EXPECT_GT(Price(3, 2, 6, 3).cost.sent_bytes, 5 * Price(3, 2, 1, 1).cost.sent_bytes);
}

// Three micro-batches stand for many: exact, as the whole step shows.
TEST(Cost, TheMiddleMicroBatchStandsForTheOthers) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (bool overlap : {false, true}) {
      const StepCost whole = Price(stage, 2, 9, 9, overlap).cost;
      const StepCost extended = Price(stage, 2, 9, kMicroBatchesToPrice, overlap).cost;
      EXPECT_EQ(extended.sent_bytes, whole.sent_bytes) << "stage " << stage;
      EXPECT_NEAR(extended.compute_seconds, whole.compute_seconds, 1e-9);
      EXPECT_NEAR(extended.seconds, whole.seconds, overlap ? 0.01 * whole.seconds : 1e-9)
          << "stage " << stage;
    }
  }
}

// What a layout's axes carry, by formulae of the papers.
std::vector<AxisVolume> VolumesOfLayout(const model::Architecture& spec, const layout::Layout& layout) {
  schedule::StepSetting setting;
  setting.seq_len = 64;
  const absl::StatusOr<schedule::LayoutStep> built =
      schedule::BuildLayoutStep(spec, model::Inventory(spec), layout, setting);
  TRAINCTL_CHECK_MSG(built.ok(), built.status().message());
  const std::vector<AxisVolume> volumes = VolumesOf(built->step, built->ledger, built->options);
  int64_t carried = 0;
  for (const AxisVolume& volume : volumes) carried += volume.sent_bytes;
  const int64_t sent = PriceStep(built->step, built->ledger, built->options, layout.num_micro_batches,
                                 CpuRates(1, DType::kF32, false))
                           .sent_bytes;
  EXPECT_NEAR(static_cast<double>(sent), static_cast<double>(carried), 1e3)
      << "the step sends what its axes carry, except for sums of one number";
  return volumes;
}

TEST(Volume, DataParallelAxesCarryWhatTheStepSends) {
  const model::Architecture spec = *model::Preset("toy-5m");
  layout::Layout layout;
  layout.mesh = {.dp_replicate = 2, .dp_shard = 4};
  layout.zero_stage = 1;
  layout.micro_batch = 2;
  layout.num_micro_batches = 1;
  const std::vector<AxisVolume> volumes = VolumesOfLayout(spec, layout);
  ASSERT_EQ(volumes.size(), 2u);
  const auto bytes = static_cast<double>(4 * model::NumParameters(spec));
  EXPECT_EQ(volumes[0].axis, layout::Axis::kDpShard);
  EXPECT_EQ(volumes[0].stride, 1);
  EXPECT_NEAR(static_cast<double>(volumes[0].sent_bytes), 2 * 0.75 * bytes, 0.01 * bytes)
      << "gradients scattered, parameters gathered";
  EXPECT_EQ(volumes[1].axis, layout::Axis::kDpReplicate);
  EXPECT_EQ(volumes[1].stride, 4);
  EXPECT_NEAR(static_cast<double>(volumes[1].sent_bytes), bytes / 4, 0.01 * bytes)
      << "a quarter, summed over two";
}

// Narayanan et al. 2021 (arXiv 2104.04473), 3.2: for a layer and a micro-batch, two sums of activations
// forward and two backward; with sequence parallelism (Korthikanti et al. 2022, arXiv 2205.05198) as many
// bytes.
TEST(Volume, ALayerOfTensorParallelismSendsFourSums) {
  model::Architecture spec = *model::Preset("toy-5m");
  layout::Layout layout;
  layout.mesh = {.tp = 2};
  layout.micro_batch = 2;
  layout.num_micro_batches = 3;
  layout.sequence_parallel = false;
  const auto of_layers = [&](int64_t layers) {
    SetNumLayers(spec, layers);
    const std::vector<AxisVolume> volumes = VolumesOfLayout(spec, layout);
    TRAINCTL_CHECK(volumes.size() == 1 && volumes[0].axis == layout::Axis::kTp);
    return volumes[0].sent_bytes;
  };
  const int64_t activation_bytes = 2 * 64 * spec.hidden * 4;
  EXPECT_EQ(of_layers(5) - of_layers(4), 3 * 4 * activation_bytes) << "2 (n-1)/n is 1";
  layout.sequence_parallel = true;
  // What was gathered forward is kept, not gathered again; the norms' gradients are summed beside.
  EXPECT_NEAR(static_cast<double>(of_layers(5) - of_layers(4)), static_cast<double>(3 * 4 * activation_bytes),
              0.01 * static_cast<double>(3 * 4 * activation_bytes));
}

TEST(Volume, APipelinesMessagesAreActivationsAndTheirGradients) {
  const model::Architecture spec = *model::Preset("toy-5m");
  layout::Layout layout;
  layout.mesh = {.pp = 3};
  layout.pipeline = {.order = "1f1b", .stage_layers = layout::EvenStageLayers(NumLayers(spec), 3)};
  layout.micro_batch = 2;
  layout.num_micro_batches = 6;
  const std::vector<AxisVolume> volumes = VolumesOfLayout(spec, layout);
  ASSERT_EQ(volumes.size(), 1u);
  EXPECT_EQ(volumes[0].ranks, 3);
  const int64_t activation_bytes = 2 * 64 * spec.hidden * 4;
  EXPECT_NEAR(static_cast<double>(volumes[0].sent_bytes), static_cast<double>(6 * 2 * activation_bytes), 1e3)
      << "the middle stage sends both ways; loss and norm are a few bytes";
}

TEST(Cost, OverlapHidesCollectivesAndNeverCompute) {
  const StepCost serial = Price(3, 2, 4, 3, false).cost;
  const StepCost overlapped = Price(3, 2, 4, 3, true).cost;
  EXPECT_LT(overlapped.seconds, serial.seconds);
  EXPECT_GE(overlapped.seconds, overlapped.compute_seconds);
  EXPECT_EQ(overlapped.compute_seconds, serial.compute_seconds);
}

TEST(Cost, TheTimesOfInstructionsAreWhatTheStepsTimeIsMadeOf) {
  const model::Architecture spec = *model::Preset("toy-5m");
  const layout::Ledger ledger(model::Inventory(spec), layout::Mesh{.dp_shard = 2}, 3);
  schedule::BuildOptions options;
  options.micro_batch = 2;
  options.setting.seq_len = 64;
  options.num_micro_batches = 2;
  const schedule::Step step = BuildStep(GraphOf(spec, ledger, options), ledger, options);
  const schedule::Program& program = step.programs[0];
  for (const bool overlap : {false, true}) {
    Rates rates = CpuRates(1, DType::kF32, false);
    rates.overlap = overlap;
    const auto times = PlayAtRates(step, ledger, options, rates).classes[0].times;
    ASSERT_EQ(times.size(), program.instructions.size());
    double last = 0;
    std::array<double, schedule::kNumDataStreams> stream_end = {};
    for (size_t i = 0; i < times.size(); ++i) {
      double& end = stream_end[static_cast<size_t>(program.instructions[i].stream)];
      EXPECT_GE(times[i].begin_s, end) << "within a stream: list order";
      for (const int wait : program.instructions[i].waits) {
        EXPECT_GE(times[i].begin_s, times[static_cast<size_t>(wait)].end_s());
      }
      end = times[i].end_s();
      last = std::max(last, end);
    }
    EXPECT_EQ(PriceStep(step, ledger, options, 2, rates).seconds, last + rates[Resource::kSteps]);
  }
}

TEST(Cost, TheMatrixProductsOfAStepAreTheModelsFlops) {
  const model::Architecture spec = *model::Preset("toy-5m");
  const layout::Ledger ledger(model::Inventory(spec), layout::Mesh{}, 0);
  schedule::BuildOptions options;
  options.micro_batch = 2;
  options.setting.seq_len = 64;
  Rates rates;
  rates[Resource::kMatmulFlops] = rates[Resource::kAttentionFlops] = 1;
  rates[Resource::kAttentionBackwardFlops] = 4.0 / 5;  // the table counts five products, FlopsPerToken four
  const StepCost cost =
      PriceStep(BuildStep(GraphOf(spec, ledger, options), ledger, options), ledger, options, 1, rates);
  // The formula counts half of all scores; the kernel computes whole vectors.
  const double products = model::FlopsPerToken(spec, 0);
  const double scores = static_cast<double>(model::ScoresComputed(64, 0)) / (64.0 * 64.0 / 2);
  const double expected = (products + scores * (model::FlopsPerToken(spec, 64) - products)) * 128;
  EXPECT_NEAR(cost.compute_seconds, expected, 1e-9 * expected);
}

// Of one sequence with one head of keys the backward is a single task, for which a second thread does
// nothing; four heads are shared by two, not by three. The forward is cut between queries.
TEST(Cost, AttentionWaitsForTheThreadThatHasMost) {
  model::Architecture spec = *model::Preset("toy-5m");
  SetEach(spec, &model::Attention::kv_heads, 1);
  const auto work = [&](int64_t threads) {
    const layout::Ledger ledger(model::Inventory(spec), layout::Mesh{}, 0);
    schedule::BuildOptions options;
    options.micro_batch = 1;
    options.setting.seq_len = 256;
    options.setting.threads = threads;
    return WorkOfStep(BuildStep(GraphOf(spec, ledger, options), ledger, options), ledger, options);
  };
  const auto forward = [&](int64_t threads) { return work(threads)["attention"][Resource::kAttentionFlops]; };
  const auto backward = [&](int64_t threads) {
    return work(threads)["attention backward"][Resource::kAttentionBackwardFlops];
  };
  EXPECT_DOUBLE_EQ(backward(1) / forward(1), 2.5) << "five products for two";
  EXPECT_DOUBLE_EQ(backward(2), 2 * backward(1));
  EXPECT_DOUBLE_EQ(forward(2), forward(1));
  EXPECT_DOUBLE_EQ(forward(3), forward(1));
  SetEach(spec, &model::Attention::heads, 4);
  SetEach(spec, &model::Attention::kv_heads, 4);
  EXPECT_DOUBLE_EQ(backward(2), backward(1));
  EXPECT_DOUBLE_EQ(backward(3), 1.5 * backward(1)) << "one of three has two of the four";
}

}  // namespace
}  // namespace trainctl::simulate
