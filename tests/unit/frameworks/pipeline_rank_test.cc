#include "frameworks/pipeline_rank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "cluster/catalogue.h"
#include "frameworks/framework.h"
#include "schedule/build_step.h"

namespace trainctl::frameworks {
namespace {

using schedule::PipelineKind;

Workload Job(int64_t pp, int64_t virtual_stages, int64_t micro_batches) {
  Workload w;
  w.model = model::LlamaOf(
      {.layers = 48, .hidden = 512, .ffn = 2048, .heads = 8, .kv_heads = 8, .head_dim = 64, .vocab = 32000});
  w.seq_len = 128;
  w.global_batch = micro_batches;
  w.mesh.pp = pp;
  w.virtual_stages = virtual_stages;
  w.framework = FindFramework("megatron-core");
  return w;
}

TEST(PipelineRank, MicroBatchesInFlightAreTheSlotsOfTheScheduleItself) {
  for (int kind_index = 0; kind_index < schedule::kNumPipelineKinds; ++kind_index) {
    const auto kind = static_cast<PipelineKind>(kind_index);
    const int virtual_stages = schedule::LimitsOf(kind).min_virtual_stages;
    for (int ranks : {2, 4, 6}) {
      for (int micro_batches : {ranks, 2 * ranks, 4 * ranks, 5 * ranks, 9 * ranks, 12}) {
        const schedule::PipelineShape shape = {ranks, micro_batches, virtual_stages};
        if (!schedule::CheckPipelineShape(kind, shape).ok()) continue;
        const auto built = schedule::BuildPipeline(kind, shape);
        ASSERT_TRUE(built.ok()) << built.status();
        const std::vector<int> peaks = PeaksInFlight(*built);
        Workload w = Job(ranks, virtual_stages, micro_batches);
        w.pipeline = kind;
        for (int rank = 0; rank < ranks; ++rank) {
          EXPECT_DOUBLE_EQ(MicroBatchesInFlight(w, rank) * virtual_stages, peaks[static_cast<size_t>(rank)])
              << schedule::PipelineKindName(kind) << " ranks " << ranks << " micro-batches " << micro_batches
              << " rank " << rank;
        }
      }
    }
  }
}

// The published numbers for many micro-batches (sail-sg/zero-bubble-pipeline-parallelism README,
// deepseek-ai/DualPipe README).
TEST(PipelineRank, FirstRanksHoldThePublishedNumberOfMicroBatches) {
  const std::pair<PipelineKind, double> kPublished[] = {{PipelineKind::k1F1B, 8},
                                                        {PipelineKind::kZbH1, 8},
                                                        {PipelineKind::kZbH2, 15},
                                                        {PipelineKind::kGPipe, 64}};
  for (const auto& [kind, expected] : kPublished) {
    Workload w = Job(8, 1, 64);
    w.pipeline = kind;
    EXPECT_DOUBLE_EQ(MicroBatchesInFlight(w, 0), expected) << schedule::PipelineKindName(kind);
  }
  Workload v = Job(8, 2, 64);
  v.pipeline = PipelineKind::kZbv;
  EXPECT_DOUBLE_EQ(MicroBatchesInFlight(v, 0), 8);
  Workload dual = Job(8, 1, 64);
  dual.pipeline = PipelineKind::kDualPipe;
  EXPECT_DOUBLE_EQ(MicroBatchesInFlight(dual, 0), 9);
}

TEST(PipelineRank, EveryLayerIsOnOneRankOrUnderDualPipeOnTwo) {
  for (int kind_index = 0; kind_index < schedule::kNumPipelineKinds; ++kind_index) {
    const auto kind = static_cast<PipelineKind>(kind_index);
    Workload w = Job(4, schedule::LimitsOf(kind).min_virtual_stages, 16);
    w.pipeline = kind;
    std::vector<int> seen(48, 0);
    int firsts = 0, lasts = 0;
    for (int64_t rank = 0; rank < 4; ++rank) {
      for (int64_t layer : LayersOfRank(w, rank)) ++seen[static_cast<size_t>(layer)];
      firsts += LayerKindsOfRank(w, rank).first;
      lasts += LayerKindsOfRank(w, rank).last;
    }
    const int copies = kind == PipelineKind::kDualPipe ? 2 : 1;
    EXPECT_EQ(seen, std::vector<int>(48, copies)) << schedule::PipelineKindName(kind);
    EXPECT_EQ(firsts, copies);
    EXPECT_EQ(lasts, copies);
  }
}

TEST(PipelineRank, AVIsFoldedInTheMiddle) {
  Workload w = Job(4, 2, 16);
  w.pipeline = PipelineKind::kZbv;
  EXPECT_EQ(StagesOfRank(w, 0), (StageList{0, 7}));
  EXPECT_EQ(StagesOfRank(w, 3), (StageList{3, 4}));
  EXPECT_TRUE(LayerKindsOfRank(w, 0).first);
  EXPECT_TRUE(LayerKindsOfRank(w, 0).last);
}

TEST(PipelineRank, StagesAreCutAsTheJobSaysOrAsTheFrameworkDoes) {
  Workload w = Job(4, 1, 16);
  w.stage_layers = {10, 14, 14, 10};
  EXPECT_EQ(LayersOfStage(w, 1).first, 10);
  EXPECT_EQ(LayersOfStage(w, 3).first, 38);
  EXPECT_EQ(LayersOfStage(w, 3).count, 10);
  // BLOOM's chronicle: 78 layers on 12 stages leave 1 on the last, 7 on the others.
  Workload bloom = Job(12, 1, 16);
  SetNumLayers(bloom.model, 78);
  bloom.framework = FindFramework("megatron-deepspeed");
  for (int64_t stage = 0; stage < 11; ++stage) EXPECT_EQ(LayersOfStage(bloom, stage).count, 7) << stage;
  EXPECT_EQ(LayersOfStage(bloom, 11).count, 1);
  // With the embeddings as layers 70 of them lie 5, 6 ten times, 5.
  SetNumLayers(bloom.model, 70);
  bloom.embedding_is_layer = true;
  EXPECT_EQ(LayersOfStage(bloom, 0).count, 5);
  EXPECT_EQ(LayersOfStage(bloom, 5).count, 6);
  EXPECT_EQ(LayersOfStage(bloom, 11).count, 5);
}

TEST(Validate, NamedLayersAndExpertDegreesMustAddUp) {
  Workload w = Job(4, 1, 16);
  w.device = cluster::FindDevice("A100-80GB")->device;
  w.node = &cluster::DefaultNodeFor(*w.device);
  ASSERT_TRUE(Validate(w).ok()) << Validate(w);
  const auto message = [&] { return std::string(Validate(w).message()); };
  w.stage_layers = {12, 12, 24};
  EXPECT_THAT(message(), ::testing::HasSubstr("for 3 stages"));
  w.stage_layers = {12, 12, 12, 11};
  EXPECT_THAT(message(), ::testing::HasSubstr("have 47 layers, the model 48"));
  w.stage_layers = {60, -12, 0, 0};
  EXPECT_THAT(message(), ::testing::HasSubstr("a stage has 60 layers"));
  w.stage_layers = {12, 12, 12, 12};
  EXPECT_TRUE(Validate(w).ok()) << message();
  w.recomputed_layers = -1;
  EXPECT_FALSE(Validate(w).ok());
  w.recomputed_layers.reset();
  w.mesh.etp = 0;
  EXPECT_FALSE(Validate(w).ok());
}

TEST(PipelineRank, ExpertsAreCutByBothTheirDegrees) {
  Workload w = Job(1, 1, 1);
  SetExperts(w.model, model::Experts{.num_experts = 16, .top_k = 2, .ffn = 1024}, /*dense_layers=*/8);
  const double whole = ParametersOfRank(w, 0).experts;
  EXPECT_DOUBLE_EQ(whole, 40.0 * 16 * 3 * 512 * 1024);
  w.mesh.ep = 4;
  w.mesh.etp = 2;
  EXPECT_DOUBLE_EQ(ParametersOfRank(w, 0).experts, whole / 8);
}

}  // namespace
}  // namespace trainctl::frameworks
