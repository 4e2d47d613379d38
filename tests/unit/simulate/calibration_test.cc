#include "simulate/calibration.h"

#include <gtest/gtest.h>

#include "model/architecture.h"
#include "model/parameters.h"
#include "model/presets.h"

namespace trainctl::simulate {
namespace {

// Rates that no default has.
Rates SomeRates() {
  Rates rates;
  double value = 1;
  for (double& seconds : rates.seconds_per_unit) seconds = value *= 1.7;
  for (Resource flops :
       {Resource::kMatmulFlops, Resource::kAttentionFlops, Resource::kAttentionBackwardFlops}) {
    rates[flops] *= 1e-12;
  }
  for (Resource small : {Resource::kLogits, Resource::kOperandBytes, Resource::kMovedBytes,
                         Resource::kOptimizerElements, Resource::kSentBytes}) {
    rates[small] *= 1e-11;
  }
  for (Resource fixed :
       {Resource::kOperators, Resource::kCollectives, Resource::kTensorExchanges, Resource::kSteps})
    rates[fixed] *= 1e-6;
  return rates;
}

// A probe as a machine of exactly these rates would measure it.
Probe Measure(const Rates& rates, int64_t layers, int64_t hidden, int64_t vocab, int64_t seq_len, int shard,
              int stage, int64_t sequences) {
  model::Architecture spec = *model::Preset("toy-5m");
  SetNumLayers(spec, layers);
  spec.hidden = hidden;
  SetEach(spec, &model::Mlp::ffn, 3 * hidden);
  SetEach(spec, &model::Attention::heads, 4);
  SetEach(spec, &model::Attention::kv_heads, 4);
  SetEach(spec, &model::Attention::head_dim, hidden / 4);
  spec.vocab = vocab;
  layout::Mesh mesh;
  mesh.dp_shard = shard;
  const layout::Ledger ledger(model::Inventory(spec), mesh, stage);
  schedule::BuildOptions options;
  options.micro_batch = sequences;
  options.setting.seq_len = seq_len;
  options.num_micro_batches = 2;
  Probe probe;
  probe.work = WorkOfStep(BuildStep(GraphOf(spec, ledger, options), ledger, options), ledger, options);
  for (const auto& [name, work] : probe.work) {
    probe.step_seconds += rates.Seconds(work);
    if (name != kCommunication && name != kOther) probe.seconds[name] = rates.Seconds(work);
  }
  return probe;
}

std::vector<Probe> MeasureAll(const Rates& rates) {
  return {Measure(rates, 2, 64, 256, 64, 2, 1, 2), Measure(rates, 3, 128, 4096, 128, 2, 3, 1),
          Measure(rates, 1, 256, 1024, 512, 2, 2, 1), Measure(rates, 4, 512, 512, 32, 2, 3, 4),
          Measure(rates, 8, 64, 512, 256, 2, 3, 1)};
}

TEST(Calibration, FindsTheRatesThatTheProbesWereMadeWith) {
  const Rates truth = SomeRates();
  const std::vector<Probe> probes = MeasureAll(truth);
  const Rates found = FitRates(probes, CpuRates(1, DType::kF32, true));
  for (double error : ErrorsOf(probes, found)) EXPECT_NEAR(error, 0, 1e-3);
  // Also of a step that was no probe.
  const Probe other = Measure(truth, 5, 192, 2048, 192, 2, 2, 3);
  EXPECT_NEAR(ErrorsOf(absl::MakeConstSpan(&other, 1), found)[0], 0, 0.01);
  EXPECT_NEAR(found[Resource::kMatmulFlops] / truth[Resource::kMatmulFlops], 1, 0.02);
  EXPECT_TRUE(found.measured);
}

TEST(Calibration, NoiseNeverMakesATimeNegativeAndWhatIsNotExercisedStays) {
  const Rates initial = CpuRates(1, DType::kF32, true);
  std::vector<Probe> probes = {Measure(SomeRates(), 2, 64, 256, 64, 1, 0, 2)};
  probes[0].seconds["linear"] = 0;
  probes[0].seconds["attention"] *= 100;
  probes[0].step_seconds /= 2;  // less than its parts
  const Rates found = FitRates(probes, initial);
  for (double seconds : found.seconds_per_unit) EXPECT_GE(seconds, 0);
  EXPECT_EQ(found[Resource::kSentBytes], initial[Resource::kSentBytes]);
  EXPECT_EQ(found[Resource::kCollectives], initial[Resource::kCollectives]);
}

// The step that is simulated and the work that is added up are one: with collectives beside nothing.
TEST(Calibration, TheWorkOfAStepIsWhatItsInstructionsTake) {
  const Rates rates = SomeRates();
  model::Architecture spec = *model::Preset("toy-1m");
  layout::Mesh mesh;
  mesh.dp_shard = 2;
  for (int stage : {1, 2, 3}) {
    const layout::Ledger ledger(model::Inventory(spec), mesh, stage);
    schedule::BuildOptions options;
    options.micro_batch = 2;
    options.setting.seq_len = 64;
    options.num_micro_batches = 3;
    const schedule::Step step = BuildStep(GraphOf(spec, ledger, options), ledger, options);
    Rates serial = rates;
    serial.overlap = false;
    double seconds = 0;
    for (const auto& [name, work] : WorkOfStep(step, ledger, options)) seconds += rates.Seconds(work);
    EXPECT_NEAR(PriceStep(step, ledger, options, 3, serial).seconds, seconds, 1e-9 * seconds);
  }
}

}  // namespace
}  // namespace trainctl::simulate
