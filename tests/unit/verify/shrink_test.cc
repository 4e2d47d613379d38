#include "verify/shrink.h"

#include <gtest/gtest.h>

#include "base/counter_rng.h"
#include "model/presets.h"
#include "schedule/layout_step.h"

namespace trainctl::verify {
namespace {

// The small layout is one that the small model allows, and keeps what the large one had.
void Check(const model::Architecture& spec, const layout::Layout& layout) {
  SCOPED_TRACE(layout.ToString());
  const absl::StatusOr<SmallRun> small = Shrink(spec, layout, 4096);
  ASSERT_TRUE(small.ok()) << small.status();
  const layout::Mesh &before = layout.mesh, &mesh = small->layout.mesh;
  EXPECT_LE(mesh.world_size(), kMaxRanks);
  for (int a = 0; a < layout::kNumAxes; ++a) {
    const auto axis = static_cast<layout::Axis>(a);
    EXPECT_EQ(mesh.degree(axis) > 1, before.degree(axis) > 1) << layout::AxisName(axis);
    if (before.world_size() <= kMaxRanks) {
      EXPECT_EQ(mesh.degree(axis), before.degree(axis));
    }
  }
  EXPECT_EQ(small->spec.tie_embeddings, spec.tie_embeddings);
  const model::Attention& a = AttentionOf(spec);
  const model::Attention& b = AttentionOf(small->spec);
  EXPECT_EQ(b.qkv_bias, a.qkv_bias);
  EXPECT_EQ(small->spec.vocab % mesh.tp != 0, spec.vocab % before.tp != 0);
  EXPECT_EQ(b.kv_heads < b.heads, a.kv_heads < a.heads);
  EXPECT_EQ(b.kv_heads < mesh.tp, a.kv_heads < before.tp);
  EXPECT_EQ(small->layout.num_micro_batches > 1, layout.num_micro_batches > 1);
  EXPECT_TRUE(model::CheckTrainable(small->spec).ok()) << model::CheckTrainable(small->spec);
  layout::Request request;
  request.spec = &small->spec;
  request.devices_per_node = mesh.world_size();
  request.batch_sequences = small->layout.micro_batch * small->layout.num_micro_batches * mesh.data_degree();
  request.seq_len = small->seq_len;
  request.dp_replicate = mesh.dp_replicate, request.dp_shard = mesh.dp_shard;
  request.zero_stage = layout.zero_stage, request.micro_batch = small->layout.micro_batch;
  request.pp = mesh.pp, request.tp = mesh.tp;
  if (mesh.pp > 1) {
    request.virtual_stages = small->layout.pipeline.virtual_stages;
    request.stage_layers = small->layout.pipeline.stage_layers;
  }
  for (const layout::Violation& violation : layout::FindViolations(request))
    ADD_FAILURE() << violation.message;
  const schedule::StepSetting setting{.seq_len = small->seq_len};
  EXPECT_TRUE(
      schedule::BuildLayoutStep(small->spec, model::Inventory(small->spec), small->layout, setting).ok());
}

TEST(Shrink, KeepsWhatALayoutNeeds) {
  model::Architecture spec = *model::Preset("llama3.1-8b");
  Check(spec, {.num_micro_batches = 8});
  Check(spec, {.mesh = {.dp_replicate = 4, .dp_shard = 8, .tp = 8}, .zero_stage = 3, .micro_batch = 4});
  Check(spec, {.mesh = {.dp_shard = 2, .tp = 16}, .zero_stage = 1, .num_micro_batches = 16});
  spec.vocab += 3, spec.tie_embeddings = true, SetEach(spec, &model::Attention::qkv_bias, true);
  for (int kind = 0; kind < schedule::kNumPipelineKinds; ++kind) {
    const auto order = static_cast<schedule::PipelineKind>(kind);
    for (const int64_t pp : {2, 4, 8}) {
      layout::Layout layout{
          .mesh = {.pp = pp, .dp_shard = 2, .tp = 4}, .zero_stage = 2, .num_micro_batches = 16};
      layout.pipeline = {.order = std::string(schedule::PipelineKindName(order)),
                         .virtual_stages = schedule::LimitsOf(order).min_virtual_stages};
      layout.pipeline.stage_layers =
          layout::EvenStageLayers(NumLayers(spec), pp * layout.pipeline.virtual_stages);
      if (schedule::CheckPipelineLayout(layout).ok()) Check(spec, layout);
    }
  }
}

TEST(Shrink, LongRopeKeepsTheFrequenciesOfItsLength) {
  model::Architecture spec = *model::Preset("llama3.1-8b");
  const std::vector<double> divisors(static_cast<size_t>(model::RotatedDim(spec) / 2), 1.5);
  spec.rope.scaling = model::RopeScaling{.original_max_position = 4096,
                                         .kind = model::RopeScalingKind::kLongRope,
                                         .attention_factor = 1.25,
                                         .short_factor = divisors,
                                         .long_factor = divisors};
  for (const int64_t seq_len : {4096, 4097}) {
    const absl::StatusOr<SmallRun> small = Shrink(spec, {}, seq_len);
    ASSERT_TRUE(small.ok()) << small.status();
    EXPECT_TRUE(model::CheckTrainable(small->spec).ok()) << model::CheckTrainable(small->spec);
    EXPECT_EQ(UsesLongFactor(*small->spec.rope.scaling, small->seq_len), seq_len == 4097);
  }
}

}  // namespace
}  // namespace trainctl::verify
