#include "tokenizer/config_beside.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"

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

  int32_t End() {
    const auto tokenizer = Tokenizer::Load(folder_);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return tokenizer.ok() ? (*tokenizer)->end_of_document_id() : -2;
  }

  const std::string folder_ = absl::StrCat(testing::TempDir(), "/config_beside_test");
};

TEST_F(ConfigBesideTest, TheModelsOwnEndEndsADocument) {
  EXPECT_EQ(End(), 1);
  Write("config.json", R"({"eos_token_id": 2})");
  EXPECT_EQ(End(), 2);
  Write("config.json", R"({"eos_token_id": [2, 1]})");
  EXPECT_EQ(End(), 1) << "of several, the one that ends documents anyway";
  Write("config.json", R"({"eos_token_id": [7, "x", -1, 2, 0]})");
  EXPECT_EQ(End(), 2) << "what is no token is passed over";
  Write("generation_config.json", R"({"eos_token_id": 0})");
  EXPECT_EQ(End(), 0);
  Write("special_tokens_map.json", R"({"eos_token": "<|end_of_text|>"})");
  EXPECT_EQ(End(), 1);
  Write("tokenizer_config.json", R"({"eos_token": {"content": "<|eot_id|>", "lstrip": false}})");
  EXPECT_EQ(End(), 2);
  Write("tokenizer_config.json", R"({"eos_token": "<absent>"})");
  EXPECT_EQ(End(), 1);
}

TEST_F(ConfigBesideTest, TheEndCanBeStated) {
  const auto tokenizer = Tokenizer::Load(folder_);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  ASSERT_TRUE((*tokenizer)->SetEndOfDocument("<|eot_id|>").ok());
  EXPECT_EQ((*tokenizer)->end_of_document_id(), 2);
  ASSERT_TRUE((*tokenizer)->SetEndOfDocument("none").ok());
  EXPECT_EQ((*tokenizer)->end_of_document_id(), -1);
  EXPECT_EQ((*tokenizer)->SetEndOfDocument("<eos>").message(),
            "the tokenizer has no token '<eos>' to end documents with");
}

TEST_F(ConfigBesideTest, TokensAroundATextAreTold) {
  EXPECT_THAT(Differences(), IsEmpty());
  Write("tokenizer_config.json", R"({"add_bos_token": true, "add_eos_token": true})");
  EXPECT_THAT(
      Differences(),
      ElementsAre("tokenizer_config.json sets add_bos_token, but trainctl adds nothing before a text",
                  "tokenizer_config.json sets add_eos_token, but trainctl adds nothing after a text"));
}

TEST_F(ConfigBesideTest, WhatAgreesOrIsNotUnderstoodIsNotTold) {
  for (const char* config :
       {R"({"eos_token": "<|end_of_text|>", "add_bos_token": false})", R"({"eos_token": "<absent>"})", "[1]",
        "{", R"({"eos_token": 3, "add_bos_token": "yes"})", R"({"eos_token": {"content": []}})",
        R"({"eos_token": null})", ""}) {
    Write("tokenizer_config.json", config);
    EXPECT_THAT(Differences(), IsEmpty()) << config;
    EXPECT_EQ(End(), 1) << config;
  }
}

TEST_F(ConfigBesideTest, AGitLfsPointerIsRefused) {
  for (const char* name :
       {"tokenizer_config.json", "special_tokens_map.json", "generation_config.json", "config.json"}) {
    EXPECT_TRUE(Tokenizer::Load(folder_).ok());
    Write(name, "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n");
    const absl::Status status = Tokenizer::Load(folder_).status();
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData) << status;
    EXPECT_EQ(status.message(),
              absl::StrCat(folder_, "/", name,
                           " is a Git LFS pointer, not the file itself; fetch the file with `git "
                           "lfs pull` in its repository"));
    std::filesystem::remove(absl::StrCat(folder_, "/", name));
  }
}

}  // namespace
}  // namespace trainctl::tokenizer
