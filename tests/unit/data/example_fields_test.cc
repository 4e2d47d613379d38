#include "data/example_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "base/files.h"
#include "base/status.h"

namespace trainctl::data {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

ExampleFields Find(const std::vector<std::string>& names) { return FindExampleFields(names); }

TEST(ExampleFields, OfCommonDataSetsAreRecognized) {
  EXPECT_EQ(Find({"prompt", "completion"}), (ExampleFields{"prompt", "completion"}));
  EXPECT_EQ(Find({"prompt", "text"}), (ExampleFields{"prompt", "text"}));
  EXPECT_EQ(Find({"output", "input", "instruction"}), (ExampleFields{"instruction", "output"}));
  EXPECT_EQ(Find({"id", "question", "answer"}), (ExampleFields{"question", "answer"}));
  EXPECT_EQ(Find({"text", "meta"}), (ExampleFields{"", "text"}));
  EXPECT_EQ(Find({"text", "completion", "prompt"}), (ExampleFields{"prompt", "completion"}));
  EXPECT_EQ(Find({"instruction", "text"}), (ExampleFields{"", "text"}));
}

TEST(ExampleFields, OthersAreNot) {
  EXPECT_EQ(Find({}), ExampleFields());
  EXPECT_EQ(Find({"messages"}), ExampleFields());
  EXPECT_EQ(Find({"prompt", "answer"}), ExampleFields());
}

TEST(FieldNamesOfFirstLine, AreThoseOfTheFirstLine) {
  const std::string file = testing::TempDir() + "trainctl-example-fields.jsonl";
  const auto names_of = [&](const std::string& contents) {
    EXPECT_TRUE(WriteFileAtomic(file, contents).ok());
    const absl::StatusOr<std::vector<std::string>> names = FieldNamesOfFirstLine(file);
    EXPECT_TRUE(names.ok()) << names.status();
    return names.value_or(std::vector<std::string>());
  };
  EXPECT_THAT(names_of("{\"a\": 1, \"b\": \"x\"}\n{\"c\": 2}\n"), ElementsAre("a", "b"));
  EXPECT_THAT(names_of("{\"a\": 1}"), ElementsAre("a"));
  EXPECT_THAT(names_of("[1]\n"), IsEmpty());
  EXPECT_THAT(names_of(""), IsEmpty());
  std::remove(file.c_str());
  EXPECT_EQ(ExitCodeFor(FieldNamesOfFirstLine(file).status()), ExitCode::kBadData);
}

}  // namespace
}  // namespace trainctl::data
