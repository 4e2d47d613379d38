#include "trainer/numerics.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainctl::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kNow =
    absl::StrCat(R"({"layout": "DDP", "numerics": )", kNumericsVersion, R"(, "threads": 2})");

TEST(Numerics, OfTheSameNothingIsSaid) {
  EXPECT_EQ(DescribeChange(kNow, kNow), "");
  EXPECT_EQ(DescribeChange("", kNow), "");
  const std::string in_another_order =
      absl::StrCat(R"({"threads": 2, "numerics": )", kNumericsVersion, R"(, "layout": "DDP"})");
  EXPECT_EQ(DescribeChange(in_another_order, kNow), "");
}

TEST(Numerics, AnotherLayoutMovesTheOrderOfSumsAlone) {
  const std::string before =
      absl::StrCat(R"({"layout": "ZeRO-3", "numerics": )", kNumericsVersion, R"(, "threads": 2})");
  EXPECT_EQ(DescribeChange(before, kNow),
            "layout is DDP (was ZeRO-3): results agree up to the order of sums and are not bit-identical");
}

TEST(Numerics, ACheckpointOfAnEarlierTrainctlNamesWhatChangedSince) {
  EXPECT_THAT(
      DescribeChange(R"({"layout": "DDP", "threads": 2})", kNow),
      AllOf(HasSubstr(absl::StrCat("numerics is ", kNumericsVersion, " (was 1)")), HasSubstr("rotary angles"),
            HasSubstr("not bit-identical"), Not(HasSubstr("order of sums"))));
}

TEST(Numerics, ACheckpointOfALaterTrainctlSaysSo) {
  for (const char* version : {"99", "0", "\"new\""}) {
    EXPECT_THAT(DescribeChange(
                    absl::StrCat(R"({"layout": "DDP", "numerics": )", version, R"(, "threads": 2})"), kNow),
                AllOf(HasSubstr("saved by another version of trainctl"), HasSubstr("not bit-identical")));
  }
}

}  // namespace
}  // namespace trainctl::trainer
