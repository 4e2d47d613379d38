#include "recipe/foreign_words.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "recipe/schema.h"

namespace trainctl::recipe {
namespace {

TEST(ForeignWords, LeadToKeysThatThereAre) {
  std::set<std::string> seen;
  for (const ForeignWord& foreign : ForeignKeys()) {
    const std::string ours = foreign.ours;
    EXPECT_TRUE(GetSchema().Find(ours) != nullptr || GetSchema().IsList(ours)) << ours;
    EXPECT_TRUE(seen.insert(foreign.word).second) << foreign.word << " is listed twice";
  }
}

TEST(ForeignWords, AreFoundAsPeopleWriteThem) {
  EXPECT_EQ(OursFor("max_steps", ForeignKeys()), "train.steps");
  EXPECT_EQ(OursFor("--nproc-per-node", ForeignKeys()), "cluster.devices_per_node");
  EXPECT_EQ(OursFor("Learning_Rate", ForeignKeys()), "optimizer.lr");
  EXPECT_EQ(OursFor("train", ForeignVerbs()), "launch");
  EXPECT_EQ(OursFor("stepz", ForeignKeys()), "");
}

}  // namespace
}  // namespace trainctl::recipe
