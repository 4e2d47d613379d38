#include "simulate/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "model/presets.h"
#include "simulate/memory.h"

namespace trainctl::simulate {
namespace {

struct Step {
  model::Architecture spec;
  layout::Ledger ledger;
  schedule::BuildOptions options;
  schedule::Step built;
};

Step Build(int stage, layout::Recompute recompute, bool on_device) {
  model::Architecture spec = *model::Preset("toy-5m");
  schedule::BuildOptions options;
  options.micro_batch = 2;
  options.setting.seq_len = 64;
  options.num_micro_batches = 3;
  options.recompute = recompute;
  options.setting.on_device = on_device;
  layout::Mesh mesh;
  (stage == 0 ? mesh.dp_replicate : mesh.dp_shard) = 2;
  layout::Ledger ledger(model::Inventory(spec), mesh, stage);
  schedule::Step built = BuildStep(GraphOf(spec, ledger, options), ledger, options);
  return {spec, std::move(ledger), options, std::move(built)};
}

TEST(Timeline, PeaksWhereTheMemoryReportSays) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (const layout::Recompute recompute : layout::kRecomputes) {
      for (const bool on_device : {false, true}) {
        const Step step = Build(stage, recompute, on_device);
        Rates rates = CpuRates(1, DType::kF32, false);
        rates.overlap = on_device;
        const Timeline timeline = PlayStep(step.built, step.ledger, step.options, rates);
        int64_t highest = 0;
        double time = 0;
        for (const MemorySample& sample : timeline.memory) {
          highest = std::max(highest, std::accumulate(sample.bytes.begin(), sample.bytes.end(), int64_t{0}));
          EXPECT_GE(sample.time_s, time);
          time = sample.time_s;
        }
        const MemoryReport report = SimulateMemory(step.built.programs[0]);
        EXPECT_EQ(highest, report.peak_bytes);
        EXPECT_EQ(timeline.memory.front().bytes, timeline.memory.back().bytes)
            << "a step leaves nothing behind";
        const StepCost cost = PriceStep(step.built, step.ledger, step.options, 3, rates);
        EXPECT_NEAR(timeline.end_s + rates[Resource::kSteps], cost.seconds, 1e-12);

        // The same instant, value by value.
        int64_t sum = 0;
        for (const LiveBytes& live : LiveAtPeak(step.built.programs[0], report)) sum += live.bytes;
        EXPECT_EQ(sum, report.peak_bytes);
      }
    }
  }
}

// Flash attention's backward holds more than its forward, and grows with the heads, not with the square of
// the length.
TEST(DeviceTemporaries, AreThoseOfTheDevicesKernels) {
  const auto temporary = [](int64_t seq_len, DType dtype, bool on_device) {
    const model::Architecture spec = *model::Preset("llama3.1-8b");
    const model::Segment segment =
        model::BuildGraph(spec, model::Inventory(spec),
                          {.shape = {1, seq_len}, .dtype = dtype, .on_device = on_device})
            ->segment(1);
    for (const model::Operator& op : segment.operators) {
      if (op.kind == model::OpKind::kAttention) return op.backward_temp_bytes;
    }
    return int64_t{0};
  };
  // 8,192 tokens, 32 heads of 128, 8 of keys: dq 64 MiB, dk and dv 32, expanded 128; in fp32 dq and sums of
  // (8,192 + 128) rows 128 + 1 columns wide.
  EXPECT_EQ(temporary(8192, DType::kBF16, true),
            (64 + 32 + 128) * (int64_t{1} << 20) + (8192 + 128) * int64_t{32} * 129 * 4);
  EXPECT_NEAR(static_cast<double>(temporary(16384, DType::kBF16, true)),
              2.0 * static_cast<double>(temporary(8192, DType::kBF16, true)), 5e6);
  // Tiles of scores are bounded: three of 16 MiB, keys and values and their gradients of one head.
  EXPECT_EQ(temporary(8192, DType::kF32, true), 3 * model::kScoreTileBytes + 4 * int64_t{8192} * 128 * 4);
}

}  // namespace
}  // namespace trainctl::simulate
