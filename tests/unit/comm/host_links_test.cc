#include "comm/host_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/comm/forked_ranks.h"

namespace trainctl::comm {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::IsEmpty;
using ::testing::SizeIs;

struct Shape {
  int nodes, per_node;
};
class LinksOf : public ::testing::TestWithParam<Shape> {};

TEST_P(LinksOf, EachNodeIsMeasuredOnceAndAllRanksKnowIt) {
  const auto [nodes, per_node] = GetParam();
  OnEveryRank(nodes * per_node, false, [nodes = nodes, per_node = per_node](Rank& rank) {
    Group world = rank.communicator.MakeHostGroup(rank.Everyone(), "world");
    const auto speeds = MeasureHostLinks(world, per_node, 1 << 16);
    ASSERT_TRUE(speeds.ok()) << speeds.status();
    EXPECT_THAT(*speeds, SizeIs(nodes == 1 ? 0 : nodes));
    EXPECT_THAT(*speeds, Each(Gt(0.0)));
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, LinksOf,
                         ::testing::Values(Shape{1, 2}, Shape{2, 1}, Shape{2, 2}, Shape{3, 1}, Shape{4, 1},
                                           Shape{5, 1}));

TEST(HostLinksTest, ALinkOfLessThanHalfTheUsualSpeedIsNamed) {
  EXPECT_THAT(DescribeHostLinks({}, 8), IsEmpty());
  EXPECT_THAT(DescribeHostLinks({1e9, 1.2e9, 0.6e9}, 8), ElementsAre("between nodes: 0.6 to 1.2 GB/s"));
  EXPECT_THAT(
      DescribeHostLinks({1e9, 1.2e9, 0.1e9}, 8),
      ElementsAre("between nodes: 0.1 to 1.2 GB/s",
                  "warning: from the node of rank 8 to that of rank 16 it is 0.1 GB/s, where 1 are usual: "
                  "look at their network"));
}

TEST(HostLinksTest, TwoLinksAreNotComparedWithEachOther) {
  EXPECT_THAT(DescribeHostLinks({0.1e9, 1e9}, 1), ElementsAre("between nodes: 0.1 to 1 GB/s"));
}

}  // namespace
}  // namespace trainctl::comm
