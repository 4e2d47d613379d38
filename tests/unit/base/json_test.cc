#include "base/json.h"

#include <gtest/gtest.h>

namespace trainctl {
namespace {

std::string ErrorOf(const absl::Status& status) {
  if (status.ok()) return "OK";
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData);
  return std::string(status.message());
}

TEST(Json, ASyntaxErrorHasLineAndColumn) {
  EXPECT_EQ(ErrorOf(ParseJson("{\n  \"a\": 1,\n  \"b\" 2\n}", "f.json").status()),
            "f.json:3:7: not valid JSON");
  EXPECT_EQ(ErrorOf(ParseJson("", "f.json").status()), "f.json:1:1: not valid JSON");
  EXPECT_EQ(ErrorOf(ParseJson("{} x", "f.json").status()), "f.json:1:4: not valid JSON");
  EXPECT_EQ(ErrorOf(ParseJson(absl::string_view("\0\xff\xfe", 3), "f").status()), "f:1:1: not valid JSON");
}

TEST(Json, TextInAnotherEncodingIsNamedAsThat) {
  EXPECT_EQ(ErrorOf(ParseJson("\"\xff\"", "f").status()),
            "f:1:2: not valid UTF-8 (byte 0xFF); convert the file");
  // Latin-1: what would be the first byte of three.
  EXPECT_EQ(ErrorOf(ParseJson("{\"a\":\n \"caf\xe9\"}", "f").status()),
            "f:2:6: not valid UTF-8 (byte 0xE9); convert the file");
  EXPECT_EQ(ErrorOf(ParseJson("\"\xf0\x9f\x98\"", "f").status()),
            "f:1:2: not valid UTF-8 (byte 0xF0); convert the file");
  EXPECT_EQ(ErrorOf(ParseJson("\"\xc3\xa9\xa9\"", "f").status()),
            "f:1:4: not valid UTF-8 (byte 0xA9); convert the file");
  EXPECT_EQ(ErrorOf(ParseJson("\"\xc3\xa9 UTF-8\" x", "f").status()), "f:1:12: not valid JSON");
}

TEST(Json, DeepNestingIsAnErrorAndNotARecursion) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(ParseJson(nested(64), "f").ok());
  EXPECT_EQ(ErrorOf(ParseJson(nested(1000), "f").status()), "f: nested deeper than 64 levels");
  EXPECT_EQ(ErrorOf(ParseJson(nested(100000), "f").status()), "f: nested deeper than 64 levels");
  EXPECT_EQ(ErrorOf(ParseJson(std::string(1000000, '['), "f").status()), "f: nested deeper than 64 levels");
}

// A number too large for a double is an out_of_range exception of the library.
TEST(Json, AHugeNumberIsAnError) {
  EXPECT_EQ(ErrorOf(ParseJson("{\"a\": 1e999}", "f").status()), "f: a number is out of range");
}

TEST(Json, WhatIsPrintedHoldsNothingThatATerminalObeys) {
  const Json json = {{"name",
                      "a\x1b[2J\xc2\x9b"
                      "2J\x7f \xc3\xa9\xff"}};
  const std::string text = PrintableJson(json);
  EXPECT_EQ(text, "{\"name\":\"a\\u001b[2J\\u009b2J\\u007f \xc3\xa9\xef\xbf\xbd\"}");
  EXPECT_EQ((*ParseJson(text, "text"))["name"],
            "a\x1b[2J\xc2\x9b"
            "2J\x7f \xc3\xa9\xef\xbf\xbd");
}

TEST(Json, FieldsAreReadByType) {
  const Json json =
      *ParseJson(R"({"i": -3, "u": 18446744073709551615, "d": 0.5, "b": true, "s": "x", "n": null})", "f");
  EXPECT_EQ(*JsonInt(json, "i", "f"), -3);
  EXPECT_EQ(*JsonDouble(json, "d", "f"), 0.5);
  EXPECT_EQ(*JsonDouble(json, "i", "f"), -3.0);
  EXPECT_EQ(*JsonBool(json, "b", "f"), true);
  EXPECT_EQ(*JsonString(json, "s", "f"), "x");
  EXPECT_EQ(ErrorOf(JsonInt(json, "u", "f").status()),
            "f: field 'u' is missing or not an integer below 2^63");
  EXPECT_EQ(ErrorOf(JsonInt(json, "d", "f").status()), "f: field 'd' is missing or not an integer");
  EXPECT_EQ(ErrorOf(JsonInt(json, "nope", "f").status()), "f: field 'nope' is missing or not an integer");
  EXPECT_EQ(ErrorOf(JsonBool(json, "n", "f").status()), "f: field 'n' is missing or not true or false");
  EXPECT_EQ(ErrorOf(JsonString(Json::array(), "s", "f").status()), "f: field 's' is missing or not a string");
}

}  // namespace
}  // namespace trainctl
