// Text and JSONL sources: what becomes of a file's bytes, and which files are refused.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <thread>

#include "base/status.h"
#include "data/batch_source.h"
#include "data/document_store.h"
#include "data/document_text.h"
#include "data/earlier_end.h"
#include "tests/unit/data/data_test_util.h"

namespace trainctl::data {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

struct Tokens {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> learn;
};

Tokens ReadDocument(const DocumentStore& store, int64_t document) {
  const int64_t count = store.DocumentTokens(document);
  Tokens out{std::vector<int32_t>(static_cast<size_t>(count)),
             std::vector<uint8_t>(static_cast<size_t>(count))};
  const absl::Status status = store.Read(document, 0, count, out.tokens.data(), out.learn.data());
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

using Documents = DataTest;

TEST_F(Documents, ATextFileIsADocumentOfItsBytes) {
  const std::string bytes("\0a\xff\n", 4);
  const auto store = OpenDocuments(Source({Write("a.txt", bytes), Write("empty", ""), Write("b", "b")}), 256);
  ASSERT_TRUE(store.ok()) << store.status();
  ASSERT_EQ((*store)->num_documents(), 3);
  EXPECT_EQ(ReadDocument(**store, 0).tokens, (std::vector<int32_t>{0, 'a', 255, '\n'}));
  EXPECT_EQ((*store)->DocumentTokens(1), 0);
  EXPECT_EQ(ReadDocument(**store, 2).tokens, (std::vector<int32_t>{'b'}));
}

TEST_F(Documents, AVocabularyAbove256EndsEachDocumentWithAToken) {
  const std::string jsonl = "{\"text\":\"xy\"}\n{\"text\":\"\"}\n";
  const auto store =
      OpenDocuments(Source({Write("a.txt", "ab"), Write("e.txt", ""), Write("c.jsonl", jsonl)}), 257);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ(ReadDocument(**store, 0).tokens, (std::vector<int32_t>{'a', 'b', 256}));
  EXPECT_EQ((*store)->DocumentTokens(1), 0) << "an empty document stays empty";
  EXPECT_EQ(ReadDocument(**store, 2).tokens, (std::vector<int32_t>{'x', 'y', 256}));
  EXPECT_EQ((*store)->DocumentTokens(3), 0);
  // In pieces too: the last byte, the end alone.
  int32_t token;
  uint8_t learn;
  for (const auto& [document, byte] : std::vector<std::pair<int64_t, int32_t>>{{0, 'b'}, {2, 'y'}}) {
    ASSERT_TRUE((*store)->Read(document, 1, 1, &token, &learn).ok());
    EXPECT_EQ(token, byte);
    ASSERT_TRUE((*store)->Read(document, 2, 1, &token, &learn).ok());
    EXPECT_EQ(token, 256);
  }
}

TEST_F(Documents, ALongTextFileIsReadInPieces) {
  std::string text;
  for (int i = 0; i < 100000; ++i) text.push_back(static_cast<char>(i * 7 + i / 256));
  const auto store = OpenDocuments(Source({Write("a.txt", text)}), 256);
  ASSERT_TRUE(store.ok());
  const Tokens read = ReadDocument(**store, 0);
  for (size_t i = 0; i < text.size(); ++i) ASSERT_EQ(read.tokens[i], static_cast<uint8_t>(text[i]));
}

TEST_F(Documents, JsonlDecodesEscapesAndPassesOverBlankLines) {
  const auto store = OpenDocuments(
      Source({Write("a.jsonl", "{\"id\":1,\"text\":\"a\\n\\u00e9\"}\r\n\n  \n{\"text\":\"b\"}")}), 256);
  ASSERT_TRUE(store.ok()) << store.status();
  ASSERT_EQ((*store)->num_documents(), 2);
  EXPECT_EQ(ReadDocument(**store, 0).tokens, (std::vector<int32_t>{'a', '\n', 0xc3, 0xa9}));
  EXPECT_EQ(ReadDocument(**store, 1).tokens, (std::vector<int32_t>{'b'}));
}

TEST_F(Documents, APromptComesFirstAndIsNotLearned) {
  recipe::DataSource source =
      Source({Write("a.jsonl", "{\"q\":\"ab\",\"a\":\"xyz\"}\n{\"q\":\"\",\"a\":\"w\"}\n")});
  source.text_field = "a";
  source.prompt_field = "q";
  const auto store = OpenDocuments(source, 300);
  ASSERT_TRUE(store.ok()) << store.status();
  const Tokens read = ReadDocument(**store, 0);
  EXPECT_EQ(read.tokens, (std::vector<int32_t>{'a', 'b', 'x', 'y', 'z', 256}));
  EXPECT_EQ(read.learn, (std::vector<uint8_t>{0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(ReadDocument(**store, 1).learn, (std::vector<uint8_t>{1, 1}));
}

TEST_F(Documents, AFileWithOtherFieldNamesIsAnErrorThatListsThem) {
  const auto says = [&](const std::string& line) {
    return std::string(OpenDocuments(Source({Write("a.jsonl", line)}), 300).status().message());
  };
  EXPECT_THAT(
      says(R"({"prompt": "a", "n": [{"x": 1}], "completion": "b"})"),
      EndsWith(
          "a.jsonl:1: field 'text' is missing; the line has 'prompt', 'n', 'completion'. Name the "
          "fields to read (in a recipe: text_field and prompt_field; on the command line: --text-field and "
          "--prompt-field)"));
  EXPECT_THAT(says(R"({"messages": []})"),
              EndsWith("the line has 'messages'. Conversations must be rendered to text first "
                       "(docs/guide/finetune.md)"));
}

TEST_F(Documents, APromptThatIsNotReadIsNoted) {
  recipe::DataSource source = Source({Write("a.jsonl", R"({"text": "b", "prompt": "a"})"
                                                       "\n")});
  recipe::Recipe recipe = MakeRecipe({source}, 1, 10, 300);
  EXPECT_THAT(CheckData(recipe).notes, testing::Contains(EndsWith("set prompt_field = \"prompt\"")));
  recipe.data.train[0].prompt_field = "prompt";
  EXPECT_THAT(CheckData(recipe).notes, testing::Not(testing::Contains(HasSubstr("prompt_field"))));
}

TEST_F(Documents, OtherEncodingsAreRefusedByNameAndAByteOrderMarkIsNoText) {
  const std::vector<int32_t> expected = {'h', 'i', 256};
  const std::string line = "{\"text\":\"hi\"}\n";
  for (const std::string& file : {Write("bom.txt", "\xef\xbb\xbfhi"), Write("plain.txt", "hi"),
                                  Write("bom.jsonl", "\xef\xbb\xbf" + line), Write("plain.jsonl", line)}) {
    const auto store = OpenDocuments(Source({file}), 300);
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_EQ((*store)->DocumentTokens(0), 3) << file;
    EXPECT_EQ(ReadDocument(**store, 0).tokens, expected) << file;
  }
  EXPECT_EQ(*ReadText(Path("bom.txt")), "hi");
  EXPECT_EQ(*ReadText(Write("mark.txt", "\xef\xbb\xbf")), "");
  const std::vector<std::pair<std::string, std::string>> others = {
      {std::string("\xff\xfeh\0i\0", 6), "UTF-16"},
      {std::string("\xfe\xff\0h\0i", 6), "UTF-16"},
      {std::string("\xff\xfe\0\0h\0\0\0", 8), "UTF-32"},
      {std::string("\0\0\xfe\xff\0\0\0h", 8), "UTF-32"}};
  for (const auto& [bytes, name] : others) {
    for (const char* file : {"other.txt", "other.jsonl"}) {
      const absl::Status status = OpenDocuments(Source({Write(file, bytes)}), 300).status();
      EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData) << status;
      EXPECT_THAT(status.message(), HasSubstr(absl::StrCat(file, " is ", name, " text")));
    }
    EXPECT_FALSE(ReadText(Path("other.txt")).ok());
  }
  const auto says = [&](const std::string& bytes) {
    return std::string(OpenDocuments(Source({Write("a.jsonl", bytes)}), 300).status().message());
  };
  EXPECT_THAT(says(std::string("{\0\"\0", 4)),
              HasSubstr("a.jsonl:1: the line contains NUL bytes, as UTF-16"));
  EXPECT_THAT(says("\n[" + line + "]"), HasSubstr("a.jsonl:2: the file is a JSON array"));
  EXPECT_THAT(says("[\n" + line + "]"), HasSubstr("a.jsonl:1: the file is a JSON array"));
  EXPECT_THAT(says("[1]"), HasSubstr("a.jsonl:1: each line must be a JSON object"));
}

TEST_F(Documents, TheLossMaskOfABatchLeavesPromptsOut) {
  recipe::DataSource source = Source({Write("a.jsonl", "{\"prompt\":\"abc\",\"text\":\"xy\"}\n")});
  source.prompt_field = "prompt";
  for (const char* packing : {"documents", "continuous"}) {
    recipe::Recipe recipe = MakeRecipe({source}, 1, 10, 256);
    recipe.data.packing = packing;
    const auto train = OpenTrainSource(recipe);
    ASSERT_TRUE(train.ok()) << train.status();
    const auto batch = (*train)->Get(0, {0, 1});
    ASSERT_TRUE(batch.ok()) << batch.status();
    // a b c x y a b c x y: only x and y are targets that count.
    EXPECT_EQ(batch->loss_mask, (std::vector<uint8_t>{0, 0, 1, 1, 0, 0, 0, 1, 1, 0})) << packing;
  }
}

// A rendered chat has the tokens around a text already.
TEST_F(Documents, WhatATokenizerPutsAroundATextIsThereOnce) {
  recipe::DataSource source = Source({Write("a.jsonl",
                                            "{\"q\":\"<s>a\",\"text\":\"b</s>\"}\n"
                                            "{\"q\":\"a\",\"text\":\"b\"}\n"
                                            "{\"q\":\"\",\"text\":\"<s>\"}\n")});
  source.prompt_field = "q";
  recipe::Recipe recipe = MakeRecipe({source}, 1, 10, 6);
  recipe.data.tokenizer = WriteTokenizer("t.json");
  recipe.data.shuffle = false;
  const DataReport report = CheckData(recipe);
  EXPECT_THAT(report.problems, testing::IsEmpty());
  EXPECT_THAT(report.notes, testing::Contains("2 documents begin with <s>, which the tokenizer also adds "
                                              "before a text; each document gets it only once"));
  EXPECT_THAT(report.notes, testing::Contains(HasSubstr("in 2 of 3 documents a token spans the end of the "
                                                        "prompt and the beginning of the text")));
  EXPECT_EQ(report.end_of_document, "</s>");
  const auto batch = (*OpenTrainSource(recipe))->Get(0, {0, 1});
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(batch->tokens, (std::vector<int32_t>{4, 2, 5, 4, 2, 5, 4, 5, 0, 0}));
  EXPECT_EQ(batch->loss_mask, (std::vector<uint8_t>{1, 1, 0, 1, 1, 0, 1, 0, 0, 0}));

  recipe::Recipe repeats = recipe;
  repeats.data.train = {Source({Write("b.jsonl",
                                      "{\"text\":\"<s><s>ab\"}\n{\"text\":\" <s>ab\"}\n{\"text\":\"<s>ab\"}\n"
                                      "{\"text\":\"abab<s>\"}\n")})};
  EXPECT_THAT(
      CheckData(repeats).notes,
      testing::Contains("2 documents begin with <s>, which the tokenizer also adds before a text; it is not "
                        "added to them again; 2 documents have <s> more than once at the beginning; "
                        "remove it from the text, because the tokenizer adds it"));

  recipe.data.end_of_document = "none";
  EXPECT_EQ((*OpenTrainSource(recipe))->Get(0, {0, 1})->tokens,
            (std::vector<int32_t>{4, 2, 5, 4, 2, 4, 0, 0, 0, 0}))
      << "what a text says itself stays";
  recipe.data.end_of_document = "x";
  ASSERT_EQ(CheckData(recipe).problems.size(), 1u);
  EXPECT_THAT(CheckData(recipe).problems[0].message(),
              HasSubstr("data.end_of_document: the tokenizer has no"));
}

// A run that began before data.end_of_document was stored continues with the token that it has trained on.
TEST_F(Documents, AnEarlierRunKeepsTheEndOfItsDocuments) {
  recipe::DataConfig stored;
  stored.tokenizer = WriteTokenizer("t.json");
  stored.train = {Source({Write("a.jsonl", "{\"text\":\"ab\"}\n")})};
  const auto kept = [&](const recipe::DataConfig& data, std::vector<std::string>* notes = nullptr) {
    recipe::DataConfig now = data;
    const std::vector<std::string> said = KeepEarlierEnd(now);
    if (notes != nullptr) *notes = said;
    return now.end_of_document;
  };
  std::vector<std::string> notes;
  EXPECT_EQ(kept(stored, &notes), "</s>");
  EXPECT_THAT(notes, testing::ElementsAre(
                         "this run was started by an earlier version of trainctl: a text that already begins "
                         "or ends with <s> used to get it twice and now gets it only once"));
  // What the file next to the tokenizer says was not looked at.
  Write("tokenizer_config.json", "{\"eos_token\": \"ab\"}");
  EXPECT_EQ(kept(stored, &notes), "</s>");
  EXPECT_THAT(
      notes,
      testing::Contains(HasSubstr(
          "its documents still end with </s>; in a new run, data.end_of_document = \"auto\" means ab")));
  recipe::Recipe recipe = MakeRecipe(stored.train, 1, 4, 6);
  recipe.data.tokenizer = stored.tokenizer;
  const auto tokens = [&] { return (*OpenTrainSource(recipe))->Get(0, {0, 1})->tokens; };
  EXPECT_EQ(tokens(), (std::vector<int32_t>{4, 2, 4, 2})) << "ab ends a document, and it has one";
  KeepEarlierEnd(recipe.data);
  EXPECT_EQ(tokens(), (std::vector<int32_t>{4, 2, 5, 4}));

  stored.train = {Source({WriteIndexed("a", {{1, 2}})})};
  EXPECT_EQ(kept(stored, &notes), "</s>");
  EXPECT_THAT(notes, testing::IsEmpty()) << "the tokens are in the files";
  for (const char* own : {"none", "<s>"}) {
    stored.end_of_document = own;
    EXPECT_EQ(kept(stored), own) << "what a run of this version has stored";
  }
  stored.end_of_document = "auto";
  stored.tokenizer = "byte";
  EXPECT_EQ(kept(stored), "auto");
  stored.tokenizer = Path("gone.json");
  EXPECT_EQ(kept(stored), "auto") << "opening the data says what is wrong";
}

TEST_F(Documents, EachBadLineIsNamedWithItsFile) {
  struct Case {
    std::string contents;
    const char* message;
  };
  const std::string good = "{\"text\":\"fine\"}\n";
  for (const Case& c : std::vector<Case>{
           {good + "{\"text\":\"cut", "a.jsonl:2:"},
           {good + good + "[1]\n" + good, "a.jsonl:3: each line must be a JSON object"},
           {"{\"txt\":\"x\"}\n", "a.jsonl:1: field 'text' is missing"},
           {good + "\n{\"text\":5}\n", "a.jsonl:3:9: field 'text' is not a string"},
           {good + "{\"text\":\"\xff\"}\n", "a.jsonl:2:"},
           {good + std::string("\0\0\0\n", 4), "a.jsonl:2:1: not valid JSON"},
           {good + "{\"text\": \"caf\xe9\"}\n", "a.jsonl:2:14: not valid UTF-8 (byte 0xE9)"},
           {good + std::string(1000, '[') + "\n", "a.jsonl:2"},
           {good + "{\"text\":\"x\",\"n\":1 2}\n", "a.jsonl:2:19: not valid JSON"},
           {good + "{\"text\":\"x\",\"n\":[1}}\n", "a.jsonl:2:19: not valid JSON"},
           {good + "{\"text\":\"x\",\"n\":}\n", "a.jsonl:2:17: not valid JSON"},
           {good + "{\"text\":\"x\",}\n", "a.jsonl:2:13: not valid JSON"},
           {good + "{\"text\":\"x\"} y\n", "a.jsonl:2:14: not valid JSON"},
           {good + "{\"text\":\"\\ud83d\"}\n", "a.jsonl:2:"},
           {good + "{\"text\":\"x\",\"text\":\"y\"}\n", "a.jsonl:2:13: key 'text' occurs twice"},
       }) {
    const absl::Status status = OpenDocuments(Source({Write("a.jsonl", c.contents)}), 256).status();
    EXPECT_THAT(status.message(), HasSubstr(c.message));
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData);
  }
  recipe::DataSource prompt = Source({Write("a.jsonl", good)});
  prompt.prompt_field = "question";
  EXPECT_THAT(OpenDocuments(prompt, 256).status().message(), HasSubstr("a.jsonl:1: field 'question'"));
}

// As json.loads of Python takes them.
TEST_F(Documents, OddFieldsThatAreNotReadDoNotMatter) {
  std::string deep(500, '[');
  deep += std::string(500, ']');
  std::string lines;
  int64_t num_lines = 0;
  for (const std::string& odd :
       {std::string("NaN"), std::string("-Infinity"), std::string("1e999"), std::string("\"\\ud83d\""), deep,
        std::string("1,\"n\":2"), std::string("123456789012345678901234567890"),
        std::string("{\"a\":[null,{}]}"), std::string("\"a \\\" } ] , text\"")}) {
    absl::StrAppend(&lines, "{\"n\":", odd, ", \"te\\u0078t\" : \"ab\", \"m\": ", odd, "}\n");
    ++num_lines;
  }
  const auto documents = OpenDocuments(Source({Write("a.jsonl", lines)}), 257);
  ASSERT_TRUE(documents.ok()) << documents.status();
  ASSERT_EQ((*documents)->num_documents(), num_lines);
  for (int64_t i = 0; i < num_lines; ++i) {
    std::vector<int32_t> tokens(2);
    std::vector<uint8_t> learn(2);
    ASSERT_TRUE((*documents)->Read(i, 0, 2, tokens.data(), learn.data()).ok());
    EXPECT_EQ(tokens, (std::vector<int32_t>{'a', 'b'})) << i;
  }
}

TEST_F(Documents, KindsFollowTheNameOrTheSource) {
  recipe::DataSource source;
  EXPECT_EQ(*KindOfFile(source, "x/a.bin"), SourceKind::kIndexed);
  EXPECT_EQ(*KindOfFile(source, "x/a.idx"), SourceKind::kIndexed);
  EXPECT_EQ(*KindOfFile(source, "x/a.JSONL"), SourceKind::kJsonl);
  EXPECT_EQ(*KindOfFile(source, "x/vector"), SourceKind::kText);
  EXPECT_EQ(*KindOfFile(source, "a.jsonl.gz"), SourceKind::kJsonl);
  EXPECT_EQ(*KindOfFile(source, "a.TXT.ZST"), SourceKind::kText);
  EXPECT_EQ(*KindOfFile(source, "a.Parquet"), SourceKind::kParquet);
  // Files in the cache of a hub have names like these.
  EXPECT_EQ(*KindOfFile(source, Write("8f3a", "PAR1....")), SourceKind::kParquet);
  EXPECT_EQ(*KindOfFile(source, Write("8f3b", "PAR")), SourceKind::kText);
  for (const char* name : {"a.json.gz", "a.json", "a.tar.gz"}) {
    EXPECT_EQ(ExitCodeFor(KindOfFile(source, name).status()), ExitCode::kUsage) << name;
  }
  source.kind = "text";
  EXPECT_EQ(*KindOfFile(source, "a.json"), SourceKind::kText);
  source.kind = "texts";
  EXPECT_THAT(KindOfFile(source, "a").status().message(), HasSubstr("'texts'"));
}

TEST_F(Documents, GitLfsPointersAreRefusedWhateverTheirKind) {
  const auto expect_refused = [&](const std::string& opened, const std::string& named, const char* kind) {
    recipe::DataSource source = Source({opened});
    source.kind = kind;
    const absl::Status status = OpenDocuments(source, 256).status();
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData) << named << ": " << status;
    EXPECT_THAT(status.message(), AllOf(HasSubstr(named), HasSubstr("git lfs pull")));
  };
  for (const char* name : {"t.txt", "t.txt.gz", "x.jsonl", "x.jsonl.zst"}) {
    const std::string path = Write(name, kLfsPointer);
    expect_refused(path, path, "auto");
  }
  expect_refused(Path("x.jsonl"), Path("x.jsonl"), "text");
  const std::string data = WriteIndexed("d", {{1, 2}, {3}});
  const std::string index = Write("d.idx", kLfsPointer);
  expect_refused(data, index, "auto");
  WriteIndexed("d", {{1, 2}, {3}});
  Write("d.bin", kLfsPointer);
  expect_refused(index, data, "auto");
  // A text that only looks like one.
  const std::string text = kLfsPointer + std::string(1024, 'x');
  const auto store = OpenDocuments(Source({Write("t.txt", text)}), 256);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->DocumentTokens(0), static_cast<int64_t>(text.size()));
}

TEST_F(Documents, AnIndexedDatasetNamedTwiceCountsOnce) {
  WriteIndexed("d", {{1, 2}, {3}});
  const auto store = OpenDocuments(Source({Path("d.bin"), Path("d.idx")}), 256);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->num_documents(), 2);
}

