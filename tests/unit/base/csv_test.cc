#include "base/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Csv, QuotedCellsHoldCommasLinesAndQuotes) {
  const auto records = ParseCsv("a,b\r\n\"1,2\",\"he said \"\"no\"\"\"\n\n\"two\nlines\",\n", "t.csv");
  ASSERT_TRUE(records.ok()) << records.status();
  ASSERT_EQ(records->size(), 3u);
  EXPECT_THAT((*records)[0].cells, ElementsAre("a", "b"));
  EXPECT_THAT((*records)[1].cells, ElementsAre("1,2", "he said \"no\""));
  EXPECT_THAT((*records)[2].cells, ElementsAre("two\nlines", ""));
  EXPECT_EQ((*records)[1].line, 2);
  EXPECT_EQ((*records)[2].line, 4);
}

TEST(Csv, WhatIsWrongIsNamedWithItsPlace) {
  const auto open = ParseCsv("a,b\n1,\"never\nclosed", "t.csv");
  EXPECT_THAT(std::string(open.status().message()), HasSubstr("opens in line 2"));
  const auto behind = ParseCsv("a,\"b\"c\n", "t.csv");
  EXPECT_THAT(std::string(behind.status().message()), HasSubstr("t.csv:1:6"));
  const auto binary = ParseCsv(absl::string_view("a\0b", 3), "t.csv");
  EXPECT_THAT(std::string(binary.status().message()), HasSubstr("not a text file"));
}

TEST(Csv, WhatIsWrittenIsReadBack) {
  const std::vector<std::string> cells = {"plain", "with,comma", "with \"quotes\"", "two\nlines", ""};
  const auto records = ParseCsv(CsvLine(cells), "t.csv");
  ASSERT_TRUE(records.ok()) << records.status();
  ASSERT_EQ(records->size(), 1u);
  EXPECT_EQ((*records)[0].cells, cells);
}

}  // namespace
}  // namespace trainctl
