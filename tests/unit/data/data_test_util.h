// A folder of its own per test, and recipes over files written there.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/batch_source.h"
#include "data/indexed_writer.h"
#include "recipe/recipe.h"

namespace trainctl::data {

inline const std::string kLfsPointer =
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";

class DataTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "trainctl-data-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }

  std::string Write(const std::string& name, const std::string& contents) const {
    std::ofstream(Path(name), std::ios::binary) << contents;
    return Path(name);
  }

  // "a" 0, "b" 1, "ab" 2, a space 3; <s> (4) before each text, </s> (5) ends a document. Nothing else is a
  // token. Without <s>, a text of other characters has no tokens.
  std::string WriteTokenizer(const std::string& name, bool with_prefix = true) const {
    return Write(name, R"({"added_tokens": [{"id": 4, "content": "<s>", "normalized": false, "special": true},
        {"id": 5, "content": "</s>", "normalized": false, "special": true}],
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "decoder": {"type": "ByteLevel"},
      "post_processor": {"type": "TemplateProcessing", "single": [)" +
                           std::string(with_prefix ? R"({"SpecialToken": {"id": "<s>"}},)" : "") +
                           R"( {"Sequence": {"id": "A"}}], "special_tokens": {"<s>": {"ids": [4]}}},
      "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "\u0120": 3}, "merges": ["a b"]}})");
  }

  // An indexed dataset; returns the path of its .bin.
  std::string WriteIndexed(const std::string& name,
                           const std::vector<std::vector<int32_t>>& documents) const {
    auto writer = IndexedWriter::Create(Path(name), TokenType::kI32);
    EXPECT_TRUE(writer.ok()) << writer.status();
    for (const auto& document : documents) {
      EXPECT_TRUE((*writer)->Append(document).ok());
      (*writer)->EndDocument();
    }
    const absl::Status finished = (*writer)->Finish();
    EXPECT_TRUE(finished.ok()) << finished;
    return Path(name) + ".bin";
  }

  // Documents of the given lengths whose tokens tell where they come from: document * 1000 + position.
  std::string WriteTagged(const std::string& name, const std::vector<int>& lengths,
                          int first_document = 0) const {
    std::vector<std::vector<int32_t>> documents;
    for (size_t i = 0; i < lengths.size(); ++i) {
      std::vector<int32_t> document;
      for (int p = 0; p < lengths[i]; ++p) {
        document.push_back((first_document + static_cast<int>(i)) * 1000 + p);
      }
      documents.push_back(document);
    }
    return WriteIndexed(name, documents);
  }

  static recipe::DataSource Source(std::vector<std::string> files) {
    recipe::DataSource source;
    source.files = std::move(files);
    return source;
  }

  static recipe::Recipe MakeRecipe(std::vector<recipe::DataSource> train, int64_t batch_sequences,
                                   int64_t seq_len, int64_t vocab = 1 << 30) {
    recipe::Recipe recipe;
    recipe.run.seed = 17;
    recipe.model.spec.vocab = vocab;
    recipe.data.seq_len = seq_len;
    recipe.data.train = std::move(train);
    recipe.train.batch_sequences = batch_sequences;
    return recipe;
  }

 private:
  std::filesystem::path folder_;
};

inline bool operator==(const Batch& a, const Batch& b) {
  return a.tokens == b.tokens && a.targets == b.targets && a.positions == b.positions &&
         a.document == b.document && a.loss_mask == b.loss_mask && a.num_sequences == b.num_sequences &&
         a.seq_len == b.seq_len;
}

}  // namespace trainctl::data
