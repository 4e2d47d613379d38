#include "layout/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/counter_rng.h"
#include "tests/unit/num_cases.h"

namespace trainctl::layout {
namespace {

using ::testing::ElementsAre;

TEST(Mesh, CoordinatesAreThoseOfNestedLoopsWithTpInnermost) {
  const Mesh mesh{.pp = 2, .dp_replicate = 3, .dp_shard = 2, .cp = 1, .tp = 2};
  int rank = 0;
  for (int pp = 0; pp < 2; ++pp) {
    for (int replicate = 0; replicate < 3; ++replicate) {
      for (int shard = 0; shard < 2; ++shard) {
        for (int tp = 0; tp < 2; ++tp, ++rank) {
          EXPECT_EQ(mesh.coordinate(rank, Axis::kPp), pp);
          EXPECT_EQ(mesh.coordinate(rank, Axis::kDpReplicate), replicate);
          EXPECT_EQ(mesh.coordinate(rank, Axis::kDpShard), shard);
          EXPECT_EQ(mesh.coordinate(rank, Axis::kCp), 0);
          EXPECT_EQ(mesh.coordinate(rank, Axis::kTp), tp);
          EXPECT_EQ(mesh.data_index(rank), replicate * 2 + shard);
        }
      }
    }
  }
  EXPECT_EQ(rank, mesh.world_size());
  EXPECT_EQ(mesh.data_degree(), 6);
  EXPECT_EQ(mesh.ToString(), "pp=2 dp_replicate=3 dp_shard=2 tp=2");
  EXPECT_EQ(Mesh{}.ToString(), "one worker");
}

TEST(Mesh, GroupsDifferOnTheirAxisOnly) {
  const Mesh mesh{.dp_replicate = 3, .dp_shard = 4};
  EXPECT_THAT(mesh.Group(5, Axis::kDpShard), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(mesh.Group(5, Axis::kDpReplicate), ElementsAre(1, 5, 9));
  EXPECT_THAT(mesh.Group(5, Axis::kTp), ElementsAre(5));
}

// The second of two stages of 8 ranks, which are replicate 2 x shard 2 x tp 2 for most layers.
TEST(Mesh, ExpertsSeeTheRanksOfAStageASecondTime) {
  Mesh mesh{.pp = 2, .dp_replicate = 2, .dp_shard = 2, .tp = 2, .ep = 2, .etp = 2};
  EXPECT_EQ(mesh.ToString(), "pp=2 dp_replicate=2 dp_shard=2 tp=2 ep=2 etp=2");
  ASSERT_TRUE(mesh.HasExpertView());
  // 13 is 5 in its stage: 1, 0, 1 on axes of two.
  EXPECT_EQ(mesh.coordinate(13, ExpertAxis::kDp), 1);
  EXPECT_EQ(mesh.coordinate(13, ExpertAxis::kEp), 0);
  EXPECT_EQ(mesh.coordinate(13, ExpertAxis::kEtp), 1);
  EXPECT_THAT(mesh.Group(13, ExpertAxis::kEtp), ElementsAre(12, 13));
  EXPECT_THAT(mesh.Group(13, ExpertAxis::kEp), ElementsAre(13, 15));
  EXPECT_THAT(mesh.Group(13, ExpertAxis::kDp), ElementsAre(9, 13));

  // Whole experts over the four ranks of a replica, a copy in each of the two.
  mesh.ep = 4, mesh.etp = 1;
  EXPECT_THAT(mesh.Group(13, ExpertAxis::kEp), ElementsAre(12, 13, 14, 15));
  EXPECT_THAT(mesh.Group(13, ExpertAxis::kDp), ElementsAre(9, 13));

  // Over more ranks than a replica has.
  mesh.ep = 8;
  EXPECT_THAT(mesh.Group(13, ExpertAxis::kEp), ElementsAre(8, 9, 10, 11, 12, 13, 14, 15));
  EXPECT_THAT(mesh.Group(13, ExpertAxis::kDp), ElementsAre(13));

  mesh.ep = 3;
  EXPECT_FALSE(mesh.HasExpertView());
}

// Over one view of the ranks, whose axes are `axes`.
template <typename AnyAxis>
void ExpectGroupsPartition(const Mesh& mesh, const std::vector<AnyAxis>& axes) {
  for (const AnyAxis axis : axes) {
    std::set<std::vector<int>> groups;
    std::vector<int> ranks;
    for (int rank = 0; rank < mesh.world_size(); ++rank) {
      const std::vector<int> group = mesh.Group(rank, axis);
      ASSERT_EQ(group.size(), static_cast<size_t>(mesh.degree(axis)));
      for (size_t i = 0; i < group.size(); ++i) {
        ASSERT_EQ(mesh.coordinate(group[i], axis), static_cast<int>(i));
        for (const AnyAxis other : axes) {
          if (other == axis) continue;
          ASSERT_EQ(mesh.coordinate(group[i], other), mesh.coordinate(rank, other));
        }
      }
      if (groups.insert(group).second) ranks.insert(ranks.end(), group.begin(), group.end());
    }
    std::sort(ranks.begin(), ranks.end());
    std::vector<int> all(static_cast<size_t>(mesh.world_size()));
    std::iota(all.begin(), all.end(), 0);
    ASSERT_EQ(ranks, all);
  }
}

TEST(Mesh, GroupsOfEachViewPartitionTheRanks) {
  int folded_over_replicas = 0;
  for (uint64_t seed = 0; seed < NumCases<uint64_t>(200); ++seed) {
    auto draw = [seed, index = uint64_t{0}](uint64_t most) mutable {
      return static_cast<int64_t>(1 + RandomBelow(seed, 0, index++, most));
    };
    Mesh mesh{.pp = draw(3), .dp_replicate = draw(3), .dp_shard = draw(4), .cp = draw(2), .tp = draw(4)};
    mesh.ep = std::gcd(draw(12), mesh.ranks_per_stage());
    mesh.etp = std::gcd(draw(4), mesh.ranks_per_stage() / mesh.ep);
    SCOPED_TRACE(mesh.ToString());
    ASSERT_TRUE(mesh.HasExpertView());
    folded_over_replicas += mesh.dp_shard * mesh.cp * mesh.tp % (mesh.ep * mesh.etp) != 0;
    ExpectGroupsPartition<Axis>(mesh, {Axis::kPp, Axis::kDpReplicate, Axis::kDpShard, Axis::kCp, Axis::kTp});
    ExpectGroupsPartition<ExpertAxis>(mesh, {ExpertAxis::kDp, ExpertAxis::kEp, ExpertAxis::kEtp});
    for (int rank = 0; rank < mesh.world_size(); ++rank) {
      for (const ExpertAxis axis : {ExpertAxis::kDp, ExpertAxis::kEp, ExpertAxis::kEtp}) {
        for (const int other : mesh.Group(rank, axis))
          ASSERT_EQ(mesh.coordinate(other, Axis::kPp), mesh.coordinate(rank, Axis::kPp));
      }
    }
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(folded_over_replicas, 0);
}

}  // namespace
}  // namespace trainctl::layout
