#include "recipe/toml_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace trainctl::recipe {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string ErrorOf(absl::string_view text) {
  const absl::StatusOr<RawValue> table = ParseToml(text, "f");
  if (table.ok()) return "OK";
  EXPECT_EQ(ExitCodeFor(table.status()), ExitCode::kUsage);
  return std::string(table.status().message());
}

std::string Repeat(absl::string_view text, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) absl::StrAppend(&result, text);
  return result;
}

TEST(TomlReader, KeysComeInTheOrderWrittenWithTheirPlaces) {
  const absl::StatusOr<RawValue> table = ParseToml("z = 1\na = [true, 'x']\n[m]\n  k = 2.5\n", "f");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(table->keys, ::testing::ElementsAre("z", "a", "m"));
  EXPECT_EQ(table->items[0].int_value, 1);
  EXPECT_EQ(table->items[0].where, "f:1:1");
  EXPECT_EQ(table->items[1].items[1].string_value, "x");
  EXPECT_EQ(table->items[1].items[1].where, "f:2:12");
  EXPECT_EQ(table->items[2].items[0].double_value, 2.5);
  EXPECT_EQ(table->items[2].items[0].where, "f:4:3");
}

// The parser limits values on its own (256 levels), but builds any number of levels for dotted keys and
// headers, which everything that walks the result would then recurse into.
TEST(TomlReader, DeepNestingIsAnErrorInEveryForm) {
  for (const int levels : {1000, 20000}) {
    const std::string deep = "nested deeper than 32 levels";
    EXPECT_THAT(ErrorOf(absl::StrCat("a = ", Repeat("[", levels), Repeat("]", levels))), HasSubstr(deep));
    EXPECT_THAT(ErrorOf(absl::StrCat("a = ", Repeat("[", levels))), HasSubstr(deep));
    EXPECT_THAT(ErrorOf(absl::StrCat("a = ", Repeat("{a=", levels), "1", Repeat("}", levels))),
                HasSubstr(deep));
    EXPECT_THAT(ErrorOf(absl::StrCat("a", Repeat(".a", levels), " = 1")), HasSubstr(deep));
    EXPECT_THAT(ErrorOf(absl::StrCat("[a", Repeat(".a", levels), "]")), HasSubstr(deep));
    EXPECT_THAT(ErrorOf(absl::StrCat("[[a", Repeat(".a", levels), "]]")), HasSubstr(deep));
    EXPECT_THAT(ErrorOf(absl::StrCat("a", Repeat(".\"a\"", levels), " = 1")), HasSubstr(deep));
    EXPECT_THAT(ErrorOf(absl::StrCat("a", Repeat(" . 'a'", levels), " = 1")), HasSubstr(deep));
    EXPECT_THAT(ErrorOf(absl::StrCat("a = {b", Repeat(".a", levels), " = 1}")), HasSubstr(deep));
  }
  EXPECT_EQ(ErrorOf(absl::StrCat("x = 1\na = ", Repeat("[", 40))), "f:2:37: nested deeper than 32 levels");
}

TEST(TomlReader, BracketsInStringsAndCommentsDoNotNest) {
  const std::string brackets = Repeat("[{.", 100);
  EXPECT_EQ(ErrorOf(absl::StrCat("# ", brackets, "\n")), "OK");
  EXPECT_EQ(ErrorOf(absl::StrCat("a = \"", brackets, "\"\n")), "OK");
  EXPECT_EQ(ErrorOf(absl::StrCat("a = \"\\\"", brackets, "\"\n")), "OK");
  EXPECT_EQ(ErrorOf(absl::StrCat("a = '", brackets, "\\'\n")), "OK");
  EXPECT_EQ(ErrorOf(absl::StrCat("a = \"\"\"\n\"\"", brackets, "\n\\\"\"\"\"\n")), "OK");
  EXPECT_EQ(ErrorOf(absl::StrCat("a = '''\n''", brackets, "\n'''\n")), "OK");
  EXPECT_EQ(ErrorOf(Repeat("a1 = 1.5\n", 1)), "OK");
  std::string many;
  for (int i = 0; i < 100; ++i) absl::StrAppend(&many, "a", i, " = [1.5]\n[t", i, ".u]\n");
  EXPECT_EQ(ErrorOf(many), "OK");
}

