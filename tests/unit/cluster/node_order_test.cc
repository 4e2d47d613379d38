#include "cluster/node_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace trainctl::cluster {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

// As Slurm 22.05 prints it.
constexpr char kTree[] =
    "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[1,3,9] \n"
    "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[2,4] \n"
    "SwitchName=s2 Level=0 LinkSpeed=1 Nodes=n[5-6] \n"
    "SwitchName=t0 Level=1 LinkSpeed=1 Nodes=n[1,3,5-6,9] Switches=s[0,2] \n"
    "SwitchName=t1 Level=1 LinkSpeed=1 Nodes=n[2,4] Switches=s1 \n"
    "SwitchName=top Level=2 LinkSpeed=1 Nodes=n[1-6,9] Switches=t[0-1] \n";

TEST(OrderBySwitchTest, NodesOfOneSwitchAreNeighboursAtEachLevel) {
  EXPECT_THAT(OrderBySwitch({"n1", "n2", "n3", "n4", "n5", "n6"}, kTree),
              ElementsAre("n1", "n3", "n5", "n6", "n2", "n4"));
}

TEST(OrderBySwitchTest, TheFirstStaysTheFirst) {
  EXPECT_THAT(OrderBySwitch({"n2", "n1", "n3", "n4"}, kTree), ElementsAre("n2", "n4", "n1", "n3"));
}

TEST(OrderBySwitchTest, BlocksAreTakenAsSwitchesAre) {
  EXPECT_THAT(OrderBySwitch({"a1", "b1", "a2", "b2"},
                            "BlockName=b1 BlockIndex=0 Nodes=a[1-8] BlockSize=8\n"
                            "BlockName=b2 BlockIndex=1 Nodes=b[1-8] BlockSize=8\n"),
              ElementsAre("a1", "a2", "b1", "b2"));
}

TEST(OrderBySwitchTest, WhatIsNotToldChangesNothing) {
  const std::vector<std::string> nodes = {"x", "n3", "n2", "n1"};
  EXPECT_THAT(OrderBySwitch(nodes, kTree), ElementsAre("x", "n3", "n1", "n2"));
  for (const char* text : {"", "No topology information available", "SwitchName=s0 Nodes=n[3-",
                           "Nodes=", "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=m[1-3]"}) {
    EXPECT_THAT(OrderBySwitch(nodes, text), ElementsAreArray(nodes)) << text;
  }
  EXPECT_TRUE(OrderBySwitch({}, kTree).empty());
}

// 8192 nodes whose switches take every sixteenth.
TEST(OrderBySwitchTest, ThousandsOfNodes) {
  std::vector<std::string> nodes;
  for (int i = 0; i < 8192; ++i) nodes.push_back(absl::StrCat("n", i));
  std::string topology;
  for (int leaf = 0; leaf < 512; ++leaf) {
    absl::StrAppend(&topology, "SwitchName=s", leaf, " Level=0 LinkSpeed=1 Nodes=n[");
    for (int i = leaf; i < 8192; i += 512) absl::StrAppend(&topology, i == leaf ? "" : ",", i);
    absl::StrAppend(&topology, "]\n");
  }
  const std::vector<std::string> ordered = OrderBySwitch(nodes, topology);
  ASSERT_EQ(ordered.size(), 8192u);
  for (size_t i = 0; i < ordered.size(); ++i) {
    EXPECT_EQ(ordered[i], absl::StrCat("n", i / 16 + i % 16 * 512));
  }
}

}  // namespace
}  // namespace trainctl::cluster
