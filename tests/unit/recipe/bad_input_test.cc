#include "bad_input_cases.h"
#include "recipe_test_util.h"

namespace trainctl::recipe {
namespace {

class BadInput : public ::testing::TestWithParam<BadInputCase> {};

TEST_P(BadInput, IsNamedWithItsPlaceAndAWayOut) {
  const std::string text = GetParam().text;
  EXPECT_EQ(ErrorOf(text[0] == '!' ? text.substr(1) : absl::StrCat(kMinimal, text)), GetParam().error);
}

INSTANTIATE_TEST_SUITE_P(Table, BadInput, ::testing::ValuesIn(kBadInputs),
                         [](const auto& info) { return std::string(info.param.name); });

class BadSet : public ::testing::TestWithParam<BadSetCase> {};

TEST_P(BadSet, IsNamedWithItsTextAndAWayOut) {
  EXPECT_EQ(ErrorOf(kMinimal, GetParam().sets), GetParam().error);
}

INSTANTIATE_TEST_SUITE_P(Table, BadSet, ::testing::ValuesIn(kBadSets),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace trainctl::recipe
