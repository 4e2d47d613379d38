#include "layout/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/counter_rng.h"
#include "model/presets.h"

namespace trainctl::layout {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string MessagesOf(const Request& request) {
  std::string text;
  for (const Violation& violation : FindViolations(request)) text += violation.message + "\n";
  return text;
}

Request Asked(int64_t workers) {
  static const auto* const spec = new model::Architecture(*model::Preset("toy-1m"));
  Request request;
  request.spec = spec;
  request.devices_per_node = workers;
  request.batch_sequences = 24;
  request.seq_len = 128;
  return request;
}

TEST(Violations, AllAreListedWithTheNearestThatWork) {
  Request request = Asked(8);
  request.nodes = 2;
  request.batch_sequences = 24;
  request.dp_shard = 5;
  const std::string text = MessagesOf(request);
  EXPECT_THAT(text, HasSubstr("train.batch_sequences (24) is not a multiple of the 16 workers"));
  EXPECT_THAT(text, HasSubstr("the nearest are 16 and 32"));
  EXPECT_THAT(text, HasSubstr("dp_shard 5 does not divide the 16 workers"));
  EXPECT_THAT(text, HasSubstr("the nearest parallel.dp_shard are 4 and 8"));

  request = Asked(2);
  request.micro_batch = 5;
  request.zero_stage = 0;
  request.dp_shard = 2;
  const std::string more = MessagesOf(request);
  EXPECT_THAT(more, HasSubstr("train.micro_batch (5) does not divide the 12 sequences of each worker"));
  EXPECT_THAT(more, HasSubstr("the nearest are 4 and 6"));
  EXPECT_THAT(more, HasSubstr("zero_stage = 0 shards nothing but dp_shard is 2"));
}

TEST(Violations, OfAPipelineWorkersAreThoseOfAStage) {
  Request request = Asked(8);
  request.pp = 4;
  EXPECT_EQ(MessagesOf(request), "");
  request.batch_sequences = 23;
  EXPECT_THAT(MessagesOf(request), HasSubstr("is not a multiple of the 2 workers of each stage"));
  EXPECT_THAT(MessagesOf(request), HasSubstr("/ parallel.pp 4"));
  request = Asked(8);
  request.pp = 4, request.dp_shard = 8;
  EXPECT_THAT(MessagesOf(request), HasSubstr("dp_shard 8 does not divide the 2 workers of each stage"));
  request = Asked(8);
  request.pp = 2, request.virtual_stages = 3, request.stage_layers = {{0, 1, 1, 1, 1, 0}};
  EXPECT_EQ(MessagesOf(request), "") << "the embedding alone, and the head alone";
  request.stage_layers = {{1, 0, 1, 1, 1, 0}};
  EXPECT_THAT(MessagesOf(request), HasSubstr("stage 1 has no layer"));
}

TEST(Violations, NoMoreLayersAreRecomputedThanThereAre) {
  Request request = Asked(2);  // four layers
  request.recomputed_layers = {{4}};
  EXPECT_EQ(MessagesOf(request), "");
  request.recomputed_layers = {{5}};
  EXPECT_THAT(MessagesOf(request),
              HasSubstr("recomputed_layers (5): the model has 4 layers; the nearest is 4"));
  request.recomputed_layers = {{1, 2}};
  EXPECT_THAT(MessagesOf(request),
              HasSubstr("has 2 numbers, parallel.pp 1 x parallel.virtual_stages 1 is 1 stage"));
  request.pp = 2;
  EXPECT_THAT(MessagesOf(request), HasSubstr("state parallel.stage_layers as well, or one number for all"));
  request.stage_layers = {{3, 1}};
  EXPECT_THAT(MessagesOf(request), HasSubstr(": 2 of the 1 layers of stage 1; the nearest is [1, 1]"));
  request.recomputed_layers = {{3, 0}};
  EXPECT_EQ(MessagesOf(request), "");
  request.recomputed_layers = {{2}};
  EXPECT_EQ(MessagesOf(request), "") << "of the second stage all";
  for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kAttention}) {
    request.recompute = recompute;
    EXPECT_THAT(MessagesOf(request), HasSubstr("; set it to \"full\", or take the layers out"));
  }
  request.recompute = Recompute::kFull;
  EXPECT_EQ(MessagesOf(request), "");
}

TEST(RecomputedLayers, AreThoseOfEachStageAndAllOfThemHaveNoNumber) {
  using Layers = std::vector<int64_t>;
  EXPECT_EQ(RecomputedLayers({2}, {3, 1}), (Layers{2, 1}));
  EXPECT_EQ(RecomputedLayers({3}, {3, 1}), Layers());
  EXPECT_EQ(RecomputedLayers({3, 1}, {3, 1}), Layers());
  EXPECT_EQ(RecomputedLayers({0, 1}, {3, 1}), (Layers{0, 1}));
  EXPECT_EQ(RecomputedLayers({0}, {4}), Layers{0});
  Layout layout{.recompute = Recompute::kFull, .recomputed_layers = {2, 1}};
  EXPECT_THAT(layout.ToString(), HasSubstr("recompute=full recomputed_layers=2,1"));
}

