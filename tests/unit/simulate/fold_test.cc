#include "simulate/fold.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <random>

#include "cluster/catalogue.h"
#include "model/presets.h"
#include "simulate/device_rates.h"
#include "tests/unit/num_cases.h"

namespace trainctl::simulate {
namespace {

using model::Resource;

struct FoldCase {
  model::Architecture spec;
  layout::Layout layout;
  schedule::StepSetting setting;
  Rates rates;
};

FoldCase Draw(std::mt19937& random) {
  const auto pick = [&](std::initializer_list<int64_t> values) {
    return values.begin()[random() % values.size()];
  };
  FoldCase test;
  test.spec = *model::Preset("toy-1m");
  SetNumLayers(test.spec, pick({1, 2, 5, 6, 7, 8, 9, 10, 12, 17, 33}));
  SetEach(test.spec, &model::Attention::head_dim, pick({4, 16}));
  SetEach(test.spec, &model::Attention::heads, pick({2, 4}));
  SetEach(test.spec, &model::Attention::kv_heads, pick({1, 2}));
  test.spec.hidden = AttentionOf(test.spec).heads * AttentionOf(test.spec).head_dim;
  SetEach(test.spec, &model::Mlp::ffn, pick({16, 100, 512}));
  test.spec.vocab = pick({17, 300, 9000});
  test.spec.tie_embeddings = pick({0, 1}) == 1;
  SetEach(test.spec, &model::Attention::qkv_bias, pick({0, 1}) == 1);
  test.layout.zero_stage = static_cast<int>(pick({0, 1, 2, 3, 3}));
  test.layout.mesh.dp_shard = test.layout.zero_stage == 0 ? 1 : static_cast<int>(pick({2, 3, 8, 64}));
  test.layout.mesh.dp_replicate = static_cast<int>(pick({1, 1, 2, 5}));
  test.layout.micro_batch = pick({1, 2, 3});
  test.layout.num_micro_batches = pick({1, 2, 3, 4, 9, 100});
  test.layout.recompute = static_cast<layout::Recompute>(pick({0, 1, 2, 2}));
  // The first layers and the others are folded each.
  if (test.layout.recompute == layout::Recompute::kFull && pick({0, 1, 1}) == 1)
    test.layout.recomputed_layers = {std::min(NumLayers(test.spec), pick({0, 1, 3, 6, 7, 9, 20}))};
  test.setting.seq_len = pick({3, 16, 200});
  test.setting.types.compute = pick({0, 1}) == 1 ? DType::kBF16 : DType::kF32;
  test.setting.prefetch = pick({0, 1}) == 1;
  test.setting.checkpoint_copy = pick({0, 1}) == 1;
  test.setting.on_device = pick({0, 1}) == 1;
  test.setting.threads = test.setting.on_device ? 1 : pick({1, 4});
  test.setting.optimizer = pick({0, 1}) == 1 ? optim::Find("lion") : &optim::kAdamW;
  // Any rate may dominate, so that every stream comes to be the late one.
  for (double& seconds : test.rates.seconds_per_unit)
    seconds = std::uniform_real_distribution<double>(0.5, 2)(random) * 1e-9;
  test.rates[Resource::kSentBytes] *= static_cast<double>(pick({0, 1, 100, 10000}));
  test.rates[Resource::kCollectives] *= static_cast<double>(pick({1, 1000, 100000}));
  test.rates.overlap = pick({0, 1, 1}) == 1;
  if (pick({0, 1, 2}) == 0) {
    test.rates =
        DeviceRates(*cluster::MachineOf(
                        {.device = "h100-sxm-80gb", .nodes = pick({1, 8}), .devices_per_node = pick({1, 8})}),
                    test.setting.types.compute);
  }
  return test;
}

TEST(Fold, EqualsTheWholeStepToTheBit) {
  constexpr int kCases = NumCases(3000);
  std::mt19937 random(1);
  int num_repeating = 0;
  for (int i = 0; i < kCases; ++i) {
    const FoldCase test = Draw(random);
    const schedule::BuildOptions options =
        schedule::OptionsOf(test.layout, test.setting, kMicroBatchesToPrice);
    const int64_t micro_batches = test.layout.num_micro_batches;
    const FoldedModel model(test.spec);
    const std::optional<StepPrice> folded = FoldedStrategy(model, test.layout.mesh, test.layout.zero_stage)
                                                .Price(options, micro_batches, test.rates);
    const layout::Ledger ledger(model::Inventory(test.spec), test.layout.mesh, test.layout.zero_stage);
    const schedule::Step step =
        schedule::BuildStep(schedule::GraphOf(test.spec, ledger, options), ledger, options);
    const StepPrice whole = PriceWhole(step, ledger, options, micro_batches, test.rates);
    SCOPED_TRACE(testing::Message() << "case " << i << ": layers " << NumLayers(test.spec) << ", "
                                    << test.layout.ToString() << ", prefetch " << test.setting.prefetch
                                    << ", tied " << test.spec.tie_embeddings);
    ASSERT_TRUE(folded.has_value());
    ASSERT_EQ(folded->memory.at_peak, whole.memory.at_peak);
    ASSERT_EQ(folded->memory, whole.memory);
    ASSERT_EQ(folded->cost.seconds, whole.cost.seconds);
    ASSERT_EQ(folded->cost.compute_seconds, whole.cost.compute_seconds);
    ASSERT_EQ(folded->cost.sent_bytes, whole.cost.sent_bytes);
    num_repeating += model.repeats() > 0 ? 1 : 0;
  }
  EXPECT_GT(num_repeating, kCases / 2);
  std::printf("%d steps, of which %d were folded\n", kCases, num_repeating);
}

// Where the ends are shorter than slots and prefetch take to become steady, that is seen, and nothing is
// priced wrongly.
TEST(Fold, AFoldOfTooFewLayersIsRefusedOrExact) {
  std::mt19937 random(2);
  int num_refused = 0;
  for (int i = 0; i < 1000; ++i) {
    const FoldCase test = Draw(random);
    const schedule::BuildOptions options =
        schedule::OptionsOf(test.layout, test.setting, kMicroBatchesToPrice);
    const int64_t micro_batches = test.layout.num_micro_batches;
    const FoldedModel model(test.spec, 4);
    const std::optional<StepPrice> folded = FoldedStrategy(model, test.layout.mesh, test.layout.zero_stage)
                                                .Price(options, micro_batches, test.rates);
    num_refused += folded.has_value() ? 0 : 1;
    if (!folded.has_value()) continue;
    const layout::Ledger ledger(model::Inventory(test.spec), test.layout.mesh, test.layout.zero_stage);
    const schedule::Step step =
        schedule::BuildStep(schedule::GraphOf(test.spec, ledger, options), ledger, options);
    const StepPrice whole = PriceWhole(step, ledger, options, micro_batches, test.rates);
    ASSERT_EQ(folded->memory, whole.memory) << "case " << i;
    ASSERT_EQ(folded->cost.seconds, whole.cost.seconds) << "case " << i;
  }
  std::printf("%d of 1000 refused\n", num_refused);
}

}  // namespace
}  // namespace trainctl::simulate
