#include "tokenizer/config_beside.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/files.h"

namespace trainctl::tokenizer {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class ConfigBesideTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    Write("tokenizer.json", R"({"added_tokens": [
      {"id": 1, "content": "<|end_of_text|>", "special": true}, {"id": 2, "content": "<|eot_id|>", "special": true}],
      "model": {"vocab": {"a": 0}, "merges": []}})");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void Write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomic(absl::StrCat(folder_, "/", name), text).ok());
  }
  std::vector<std::string> Differences() {
    const auto file = Tokenizer::FindFile(folder_);
    const auto tokenizer = Tokenizer::Load(folder_);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return DifferencesOfConfigBeside(**tokenizer, *file);
  }

  const std::string folder_ = absl::StrCat(testing::TempDir(), "/config_beside_test");
};

TEST_F(ConfigBesideTest, AnotherEndAndTokensAroundATextAreTold) {
  EXPECT_THAT(Differences(), IsEmpty());
  const std::string other =
      "tokenizer_config.json has eos_token <|eot_id|> (2); here a document ends with <|end_of_text|> (1)";
  Write("tokenizer_config.json", R"({"eos_token": "<|eot_id|>"})");
  EXPECT_THAT(Differences(), ElementsAre(other));
  Write("tokenizer_config.json",
        R"({"eos_token": {"content": "<|eot_id|>", "lstrip": false}, "add_bos_token": true,
                                     "add_eos_token": true})");
  EXPECT_THAT(Differences(),
              ElementsAre(other, "tokenizer_config.json has add_bos_token; here nothing is put before a text",
                          "tokenizer_config.json has add_eos_token; here nothing is put behind a text"));
}

TEST_F(ConfigBesideTest, WhatAgreesOrIsNotUnderstoodIsNotTold) {
  for (const char* config :
       {R"({"eos_token": "<|end_of_text|>", "add_bos_token": false})", R"({"eos_token": "<absent>"})", "[1]",
        "{", R"({"eos_token": 3, "add_bos_token": "yes"})", R"({"eos_token": {"content": []}})",
        R"({"eos_token": null})", ""}) {
    Write("tokenizer_config.json", config);
    EXPECT_THAT(Differences(), IsEmpty()) << config;
  }
}

}  // namespace
}  // namespace trainctl::tokenizer