TEST(Violations, TensorParallelismDealsOutHeadsWidthAndSequence) {
  Request request = Asked(8);
  request.seq_len = 64;
  model::Architecture spec = *request.spec;
  SetEach(spec, &model::Attention::heads, 12), SetEach(spec, &model::Attention::kv_heads, 4),
      SetEach(spec, &model::Mlp::ffn, 96), spec.vocab = 101;
  request.spec = &spec;
  request.tp = 2;
  EXPECT_EQ(MessagesOf(request), "") << "the vocabulary need not divide";
  request.tp = 4;
  EXPECT_EQ(MessagesOf(request), "");
  request.tp = 8;
  EXPECT_THAT(MessagesOf(request),
              HasSubstr("parallel.tp (8) does not divide model.heads (12); the nearest that "
                        "the model allows is 4"));
  SetEach(spec, &model::Attention::heads, 16), SetEach(spec, &model::Attention::kv_heads, 2);
  EXPECT_EQ(MessagesOf(request), "") << "each head of keys on four of the ranks";
  SetEach(spec, &model::Attention::kv_heads, 16), SetEach(spec, &model::Mlp::ffn, 100);
  request.seq_len = 62;
  const std::string both = MessagesOf(request);
  EXPECT_THAT(both, HasSubstr("model.ffn (100) and data.seq_len (62)"));
  request.sequence_parallel = false;
  EXPECT_THAT(MessagesOf(request), Not(HasSubstr("seq_len")));
  SetEach(spec, &model::Mlp::ffn, 96);
  request.batch_sequences = 23;
  request.tp = 4;
  EXPECT_THAT(MessagesOf(request), HasSubstr("not a multiple of the 2 groups of 4 tensor-parallel workers"));
  request = Asked(8);
  request.sequence_parallel = true;
  EXPECT_THAT(MessagesOf(request), HasSubstr("there is no tensor parallelism, parallel.tp is 1"));
  request.tp = 3;
  EXPECT_THAT(MessagesOf(request), HasSubstr("parallel.tp (3) does not divide the 8 workers"));
}

// One that does not divide the workers does not hide the others.
TEST(Violations, DegreesThatDoNotDivideAreListedWithTheRest) {
  Request request = Asked(8);
  request.pp = 3;
  request.tp = 5;
  request.stage_layers = {{1, 1}};
  request.recompute = Recompute::kNone;
  request.recomputed_layers = {{1}};
  std::vector<std::string> fields;
  for (const Violation& violation : FindViolations(request)) fields.push_back(violation.fields.front());
  EXPECT_THAT(fields, ::testing::ElementsAre("parallel.pp", "parallel.tp", "parallel.stage_layers",
                                             "parallel.recomputed_layers", "parallel.tp"));
  request.stage_layers.reset();
  request.recomputed_layers.reset();
  EXPECT_THAT(MessagesOf(request),
              HasSubstr("parallel.pp (3) does not divide the 8 workers (cluster.nodes 1 x "
                        "cluster.devices_per_node 8); the nearest are 2 and 4"));
  EXPECT_THAT(MessagesOf(request), HasSubstr("; the nearest are 4 and 8"));
  EXPECT_THAT(MessagesOf(request), HasSubstr("parallel.tp (5) does not divide model.heads"));
  request.tp = 0;
  EXPECT_THAT(MessagesOf(request), HasSubstr("parallel.tp (0) does not divide the 8 workers"));
}

// No other cut has a largest stage that is smaller: all of them are looked at.
TEST(Stages, AreBalancedWithTheEmbeddingAndTheHead) {
  using Layers = std::vector<int64_t>;
  EXPECT_EQ(BalancedStageLayers(8, 2, 0, 2), (Layers{5, 3}));
  EXPECT_EQ(BalancedStageLayers(8, 4, 0.1, 2.5), (Layers{2, 3, 3, 0}));
  for (const double head : {0.0, 0.4, 1.0, 2.7, 6.0}) {
    for (int64_t layers = 1; layers <= 9; ++layers) {
      const auto largest = [&](const Layers& stages) {
        return std::max({static_cast<double>(stages[0]) + 0.2, static_cast<double>(stages[1]),
                         static_cast<double>(stages[2]) + head});
      };
      double least = largest({layers, 0, 0});
      for (int64_t a = 0; a <= layers; ++a) {
        for (int64_t b = 0; a + b <= layers; ++b) least = std::min(least, largest({a, b, layers - a - b}));
      }
      const Layers stages = BalancedStageLayers(layers, 3, 0.2, head);
      EXPECT_EQ(std::accumulate(stages.begin(), stages.end(), int64_t{0}), layers);
      EXPECT_GE(stages[1], 1) << "one without a layer has nothing to do";
      EXPECT_EQ(largest(stages), least) << layers << " layers, a head of " << head;
    }
  }
}

