// Documents that a run keeps: equal to what was read, never those of other files.
#include "data/kept_documents.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include "base/folder_entries.h"
#include "base/status.h"
#include "data/batch_source.h"
#include "tests/unit/data/data_test_util.h"
#include "tokenizer/tokenizer.h"

namespace trainctl::data {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

struct Document {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> learn;
  bool operator==(const Document&) const = default;
};

std::vector<Document> DocumentsOf(const DocumentStore& store) {
  std::vector<Document> documents;
  EXPECT_TRUE(store.CheckUnchanged().ok());
  for (int64_t i = 0; i < store.num_documents(); ++i) {
    const auto count = static_cast<size_t>(store.DocumentTokens(i));
    Document document = {std::vector<int32_t>(count), std::vector<uint8_t>(count)};
    const absl::Status status =
        store.Read(i, 0, store.DocumentTokens(i), document.tokens.data(), document.learn.data());
    EXPECT_TRUE(status.ok()) << status;
    documents.push_back(std::move(document));
  }
  return documents;
}

class KeptDocumentsTest : public DataTest {
 protected:
  std::string Folder() const { return Path("kept"); }

  // With prompts and without, empty, and longer than a piece.
  recipe::DataSource Prompted() const {
    const std::string lines =
        "{\"q\":\"ab \",\"text\":\"a b\"}\n{\"q\":\"\",\"text\":\"\"}\n{\"q\":\"b\",\"text\":\"" +
        std::string(200'000, 'a') + "\"}\n";
    recipe::DataSource source = Source({Write("a.jsonl", lines), Write("b.jsonl", lines)});
    source.prompt_field = "q";
    return source;
  }

  std::vector<Document> Open(const recipe::DataSource& source, int64_t vocab, KeptDocuments* kept,
                             const std::string& tokenizer_file = "") {
    HowToRead how = {.tokenizer_file = tokenizer_file, .kept = kept};
    std::unique_ptr<tokenizer::Tokenizer> tokenizer;
    if (!tokenizer_file.empty()) tokenizer = *tokenizer::Tokenizer::Load(tokenizer_file);
    how.tokenizer = tokenizer.get();
    bytes_read_ = 0;
    how.bytes_read = [this](int64_t bytes) { bytes_read_ += bytes; };
    const auto store = OpenDocuments(source, vocab, how);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? DocumentsOf(**store) : std::vector<Document>();
  }

  // Reads the source and keeps it.
  void Keep(const recipe::DataSource& source, int64_t vocab, const std::string& tokenizer_file = "") {
    KeptDocuments kept(Folder(), 1);
    Open(source, vocab, &kept, tokenizer_file);
    const absl::Status status = kept.Write(Folder());
    ASSERT_TRUE(status.ok()) << status;
  }

  std::vector<Document> OpenKept(const recipe::DataSource& source, int64_t vocab,
                                 const std::string& tokenizer_file = "") {
    KeptDocuments kept(Folder(), 1);
    return Open(source, vocab, &kept, tokenizer_file);
  }

  int64_t bytes_read_ = 0;  // of data files, by the last Open
};

TEST_F(KeptDocumentsTest, AreThoseOfTheFilesAndTheFilesAreNotReadAgain) {
  const std::string tokenizer = WriteTokenizer("tokenizer.json");
  const recipe::DataSource source = Prompted();
  for (const auto& [file, vocab] :
       std::vector<std::pair<std::string, int64_t>>{{"", 256}, {"", 50'000}, {tokenizer, 6}}) {
    const std::vector<Document> expected = Open(source, vocab, nullptr, file);
    EXPECT_GT(bytes_read_, 0);
    ASSERT_THAT(expected, SizeIs(6));
    EXPECT_EQ(expected[0].learn[0], 0);
    EXPECT_EQ(expected[0].learn.back(), 1);
    EXPECT_THAT(expected[1].tokens, IsEmpty());
    Keep(source, vocab, file);
    EXPECT_EQ(OpenKept(source, vocab, file), expected) << file << vocab;
    EXPECT_EQ(bytes_read_, 0);
  }
  // What the last one does not use is gone: one group, with its prompts.
  EXPECT_THAT(FolderEntries(Folder()), SizeIs(4));
}

TEST_F(KeptDocumentsTest, ATextThatIsTokenizedIsKeptToo) {
  const std::string tokenizer = WriteTokenizer("tokenizer.json");
  const recipe::DataSource source = Source({Write("a.txt", "ab a"), Write("b.txt", "b b")});
  const std::vector<Document> expected = Open(source, 6, nullptr, tokenizer);
  Keep(source, 6, tokenizer);
  EXPECT_EQ(OpenKept(source, 6, tokenizer), expected);
  EXPECT_EQ(bytes_read_, 0);
  EXPECT_THAT(FolderEntries(Folder()), SizeIs(3)) << "there are no prompts";
}

TEST_F(KeptDocumentsTest, AnotherFileFieldTokenizerOrVocabularyIsReadAnew) {
  const std::string tokenizer = WriteTokenizer("tokenizer.json");
  const recipe::DataSource source = Prompted();
  Keep(source, 256);
  EXPECT_EQ(OpenKept(source, 257), Open(source, 257, nullptr));
  EXPECT_EQ(OpenKept(source, 256, tokenizer), Open(source, 256, nullptr, tokenizer));
  recipe::DataSource other = source;
  other.prompt_field = "";
  EXPECT_EQ(OpenKept(other, 256), Open(other, 256, nullptr));
  other = source;
  other.files.pop_back();
  EXPECT_EQ(OpenKept(other, 256), Open(other, 256, nullptr));

  Keep(source, 256, tokenizer);
  Write("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 1, "b": 0, "ab": 2}, "merges": []}})");
  EXPECT_EQ(OpenKept(source, 256, tokenizer), Open(source, 256, nullptr, tokenizer));
}

TEST_F(KeptDocumentsTest, AFileThatWasWrittenToIsReadAnew) {
  const recipe::DataSource source = Source({Write("a.jsonl", "{\"text\":\"one\"}\n")});
  Keep(source, 256);
  Write("a.jsonl", "{\"text\":\"two\"}\n");
  // At a time of its own, however coarse the disk's clock is.
  const timespec later[2] = {{.tv_sec = 2'000'000'000, .tv_nsec = 0},
                             {.tv_sec = 2'000'000'000, .tv_nsec = 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, source.files[0].c_str(), later, 0), 0);
  EXPECT_EQ(OpenKept(source, 256)[0].tokens, (std::vector<int32_t>{'t', 'w', 'o'}));
}

TEST_F(KeptDocumentsTest, ADamagedPartIsReadAnew) {
  const recipe::DataSource source = Prompted();
  const std::vector<Document> expected = Open(source, 256, nullptr);
  for (const char* suffix : {".bin", ".idx", ".prompts", ".json"}) {
    for (const bool removed : {false, true}) {
      Keep(source, 256);
      for (const std::string& entry : FolderEntries(Folder())) {
        if (!entry.ends_with(suffix)) continue;
        if (removed) {
          ASSERT_EQ(::unlink((Folder() + "/" + entry).c_str()), 0);
          continue;
        }
        std::fstream file(Folder() + "/" + entry, std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(40);
        file.put('\x55');
      }
      EXPECT_EQ(OpenKept(source, 256), expected) << suffix;
      EXPECT_GT(bytes_read_, 0) << suffix;
    }
  }
}

TEST_F(KeptDocumentsTest, AFileThatChangedWhileItWasReadIsNotKept) {
  const recipe::DataSource source = Source({Write("a.jsonl", "{\"text\":\"one\"}\n")});
  KeptDocuments kept("", 1);
  Open(source, 256, &kept);
  Write("a.jsonl", "{\"text\":\"longer\"}\n");
  EXPECT_EQ(ExitCodeFor(kept.Write(Folder())), ExitCode::kBadData);
  EXPECT_THAT(FolderEntries(Folder()), IsEmpty());
}

// The launcher opens the data to count an epoch, and again to check it.
TEST_F(KeptDocumentsTest, WhatOneObjectHasReadIsNotReadAgain) {
  const recipe::DataSource source =
      Source({Write("a.jsonl", "{\"text\":\"one\"}\nbad\n{\"text\":\"<s>\"}\n")});
  recipe::Recipe recipe = MakeRecipe({source}, 1, 2, 6);
  recipe.data.tokenizer = WriteTokenizer("t.json");
  recipe.data.on_bad_line = "skip";
  KeptDocuments kept("", 1);
  const auto open = [&] {
    bytes_read_ = 0;
    return OpenData(recipe, {.progress = [this](int64_t done_bytes, int64_t) { bytes_read_ = done_bytes; },
                             .kept = &kept});
  };
  const auto first = open();
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_GT(bytes_read_, 0);
  const int64_t bytes_to_write = kept.BytesToWrite();
  const auto second = open();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(bytes_read_, 0);
  EXPECT_EQ(kept.BytesToWrite(), bytes_to_write);
  EXPECT_THAT(second->left_out, testing::ElementsAre(testing::HasSubstr("a.jsonl:2")));
  EXPECT_EQ(second->left_out, first->left_out);
  EXPECT_THAT(second->own_starts, testing::HasSubstr("1 document begins with <s>"));
  EXPECT_TRUE(*second->train->Get(0, {0, 1}) == *first->train->Get(0, {0, 1}));
}

TEST_F(KeptDocumentsTest, OnlyWhatTakesLongIsKept) {
  const recipe::DataSource small = Source({Write("a.jsonl", "{\"text\":\"one\"}\n")});
  std::string line = "{\"text\":\"" + std::string(1000, 'x') + "\"}\n";
  std::string lines;
  while (static_cast<int64_t>(lines.size()) < KeptDocuments::kMinBytes) lines += line;
  const recipe::DataSource large = Source({Write("large.jsonl", lines)});
  KeptDocuments kept;
  Open(small, 256, &kept);
  EXPECT_EQ(kept.BytesToWrite(), 0);
  Open(large, 256, &kept);
  const int64_t expected_bytes =
      static_cast<int64_t>(lines.size()) / static_cast<int64_t>(line.size()) * 1028;
  EXPECT_EQ(kept.BytesToWrite(), expected_bytes);
  ASSERT_TRUE(kept.Write(Folder()).ok());
  EXPECT_EQ(kept.BytesToWrite(), 0);
}

}  // namespace
}  // namespace trainctl::data
