#include "base/names.h"

#include <gtest/gtest.h>

namespace trainctl {
namespace {

TEST(Names, EditsAreCounted) {
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("abc", "abc"), 0);
}

TEST(Names, SpellingsOfOneNameAreTheSame) {
  EXPECT_EQ(NormalName("NVLink 4"), NormalName("nvlink-4"));
  EXPECT_EQ(NormalName("--"), "");
}

TEST(Names, TheNearestNamesShareTheirBeginning) {
  EXPECT_EQ(NearestNames("h100", {"l4", "a100", "h100-sxm-80gb", "h200"}), "h100-sxm-80gb, h200, a100");
  EXPECT_EQ(NearestNames(std::string(1000000, 'x'), {"xy"}), "xy");
}

TEST(Names, AQuotedNameIsShortAndPrintable) {
  EXPECT_EQ(QuotedName("a\n"), "'a\\n'");
  EXPECT_EQ(QuotedName(std::string(100, 'x')), "'" + std::string(60, 'x') + "...'");
}

}  // namespace
}  // namespace trainctl