TEST(Stages, AreEvenWithTheRestInTheMiddle) {
  using Layers = std::vector<int64_t>;
  EXPECT_EQ(EvenStageLayers(8, 4), (Layers{2, 2, 2, 2}));
  EXPECT_EQ(EvenStageLayers(9, 4), (Layers{2, 3, 2, 2}));
  EXPECT_EQ(EvenStageLayers(11, 4), (Layers{3, 3, 3, 2}));
  EXPECT_EQ(EvenStageLayers(3, 2), (Layers{2, 1}));
  EXPECT_EQ(EvenStageLayers(5, 1), (Layers{5}));
  EXPECT_EQ(EvenStageLayers(2, 4), (Layers{0, 1, 1, 0})) << "the ends have the embedding and the head";
  EXPECT_EQ(StageBegins({2, 3, 2}), (std::vector<int>{0, 3, 6, 9})) << "7 layers, the embedding and the head";
  EXPECT_EQ(StageBegins({0, 2, 0}), (std::vector<int>{0, 1, 3, 4}));
}

TEST(Violations, NumbersThatNothingHoldsAreRefused) {
  Request request = Asked(1);
  request.nodes = int64_t{1} << 40;
  EXPECT_THAT(MessagesOf(request), HasSubstr("is not a number of workers from 1 to 1048576"));
  request = Asked(1);
  request.batch_sequences = int64_t{1} << 60;
  EXPECT_THAT(MessagesOf(request), HasSubstr("more than one step of this model can hold"));
  request = Asked(1);
  request.batch_sequences = 1 << 20;
  request.micro_batch = 1;
  EXPECT_THAT(MessagesOf(request), HasSubstr("raise it"));
}

// Whatever is advised satisfies the constraint, and what violates nothing has a layout.
TEST(Violations, WhatHasNoneHasALayout) {
  int num_legal = 0;
  for (uint64_t seed = 0; seed < 5000; ++seed) {
    uint64_t draws = 0;
    const auto below = [&](uint64_t bound) {
      return static_cast<int64_t>(RandomBelow(seed, 3, draws++, bound));
    };
    Request request = Asked(1 + below(12));
    request.nodes = 1 + below(4);
    request.batch_sequences = (1 + below(6)) * (below(3) == 0 ? 1 : request.num_workers());
    if (below(2) == 0) request.dp_replicate = 1 + below(6);
    if (below(2) == 0) request.dp_shard = 1 + below(6);
    if (below(2) == 0) request.zero_stage = below(4);
    if (below(2) == 0) request.micro_batch = 1 + below(4);
    if (!FindViolations(request).empty()) continue;
    ++num_legal;
    const std::vector<Request> cuts = PossibleCuts(request);
    EXPECT_FALSE(cuts.empty()) << "seed " << seed;
    // Stated degrees of data parallelism may leave the rest of the workers to a cut.
    const bool has_degrees = request.dp_replicate.has_value() && request.dp_shard.has_value();
    if (request.batch_sequences >= request.num_workers() && !has_degrees) {
      EXPECT_EQ(cuts.front().data_workers(), request.num_workers());
    }
    for (const Request& cut : cuts) {
      const int64_t workers = cut.data_workers();
      bool found = false;
      for (int64_t shard = 1; shard <= workers && !found; ++shard) {
        if (workers % shard != 0 || (cut.dp_shard.has_value() && *cut.dp_shard != shard)) continue;
        if (cut.dp_replicate.has_value() && *cut.dp_replicate != workers / shard) continue;
        found = !cut.zero_stage.has_value() || (*cut.zero_stage == 0) == (shard == 1);
      }
      EXPECT_TRUE(found) << "seed " << seed;
      EXPECT_EQ(cut.batch_sequences % workers, 0);
      EXPECT_EQ(cut.batch_sequences / workers % cut.micro_batch.value_or(1), 0);
    }
  }
  EXPECT_GT(num_legal, 300);
}

TEST(Layout, NamesReadBack) {
  for (const Recompute recompute : kRecomputes) {
    EXPECT_EQ(ParseRecompute(RecomputeName(recompute)), recompute);
  }
  EXPECT_FALSE(ParseRecompute("some").has_value());
}

}  // namespace
}  // namespace trainctl::layout
