#include "tokenizer/other_files.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "tokenizer/tokenizer.h"

namespace trainctl::tokenizer {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string MessageFor(absl::string_view bytes, absl::string_view what = "x/t.model") {
  const auto tokenizer = Tokenizer::Parse(bytes, what);
  EXPECT_EQ(ExitCodeFor(tokenizer.status()), ExitCode::kBadData) << bytes;
  return std::string(tokenizer.status().message());
}

// The first lines of the files of Llama 3 ("!", "\"", "#") and of one with padding and other line ends.
TEST(OtherFiles, AFileOfTiktokenIsNamedWithWhatToDo) {
  for (const char* file : {"IQ== 0\nIg== 1\nIw== 2\nJA== 3\n", "IQ== 0\r\nIg== 1\r\n", "IQ== 0\nIg== 1",
                           "AA== 100\nAAA= 101\nAAAA 102\nbroken"}) {
    EXPECT_THAT(
        MessageFor(file),
        AllOf(HasSubstr("x/t.model: is in tiktoken's format"), HasSubstr("use the tokenizer.json next to it"),
              HasSubstr("TikTokenConverter"), HasSubstr("save('tokenizer.json')\" x/t.model")));
  }
}

TEST(OtherFiles, WhatOnlyLooksAlikeIsNotTiktoken) {
  for (const char* file :
       {"IQ== 0\nIg== 7\n", "IQ== 0", "some words 1\n", "IQ== zero\nIg== one\n", "IQ==0\nIg==1\n", " 0\n 1\n",
        "IQ== 0\nno line\n", "IQ== 99999999999999999999\nIg== 1\n"}) {
    EXPECT_THAT(MessageFor(file),
                HasSubstr("neither a tokenizer.json nor a complete SentencePiece .model file"));
  }
}

TEST(OtherFiles, ANameThatAShellWouldBendIsNotInTheCommand) {
  for (const char* name : {"my file", "a'b", "$(x)", "-x"}) {
    EXPECT_THAT(MessageFor("IQ== 0\nIg== 1\n", name), testing::EndsWith("\" FILE"));
  }
}

TEST(OtherFiles, TekkenIsNamedWithWhatToDo) {
  const std::string file = R"({"config": {"pattern": "a", "version": "v3"},
    "vocab": [{"rank": 0, "token_bytes": "AA==", "token_str": "x"}]})";
  EXPECT_THAT(
      MessageFor(file, "m/tekken.json"),
      AllOf(HasSubstr("m/tekken.json: is in Mistral's tekken format"), testing::EndsWith("converted')\" m")));
  EXPECT_THAT(MessageFor(file, "tekken.json"), testing::EndsWith("converted')\" ."));
}

TEST(OtherFiles, JsonThatLiesBesideATokenizerIsNamed) {
  const std::pair<const char*, const char*> files[] = {
      {R"({"tokenizer_class": "LlamaTokenizer", "eos_token": "</s>"})", "a tokenizer_config.json"},
      {R"({"model_type": "llama", "vocab_size": 3, "bos_token_id": 1})", "a model's config.json"},
      {R"({"hello": 0, "world": 1})", "a vocab.json (tokens and IDs, without merges or a pattern)"},
      {R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}})", "a special_tokens_map.json"},
      {R"({"eos_token_id": 2, "transformers_version": "4.40"})", "a generation_config.json"},
      {R"({"metadata": {}, "weight_map": {}})", "a model's weight index"},
      {R"({"chat_template": "x"})", "a chat_template.json"},
      {R"({"a": [], "b": 1})", "it has no 'model' (but a, b)"},
      {"{}", "it has no 'model' (but nothing)"},
      {"[1]", "it is not an object"},
  };
  for (const auto& [json, name] : files) {
    EXPECT_THAT(MessageFor(json, "t.json"), AllOf(HasSubstr("t.json: is not a tokenizer.json"),
                                                  HasSubstr(name), HasSubstr("use the tokenizer.json")));
  }
}

TEST(OtherFiles, AFolderTellsWhatIsThereInstead) {
  const std::string folder = absl::StrCat(testing::TempDir(), "/other_files_test");
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const auto message = [&] {
    const auto tokenizer = Tokenizer::Load(folder);
    EXPECT_EQ(ExitCodeFor(tokenizer.status()), ExitCode::kUsage);
    return std::string(tokenizer.status().message());
  };
  EXPECT_EQ(message(),
            absl::StrCat(folder, ": the folder contains neither tokenizer.json nor tokenizer.model"));
  ASSERT_TRUE(WriteFileAtomic(absl::StrCat(folder, "/vocab.json"), "{}").ok());
  ASSERT_TRUE(WriteFileAtomic(absl::StrCat(folder, "/tokenizer_config.json"), "{}").ok());
  EXPECT_EQ(message(),
            absl::StrCat(folder, ": the folder contains neither tokenizer.json nor tokenizer.model"));
  ASSERT_TRUE(WriteFileAtomic(absl::StrCat(folder, "/merges.txt"), "").ok());
  EXPECT_THAT(message(), testing::EndsWith(absl::StrCat("save_pretrained('converted')\" ", folder)));
  ASSERT_TRUE(WriteFileAtomic(absl::StrCat(folder, "/tekken.json"), "{}").ok());
  ASSERT_TRUE(WriteFileAtomic(absl::StrCat(folder, "/tokenizer.model.v3"), "").ok());
  EXPECT_THAT(
      message(),
      testing::EndsWith("specify the file itself (the folder contains: tekken.json, tokenizer.model.v3)"));
  std::filesystem::create_directories(absl::StrCat(folder, "/snapshots"));
  EXPECT_THAT(message(), HasSubstr("specify one of the folders in its snapshots/"));
  std::filesystem::remove_all(folder);
}

TEST(OtherFiles, WhatDownloadsLeaveIsNamed) {
  const std::pair<const char*, const char*> files[] = {
      {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "git lfs pull"},
      {"<!DOCTYPE html>\n<html>", "a web page"},
      {"\n<html><body>", "a web page"},
      {"GGUF\x03", "a GGUF model"},
      {"#version: 0.2\na b\n", "a merges.txt"},
      {"PK\x03\x04rest", "a zip archive"},
      {"", "t: is empty"},
  };
  for (const auto& [bytes, name] : files) EXPECT_THAT(MessageFor(bytes, "t"), HasSubstr(name));
}

}  // namespace
}  // namespace trainctl::tokenizer