TEST_F(Documents, PromptsAreForJsonlOnly) {
  recipe::DataSource source = Source({Write("a.txt", "text")});
  source.prompt_field = "prompt";
  EXPECT_EQ(ExitCodeFor(OpenDocuments(source, 256).status()), ExitCode::kUsage);
}

TEST_F(Documents, MissingFilesFoldersPipesAndEmptySourcesAreErrors) {
  const auto error = [&](const std::string& file) {
    return OpenTrainSource(MakeRecipe({Source({file})}, 1, 4)).status();
  };
  EXPECT_THAT(error(Path("none.txt")).message(), HasSubstr("no such data file: " + Path("none.txt")));
  EXPECT_EQ(ExitCodeFor(error(Path("none.txt"))), ExitCode::kBadData);
  EXPECT_THAT(error(Path(".")).message(), HasSubstr("is a folder"));
  for (const char* name : {"pipe.txt", "pipe.jsonl", "pipe.bin"}) {
    ASSERT_EQ(::mkfifo(Path(name).c_str(), 0600), 0);  // opening it would wait for a writer
    EXPECT_THAT(error(Path(name)).message(), HasSubstr("not a regular file"));
  }
  EXPECT_THAT(error(Write("e.txt", "")).message(), HasSubstr("contains no tokens in 1 document"));
  EXPECT_THAT(error(Write("e.jsonl", "\n")).message(), HasSubstr("contains no tokens"));
  EXPECT_EQ(ExitCodeFor(OpenTrainSource(MakeRecipe({}, 1, 4)).status()), ExitCode::kUsage);
  EXPECT_EQ(ExitCodeFor(OpenTrainSource(MakeRecipe({Source({})}, 1, 4)).status()), ExitCode::kUsage);
  if (::geteuid() != 0) {
    const std::string secret = Write("secret.txt", "x");
    ::chmod(secret.c_str(), 0);
    EXPECT_EQ(ExitCodeFor(error(secret)), ExitCode::kEnvironment);
  }
}