TEST(TomlReader, NestingBehindAStringIsStillSeen) {
  const std::string deep = Repeat("[", 1000);
  const std::string error = "nested deeper than 32 levels";
  EXPECT_THAT(ErrorOf(absl::StrCat("a = [\"\", ", deep)), HasSubstr(error));
  EXPECT_THAT(ErrorOf(absl::StrCat("a = [\"\"\"x\"\"\", ", deep)), HasSubstr(error));
  // Two quotes may stand before the closing three.
  EXPECT_THAT(ErrorOf(absl::StrCat("a = [\"\"\"x\"\"\"\"\", ", deep)), HasSubstr(error));
  EXPECT_THAT(ErrorOf(absl::StrCat("a = ['''x''''', ", deep)), HasSubstr(error));
  EXPECT_THAT(ErrorOf(absl::StrCat("a = ['\\', ", deep)), HasSubstr(error));
  EXPECT_THAT(ErrorOf(absl::StrCat("a = [\"\"\"\\\n\"\"\", ", deep)), HasSubstr(error));
}

TEST(TomlReader, RubbishIsAnErrorWithAPlace) {
  EXPECT_THAT(ErrorOf(absl::string_view("\x7f"
                                        "ELF\x02\x01\0\0",
                                        8)),
              StartsWith("f:1:1: not valid TOML"));
  EXPECT_THAT(ErrorOf("a = \"\xff\xfe\""), StartsWith("f:1:"));
  EXPECT_THAT(ErrorOf("a = \"\xed\xa0\x80\""), StartsWith("f:1:"));  // a surrogate
  EXPECT_THAT(ErrorOf(absl::string_view("a = 1\0", 6)), StartsWith("f:1:"));
  EXPECT_THAT(ErrorOf("a = \"never closed"), StartsWith("f:1:"));
  EXPECT_THAT(ErrorOf("a = 1e99999"), StartsWith("f:1:"));
  EXPECT_THAT(ErrorOf("a = 0x"), StartsWith("f:1:"));
  EXPECT_THAT(ErrorOf("a = 9223372036854775808"), HasSubstr("is not representable in 64 bits"));
  EXPECT_THAT(ErrorOf("\xef\xbb\xbb"), StartsWith("f:1:1: not valid TOML"));  // U+FEFB, a letter
  EXPECT_EQ(ErrorOf("a = \"\"\"\\\n\xef\xbb\xbb\"\"\""), "OK");
  EXPECT_EQ(ErrorOf(std::string(kMaxRecipeBytes + 1, '#')),
            "f: 1048577 bytes, but the limit for a recipe is 1048576");
  EXPECT_EQ(ErrorOf(""), "OK");
  EXPECT_EQ(ErrorOf("\xef\xbb\xbf"
                    "a = 1"),
            "OK");  // a byte order mark
}

// An assertion of the parser, which would end the process.
TEST(TomlReader, AHeaderWithoutANameIsAnError) {
  const std::string error = ": not valid TOML: expected a table name after [";
  EXPECT_EQ(ErrorOf("[ = 1"), absl::StrCat("f:1:1", error));
  EXPECT_EQ(ErrorOf("a = 1\n  [[.x]]"), absl::StrCat("f:2:3", error));
  EXPECT_EQ(ErrorOf("[\xc3\xa9]"), absl::StrCat("f:1:1", error));
  EXPECT_EQ(ErrorOf("[#]"), absl::StrCat("f:1:1", error));
  EXPECT_EQ(ErrorOf("[\n]"), absl::StrCat("f:1:1", error));
  EXPECT_EQ(ErrorOf("[[]]"),
            "f:1:3: not valid TOML: while parsing table header: tables with blank bare keys are explicitly "
            "prohibited");
  EXPECT_NE(ErrorOf("["), "OK");
  EXPECT_EQ(ErrorOf("[ a ]\n[ \"b\" . 'c' ]\nx = [\n[1], [ ], [\n]]\n[[-_9]]"), "OK");
}

TEST(TomlReader, AValueIsOneValue) {
  const absl::StatusOr<RawValue> list = ParseTomlValue("[1, {b = 2}]", "--set x");
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ(list->items[1].items[0].int_value, 2);
  EXPECT_EQ(list->items[1].items[0].where, "--set x");
  EXPECT_EQ(ParseTomlValue("1\nother = 2", "--set x").status().message(), "--set x: expected one value");
  EXPECT_THAT(std::string(ParseTomlValue("1 2", "--set x").status().message()),
              StartsWith("--set x: not valid TOML"));
  EXPECT_EQ(ParseTomlValue(std::string(1000, '['), "--set x").status().message(),
            "--set x: nested deeper than 32 levels");
}

}  // namespace
}  // namespace trainctl::recipe
