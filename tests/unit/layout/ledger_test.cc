#include "layout/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_cat.h"

namespace trainctl::layout {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAreArray;

// Odd sizes, so that nothing divides.
model::Architecture Spec(bool tied) {
  model::Architecture spec;
  SetNumLayers(spec, 3);
  spec.hidden = 10;
  SetEach(spec, &model::Attention::heads, 3);
  SetEach(spec, &model::Attention::kv_heads, 1);
  SetEach(spec, &model::Attention::head_dim, 6);
  SetEach(spec, &model::Mlp::ffn, 7);
  spec.vocab = 13;
  spec.tie_embeddings = tied;
  SetEach(spec, &model::Attention::qkv_bias, true);
  SetEach(spec, &model::Attention::out_bias, true);
  return spec;
}

// Every element of every parameter lies in exactly one shard, at the place that its offset says.
TEST(Ledger, ShardsHoldEveryElementOnce) {
  for (bool tied : {false, true}) {
    const std::vector<model::Parameter> inventory = model::Inventory(Spec(tied));
    for (int dp_shard = 1; dp_shard <= 7; ++dp_shard) {
      const Ledger ledger(inventory, Mesh{.dp_shard = dp_shard}, dp_shard == 1 ? 0 : 3);
      std::set<std::pair<int, int64_t>> seen;
      for (const Bucket& bucket : ledger.buckets()) {
        EXPECT_EQ(bucket.padded_numel, bucket.shard_numel * dp_shard);
        EXPECT_GE(bucket.padded_numel, bucket.numel);
        EXPECT_EQ(bucket.shard_numel % kShardAlign, 0);
        for (int shard = 0; shard < dp_shard; ++shard) {
          for (const ParameterRange& range : ledger.OptimizerRanges(bucket.id, shard)) {
            EXPECT_EQ(inventory[static_cast<size_t>(range.parameter)].block, bucket.block);
            // Offset in the shard plus the shard's begin = offset in the bucket.
            EXPECT_EQ(shard * bucket.shard_numel + range.offset,
                      ledger.offset_of(range.parameter) + range.begin);
            EXPECT_LE(range.offset + range.count, bucket.shard_numel);
            for (int64_t k = 0; k < range.count; ++k) {
              EXPECT_TRUE(seen.insert({range.parameter, range.begin + k}).second);
            }
          }
        }
      }
      EXPECT_EQ(static_cast<int64_t>(seen.size()), model::NumParameters(Spec(tied)));
    }
  }
}

TEST(Ledger, ParametersLieOneAfterAnotherInInventoryOrder) {
  const std::vector<model::Parameter> inventory = model::Inventory(Spec(false));
  const Ledger ledger(inventory, Mesh{.dp_shard = 2}, 3);
  for (const Bucket& bucket : ledger.buckets()) {
    int64_t next = 0;
    for (size_t k = 0; k < bucket.parameters.size(); ++k) {
      EXPECT_EQ(bucket.offsets[k], next);
      EXPECT_EQ(ledger.offset_of(bucket.parameters[k]), next);
      next += inventory[static_cast<size_t>(bucket.parameters[k])].numel;
    }
    EXPECT_EQ(bucket.numel, next);
  }
}

TEST(Ledger, TiedEmbeddingsAreOneEntryThatTheHeadReadsToo) {
  const Ledger tied(model::Inventory(Spec(true)), Mesh{.dp_shard = 2}, 3);
  EXPECT_THAT(tied.buckets()[0].used_by, ElementsAre(0, 4));
  EXPECT_THAT(tied.buckets_of_block(4), ElementsAre(4, 0));  // its own first
  EXPECT_EQ(tied.buckets()[4].numel, 10);                    // the final norm alone
  const Ledger untied(model::Inventory(Spec(false)), Mesh{.dp_shard = 2}, 3);
  EXPECT_THAT(untied.buckets()[0].used_by, ElementsAre(0));
  EXPECT_THAT(untied.buckets_of_block(4), ElementsAre(4));
}

TEST(Ledger, WritersAreNumberedFromRankZeroOn) {
  const Mesh mesh{.pp = 2, .dp_replicate = 3, .dp_shard = 2, .cp = 2, .tp = 2};
  const Ledger ledger(model::Inventory(Spec(false)), mesh, 2);
  EXPECT_EQ(ledger.WriterIndex(0), 0);
  std::vector<int> writers, expected;
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const bool is_first =
        mesh.coordinate(rank, Axis::kDpReplicate) == 0 && mesh.coordinate(rank, Axis::kCp) == 0;
    EXPECT_EQ(ledger.WritesCheckpoint(rank), is_first);
    if (ledger.WritesCheckpoint(rank)) writers.push_back(ledger.WriterIndex(rank));
  }
  for (int i = 0; i < ledger.num_writers(); ++i) expected.push_back(i);
  EXPECT_THAT(writers, UnorderedElementsAreArray(expected));
}

TEST(Ledger, EverySumOfAStepIsListedOnce) {
  const auto names = [](const Mesh& mesh, int stage) {
    std::set<std::string> unique;
    const std::vector<Reduction> reductions = Ledger(model::Inventory(Spec(false)), mesh, stage).Reductions();
    for (const Reduction& reduction : reductions)
      EXPECT_TRUE(unique.insert(reduction.name).second) << reduction.name;
    return unique.size();
  };
  EXPECT_EQ(names(Mesh{}, 0), 0u);
  // Five buckets, and loss tokens, loss and evaluation loss.
  EXPECT_EQ(names(Mesh{.dp_replicate = 2}, 0), 5u + 3u);
  // And the norm, whose squares are sharded.
  EXPECT_EQ(names(Mesh{.dp_shard = 2}, 1), 5u + 3u + 1u);
  EXPECT_EQ(names(Mesh{.dp_replicate = 2, .dp_shard = 2}, 3), 2 * (5u + 3u) + 1u);
}

}  // namespace
}  // namespace trainctl::layout