TEST_F(Documents, AFileThatChangesItsSizeUnderTheRunIsAnError) {
  std::vector<int32_t> long_document(100000, 7);
  for (const std::string& file :
       {WriteIndexed("d", {long_document}), Write("t.txt", std::string(100000, 'x'))}) {
    const auto source = OpenTrainSource(MakeRecipe({Source({file})}, 8, 1000));
    ASSERT_TRUE(source.ok()) << source.status();
    EXPECT_TRUE((*source)->Get(0, {0, 8}).ok());
    // Whole pages go: reading them through the map would be SIGBUS.
    std::filesystem::resize_file(file, 10);
    const absl::Status status = (*source)->Get(1, {0, 8}).status();
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData) << status;
    EXPECT_THAT(status.message(), HasSubstr(file));
    EXPECT_THAT(status.message(), HasSubstr("now has 10"));
  }
  WriteIndexed("i", {long_document});
  const auto source = OpenTrainSource(MakeRecipe({Source({Path("i.bin")})}, 8, 1000));
  ASSERT_TRUE(source.ok());
  std::filesystem::resize_file(Path("i.idx"), 10);
  EXPECT_THAT((*source)->Get(0, {0, 8}).status().message(), HasSubstr("i.idx"));
}

TEST_F(Documents, AnIndexOverwrittenUnderTheRunIsAnErrorNotACrash) {
  std::vector<std::vector<int32_t>> documents(50, std::vector<int32_t>(100, 7));
  for (const char fill : {'\0', '\x7f', '\xff'}) {
    const std::string file = WriteIndexed("d", documents);
    const auto source = OpenTrainSource(MakeRecipe({Source({file})}, 8, 64));
    ASSERT_TRUE(source.ok()) << source.status();
    ASSERT_TRUE((*source)->Get(0, {0, 8}).ok());
    std::fstream index(Path("d.idx"), std::ios::binary | std::ios::in | std::ios::out);
    const auto bytes = std::filesystem::file_size(Path("d.idx"));
    index.seekp(34);
    index << std::string(bytes - 34, fill);
    index.close();
    for (int64_t step = 0; step < 20; ++step) {
      const auto batch = (*source)->Get(step, {0, 8});
      EXPECT_EQ(ExitCodeFor(batch.status()), ExitCode::kBadData) << batch.status();
    }
  }
}

TEST_F(Documents, ATokenOutsideTheVocabularyNamesItsPlace) {
  const std::string file = WriteIndexed("d", {{1, 2, 3}, {4, 99, 6}});
  const auto source = OpenTrainSource(MakeRecipe({Source({file})}, 1, 6, 50));
  ASSERT_TRUE(source.ok());
  const absl::Status status = (*source)->Get(0, {0, 1}).status();
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData);
  EXPECT_THAT(status.message(),
              HasSubstr("d.bin: document 1, position 1: token 99 is outside the vocabulary of 50"));
}

TEST_F(Documents, ASourceMayHaveMoreFilesThanAProcessMayOpen) {
  std::vector<std::string> files;
  for (int i = 0; i < 3000; ++i) files.push_back(Write(absl::StrCat("f", i), "ab"));
  const auto source = OpenTrainSource(MakeRecipe({Source(files)}, 1, 5999, 256));
  ASSERT_TRUE(source.ok()) << source.status();
  const auto batch = (*source)->Get(0, {0, 1});
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(batch->document.back(), 2999);
}

}  // namespace
}  // namespace trainctl::data
