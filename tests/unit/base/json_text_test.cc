#include "base/json_text.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace trainctl {
namespace {

TEST(JsonText, AChangedFieldLeavesEveryOtherByte) {
  const std::string text =
      "\xef\xbb\xbf{ \"eps\" : 1e-5,\n\t\"id\":0,\"n\\u0061me\": \"a\\\"}\\\\\" ,\"list\":[ {\"id\": 3}, "
      "\"]\"]}\n";
  ASSERT_TRUE(ParseJson(text, "f").ok());
  const auto with = [&](const char* old_part, const char* new_part) {
    std::string changed = text;
    return changed.replace(changed.find(old_part), std::string(old_part).size(), new_part);
  };
  EXPECT_EQ(WithJsonField(text, "eps", 0.5), with("1e-5", "0.5"));
  EXPECT_EQ(WithJsonField(text, "id", 7), with("\"id\":0", "\"id\":7"));
  EXPECT_EQ(WithJsonField(text, "name", nullptr), with("\"a\\\"}\\\\\"", "null"));
  EXPECT_EQ(WithJsonField(text, "list", "x"), with("[ {\"id\": 3}, \"]\"]", "\"x\""));
}

TEST(JsonText, ANewFieldIsWrittenLikeTheOthers) {
  EXPECT_EQ(WithJsonField("{\n    \"a\": 1,\n    \"b\": 2\n}\n", "c", Json::array({1, 2})),
            "{\n    \"a\": 1,\n    \"b\": 2,\n    \"c\": [\n        1,\n        2\n    ]\n}\n");
  EXPECT_EQ(WithJsonField("{\n\t\"a\": 1\n}", "b", Json{{"x", 1}}),
            "{\n\t\"a\": 1,\n\t\"b\": {\n\t\t\"x\": 1\n\t}\n}");
  EXPECT_EQ(WithJsonField(R"({"a":1,"b":2})", "c\"", Json::array({1, 2})), R"({"a":1,"b":2,"c\"": [1,2]})");
  EXPECT_EQ(WithJsonField(R"({"a": {"b": 1}})", "b", 2), R"({"a": {"b": 1}, "b": 2})");
  EXPECT_EQ(WithJsonField(" { } ", "a", true), R"({"a":true})");
  EXPECT_EQ(WithJsonField("{\"a\": 1\n, \"b\": 2\n}", "c", Json::array({1, 2})),
            "{\"a\": 1\n, \"b\": 2\n, \"c\": [1,2]\n}");
}

}  // namespace
}  // namespace trainctl
