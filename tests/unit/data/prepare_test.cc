// Fingerprints, and datasets prepared from text.
#include "data/prepare.h"

#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "base/json.h"
#include "base/status.h"
#include "data/document_store.h"
#include "data/fingerprint.h"
#include "data/prepared_tokenizer.h"
#include "tests/unit/data/data_test_util.h"

namespace trainctl::data {
namespace {

using testing::HasSubstr;

std::string Contents(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

class PrepareTest : public DataTest {
 protected:
  PrepareOptions Options(std::vector<std::string> inputs) {
    PrepareOptions options;
    options.inputs = std::move(inputs);
    options.prefix = Path("out/corpus");
    return options;
  }
  size_t NumOutputs() {
    if (!std::filesystem::exists(Path("out"))) return 0;
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(Path("out"))) ++count;
    return count;
  }
};

std::vector<std::vector<int32_t>> DocumentsOf(const DocumentStore& store) {
  std::vector<std::vector<int32_t>> documents;
  for (int64_t i = 0; i < store.num_documents(); ++i) {
    std::vector<int32_t>& tokens = documents.emplace_back(store.DocumentTokens(i));
    std::vector<uint8_t> learn(tokens.size());
    EXPECT_TRUE(store.Read(i, 0, static_cast<int64_t>(tokens.size()), tokens.data(), learn.data()).ok());
  }
  return documents;
}

// The digests were made with the Python package xxhash 3 (xxhash.xxh3_64_hexdigest).
TEST_F(PrepareTest, FingerprintsAreTheKnownDigests) {
  std::string large;
  for (int i = 0; i < 1000000; ++i) large.push_back(static_cast<char>(i * 7 + i / 256));
  const std::vector<std::pair<std::string, uint64_t>> cases = {
      {"", 0x2d06800538d394c2}, {"hello", 0x9555e8555c62dcfd}, {large, 0xc44da33b7368a321}};
  for (const auto& [contents, digest] : cases) {
    const auto fingerprint = FingerprintFile(Write("f", contents));
    ASSERT_TRUE(fingerprint.ok());
    EXPECT_EQ(fingerprint->xxh3, digest);
    EXPECT_EQ(fingerprint->size_bytes, static_cast<int64_t>(contents.size()));
  }
}

TEST_F(PrepareTest, EveryFileOfTheDataIsFingerprintedOnce) {
  WriteIndexed("d", {{1, 2}});
  recipe::DataConfig data;
  data.train = {Source({Path("d.bin"), Write("t.txt", "hello")})};
  data.eval = {Source({Path("t.txt"), Write("e.jsonl", "{}")})};
  data.eval.emplace_back().holdout = 0.1;
  const auto fingerprints = Fingerprint(data);
  ASSERT_TRUE(fingerprints.ok()) << fingerprints.status();
  std::vector<std::string> names;
  for (const auto& f : *fingerprints) names.push_back(std::filesystem::path(f.path).filename().string());
  EXPECT_EQ(names, (std::vector<std::string>{"d.bin", "d.idx", "t.txt", "e.jsonl"}));
  data.train[0].files.push_back(Path("none"));
  EXPECT_THAT(Fingerprint(data).status().message(), HasSubstr("none"));
}

TEST_F(PrepareTest, APreparedDatasetTrainsLikeItsText) {
  const std::string text = Write("a.txt", "some text");
  const std::string jsonl =
      Write("b.jsonl", "{\"text\":\"one\"}\n{\"text\":\"\"}\n{\"text\":\"two \\u00e9\"}\n");
  for (const bool end_of_document : {false, true}) {
    PrepareOptions options = Options({text, jsonl, Write("empty.txt", "")});
    options.end_of_document = end_of_document;
    options.overwrite = true;
    const auto dataset = Prepare(options);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ(dataset->documents, 3);
    EXPECT_EQ(dataset->tokens, 9 + 3 + 6 + (end_of_document ? 3 : 0));

    // Without the empty documents, both ways give the same tokens in the same order.
    const int64_t vocab = end_of_document ? 257 : 256;
    recipe::Recipe from_text = MakeRecipe({Source({text, jsonl})}, 2, 7, vocab);
    recipe::Recipe from_index = MakeRecipe({Source({Path("out/corpus.bin")})}, 2, 7, vocab);
    from_text.data.shuffle = from_index.data.shuffle = false;
    for (int64_t step = 0; step < 5; ++step) {
      const auto a = (*OpenTrainSource(from_text))->Get(step, {0, 2});
      const auto b = (*OpenTrainSource(from_index))->Get(step, {0, 2});
      ASSERT_TRUE(a.ok() && b.ok());
      EXPECT_TRUE(*a == *b);
    }
  }
}

TEST_F(PrepareTest, TheReportSaysWhereTheTokensCameFrom) {
  const std::string text = Write("a.txt", "hello");
  const auto dataset = Prepare(Options({text}));
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const auto json = ParseJson(Contents(Path("out/corpus.json")), "corpus.json");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ((*json)["schema"], "trainctl.dataset.v1");
  EXPECT_EQ((*json)["tokens"], 5);
  EXPECT_EQ((*json)["dtype"], "uint8");
  EXPECT_EQ((*json)["vocab"], 256);
  EXPECT_EQ((*json)["sources"][0]["path"], text);
  EXPECT_EQ((*json)["sources"][0]["xxh3"], "9555e8555c62dcfd");
  EXPECT_EQ((*json)["data"]["xxh3"], "9555e8555c62dcfd") << "bytes are the tokens";
  EXPECT_EQ(NumOutputs(), 3u);
}

TEST_F(PrepareTest, ProgressEndsAtAllBytes) {
  int64_t last = 0, total = 0;
  PrepareOptions options = Options({Write("a.txt", std::string(700000, 'x')), Write("b.txt", "yy")});
  options.progress = [&](int64_t done_bytes, int64_t total_bytes) {
    EXPECT_GT(done_bytes, last);
    last = done_bytes;
    total = total_bytes;
  };
  ASSERT_TRUE(Prepare(options).ok());
  EXPECT_EQ(last, 700002);
  EXPECT_EQ(total, 700002);
}

TEST_F(PrepareTest, MarkersInATextAreNoted) {
  PrepareOptions options =
      Options({Write("a.txt", "One.\n[EOS]\nTwo."), Write("b.jsonl", "{\"text\":\"</s>\"}\n")});
  std::vector<std::string> notes;
  options.note = [&](absl::string_view line) { notes.emplace_back(line); };
  ASSERT_TRUE(Prepare(options).ok());
  EXPECT_THAT(notes, testing::ElementsAre(HasSubstr("the text contains [EOS] (once, in ")));
}

TEST_F(PrepareTest, BadInputLeavesNoFileBehind) {
  const std::string good = Write("a.txt", "hello");
  struct Case {
    std::vector<std::string> inputs;
    ExitCode code;
    const char* message;
  };
  for (const Case& c : std::vector<Case>{
           {{good, Write("b.jsonl", "{\"text\":\"x\"}\nrubbish\n")}, ExitCode::kBadData, "b.jsonl:2:1"},
           {{good, Path("none.txt")}, ExitCode::kUsage, "none.txt"},
           {{good, Path(".")}, ExitCode::kUsage, "is a folder"},
           {{Write("e.txt", "")}, ExitCode::kBadData, "contain no text"},
           {{good, Write("p.txt", kLfsPointer)}, ExitCode::kBadData, "git lfs pull"},
           {{good, Write("p.jsonl", kLfsPointer)}, ExitCode::kBadData, "git lfs pull"},
           {{Path("x.bin")}, ExitCode::kUsage, "already tokenized"},
           {{good, Write("x.parquet", "x")}, ExitCode::kBadData, "does not begin with PAR1"},
           {{good, Write("p.parquet", kLfsPointer)}, ExitCode::kBadData, "git lfs pull"},
           {{}, ExitCode::kUsage, "no input"},
       }) {
    const absl::Status status = Prepare(Options(c.inputs)).status();
    EXPECT_EQ(ExitCodeFor(status), c.code) << status;
    EXPECT_THAT(status.message(), HasSubstr(c.message));
    EXPECT_EQ(NumOutputs(), 0u);
  }
  PrepareOptions options = Options({good});
  options.tokenizer = "bpe";
  EXPECT_EQ(ExitCodeFor(Prepare(options).status()), ExitCode::kUsage);
  options.tokenizer = "byte";
  options.prefix = Path("a.txt/x");
  EXPECT_EQ(ExitCodeFor(Prepare(options).status()), ExitCode::kEnvironment);
}

TEST_F(PrepareTest, ATokenizersTokensAreThoseOfItsTextAtAnyNumberOfThreads) {
  std::string lines = "{\"text\":\"\"}\n";
  for (int i = 0; i < 2000; ++i) {
    const std::string start = i % 2 == 0 ? "<s>" : "";
    lines += "{\"text\":\"" + start + std::string(static_cast<size_t>(i % 700), 'a') + "b a</s>\"}\n";
  }
  const std::string large(300000, 'b');  // more than a batch of documents
  const std::vector<std::string> inputs = {Write("a.txt", "ab a"), Write("b.jsonl", lines),
                                           Write("c.txt", large), Write("empty.txt", "")};
  const std::string tokenizer = WriteTokenizer("tokenizer.json");
  std::string expected;
  for (const int threads : {1, 2, 5}) {
    PrepareOptions options = Options(inputs);
    options.tokenizer = tokenizer;
    options.end_of_document = true;
    options.num_threads = threads;
    options.overwrite = true;
    const auto dataset = Prepare(options);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ(dataset->vocab, 6);
    EXPECT_EQ(dataset->token_type, TokenType::kU16);
    EXPECT_EQ(dataset->documents, 2002);
    EXPECT_EQ(dataset->sources[1].documents, 2000);
    EXPECT_EQ(dataset->sources[0].tokens, 5);
    EXPECT_EQ(dataset->sources[2].tokens, 300002);
    EXPECT_EQ(dataset->tokenizer_file.xxh3, FingerprintFile(tokenizer)->xxh3);
    EXPECT_EQ(Json::parse(DatasetJson(*dataset))["tokenizer_file"]["path"], tokenizer);
    const std::string data = Contents(Path("out/corpus.bin")) + Contents(Path("out/corpus.idx"));
    if (expected.empty()) expected = data;
    EXPECT_TRUE(data == expected) << threads;
  }
  // As the text itself is read in a recipe, but for its empty documents.
  const auto prepared = OpenIndexedDocuments(Path("out/corpus"), 6);
  const auto loaded = tokenizer::Tokenizer::Load(tokenizer);
  const auto direct = OpenDocuments(Source(inputs), 6, {.tokenizer = loaded->get()});
  ASSERT_TRUE(prepared.ok() && direct.ok()) << direct.status();
  std::vector<std::vector<int32_t>> from_text = DocumentsOf(**direct);
  from_text.erase(std::remove_if(from_text.begin(), from_text.end(), [](const auto& d) { return d.empty(); }),
                  from_text.end());
  EXPECT_EQ(DocumentsOf(**prepared), from_text);
  EXPECT_EQ(from_text[0], (std::vector<int32_t>{4, 2, 3, 0, 5}));
  EXPECT_EQ(from_text[1], (std::vector<int32_t>{4, 1, 3, 0, 5}));  // it has <s> and </s> already
}

TEST_F(PrepareTest, ARecipesTokenizerMustBeTheOneOfItsData) {
  const std::string tokenizer = WriteTokenizer("tokenizer.json");
  PrepareOptions options = Options({Write("a.txt", "ab a b ab")});
  options.tokenizer = tokenizer;
  ASSERT_TRUE(Prepare(options).ok());
  recipe::Recipe recipe = MakeRecipe({Source({Path("out/corpus.bin")})}, 1, 3, 8);
  recipe.data.tokenizer = tokenizer;
  EXPECT_TRUE(OpenTrainSource(recipe).ok()) << OpenTrainSource(recipe).status();
  // The same bytes under another name are the same tokenizer.
  recipe.data.tokenizer = Write("same.json", Contents(tokenizer));
  EXPECT_TRUE(OpenTrainSource(recipe).ok());
  recipe.data.tokenizer = Write("other.json", Contents(tokenizer) + " ");
  for (const absl::Status& status : {OpenTrainSource(recipe).status(), OpenEvalSets(recipe).status()}) {
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kUsage) << status;
    EXPECT_THAT(status.message(), HasSubstr("other.json"));
    EXPECT_THAT(status.message(), HasSubstr("was prepared with '" + tokenizer + "'"));
  }
  // A recipe that names none is not asked.
  recipe.data.tokenizer = "byte";
  EXPECT_TRUE(OpenTrainSource(recipe).ok());
  // Bytes are no tokens of a tokenizer's.
  options.tokenizer = "byte";
  options.overwrite = true;
  ASSERT_TRUE(Prepare(options).ok());
  recipe = MakeRecipe({Source({Path("out/corpus.idx")})}, 1, 3, 256);
  recipe.data.tokenizer = tokenizer;
  EXPECT_THAT(OpenTrainSource(recipe).status().message(), HasSubstr("was prepared with 'byte'"));
  // What says nothing of this data file is passed over: of another size, damaged, not there.
  const std::string report = Contents(Path("out/corpus.json"));
  for (const std::string& other :
       {std::string("{}"), std::string("[1,"), report.substr(0, report.size() / 2)}) {
    Write("out/corpus.json", other);
    EXPECT_TRUE(OpenTrainSource(recipe).ok()) << other;
  }
  std::string of_another = report;
  of_another.replace(of_another.find("\"bytes\": 9"), 10, "\"bytes\": 8");
  Write("out/corpus.json", of_another);
  EXPECT_TRUE(OpenTrainSource(recipe).ok());
  Write("out/corpus.json", report);
  EXPECT_FALSE(OpenTrainSource(recipe).ok());
  std::filesystem::remove(Path("out/corpus.json"));
  EXPECT_TRUE(OpenTrainSource(recipe).ok());
}

TEST_F(PrepareTest, TheEndOfPreparedDocumentsIsFound) {
  recipe::DataConfig data;
  data.tokenizer = WriteTokenizer("tokenizer.json");
  data.train = {Source({WriteIndexed("differ", {{0, 5}, {1, 4}}), WriteIndexed("plain", {{0}, {3, 0}}),
                        WriteIndexed("same", {{0, 5}, {1, 5}, {}, {2, 0, 5}}), Write("a.txt", "ab</s>")})};
  const auto tokenizer = tokenizer::Tokenizer::Load(data.tokenizer);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const std::vector<PreparedEnd> ends = FindPreparedEnds(data, **tokenizer);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].file, Path("same.bin"));
  EXPECT_EQ(ends[0].id, 5);
}

TEST_F(PrepareTest, TheReportBesideADatasetIsNotAGitLfsPointer) {
  PrepareOptions options = Options({Write("a.txt", "ab a b ab")});
  ASSERT_TRUE(Prepare(options).ok());
  const recipe::Recipe recipe = MakeRecipe({Source({Path("out/corpus.bin")})}, 1, 3, 256);
  EXPECT_TRUE(OpenTrainSource(recipe).ok()) << OpenTrainSource(recipe).status();
  Write("out/corpus.json", kLfsPointer);
  const absl::Status status = OpenTrainSource(recipe).status();
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData) << status;
  EXPECT_THAT(status.message(), HasSubstr("corpus.json is a Git LFS pointer"));
}

// "ab a" alone would fit into fewer ids: what a later document holds is not known when a run begins.
TEST_F(PrepareTest, PreparedIdsMustFitTheModelBeforeTheFirstStep) {
  PrepareOptions options = Options({Write("a.txt", "ab a b ab")});
  options.tokenizer = WriteTokenizer("tokenizer.json");
  const auto prepared = Prepare(options);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  recipe::Recipe recipe = MakeRecipe({Source({Path("out/corpus.bin")})}, 1, 3, 8);
  recipe.model.spec.vocab = prepared->vocab;
  EXPECT_TRUE(OpenTrainSource(recipe).ok()) << OpenTrainSource(recipe).status();
  recipe.model.spec.vocab = prepared->vocab - 1;
  for (const absl::Status& status : {OpenTrainSource(recipe).status(), OpenEvalSets(recipe).status()}) {
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kUsage) << status;
    EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("set model.vocab = ", prepared->vocab, " or more")));
  }
  // Of a set without a report nothing is known.
  std::filesystem::remove(Path("out/corpus.json"));
  EXPECT_TRUE(OpenTrainSource(recipe).ok());
}

TEST_F(PrepareTest, APromptsTokensAreReadAndNotLearned) {
  recipe::DataSource source =
      Source({Write("p.jsonl", "{\"q\":\"ab\",\"text\":\"b a\"}\n{\"q\":\"\",\"text\":\"a\"}\n")});
  source.prompt_field = "q";
  const auto loaded = tokenizer::Tokenizer::Load(WriteTokenizer("tokenizer.json"));
  const auto store = OpenDocuments(source, 6, {.tokenizer = loaded->get()});
  ASSERT_TRUE(store.ok()) << store.status();
  std::vector<int32_t> tokens(6);
  std::vector<uint8_t> learn(6);
  ASSERT_EQ((*store)->DocumentTokens(0), 6);
  ASSERT_TRUE((*store)->Read(0, 0, 6, tokens.data(), learn.data()).ok());
  EXPECT_EQ(tokens, (std::vector<int32_t>{4, 2, 1, 3, 0, 5}));
  EXPECT_EQ(learn, (std::vector<uint8_t>{0, 0, 1, 1, 1, 1}));
  ASSERT_TRUE((*store)->Read(1, 0, 3, tokens.data(), learn.data()).ok());
  EXPECT_EQ(learn[0], 1);
}

// Prompt and text are one text: "a" and "b" are the token "ab", which is the text's, and the space that the
// tokenizer puts before a text is not put between them.
TEST_F(PrepareTest, APromptAndItsTextAreTokenizedAsOneText) {
  recipe::DataSource source =
      Source({Write("p.jsonl", "{\"q\":\"b a\",\"text\":\"b b\"}\n{\"q\":\"a\",\"text\":\"\"}\n")});
  source.prompt_field = "q";
  std::string file = Contents(WriteTokenizer("plain.json", false));
  file.replace(file.find("\"add_prefix_space\": false"), 25, "\"add_prefix_space\": true");
  const auto loaded = tokenizer::Tokenizer::Load(Write("tokenizer.json", file));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const auto store = OpenDocuments(source, 6, {.tokenizer = loaded->get()});
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ(DocumentsOf(**store), (std::vector<std::vector<int32_t>>{{3, 1, 3, 2, 3, 1, 5}, {3, 0, 5}}));
  std::vector<int32_t> tokens(7);
  std::vector<uint8_t> learn(7);
  ASSERT_TRUE((*store)->Read(0, 0, 7, tokens.data(), learn.data()).ok());
  EXPECT_EQ(learn, (std::vector<uint8_t>{0, 0, 0, 1, 1, 1, 1}));
  learn.resize(3);
  ASSERT_TRUE((*store)->Read(1, 0, 3, tokens.data(), learn.data()).ok());
  EXPECT_EQ(learn, (std::vector<uint8_t>{0, 0, 1}));
}

// "x" has no tokens: such a document gets no end of its own, wherever it stands, whatever the one before ends
// with.
TEST_F(PrepareTest, ADocumentWithoutTokensIsNoneAtAnyPlace) {
  const std::string tokenizer = WriteTokenizer("tokenizer.json", false);
  const auto loaded = tokenizer::Tokenizer::Load(tokenizer);
  const std::vector<int32_t> a = {0, 5};
  const std::vector<int32_t> b = {1, 5};
  struct Case {
    std::vector<std::string> texts;
    std::vector<std::vector<int32_t>> documents;
  };
  for (const Case& c :
       std::vector<Case>{{{"x", "a", "b"}, {a, b}}, {{"a", "x", "b"}, {a, b}}, {{"a", "b", "x"}, {a, b}}}) {
    std::string lines;
    for (const std::string& text : c.texts) lines += "{\"text\":\"" + text + "\"}\n";
    PrepareOptions options = Options({Write("a.jsonl", lines)});
    options.tokenizer = tokenizer;
    options.end_of_document = true;
    options.overwrite = true;
    const auto dataset = Prepare(options);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ(DocumentsOf(**OpenIndexedDocuments(Path("out/corpus"), 6)), c.documents) << c.texts[0];
    const auto direct = OpenDocuments(Source(options.inputs), 6, {.tokenizer = loaded->get()});
    ASSERT_TRUE(direct.ok()) << direct.status();
    std::vector<std::vector<int32_t>> from_text = DocumentsOf(**direct);
    EXPECT_EQ(from_text.size(), 3U);
    from_text.erase(
        std::remove_if(from_text.begin(), from_text.end(), [](const auto& d) { return d.empty(); }),
        from_text.end());
    EXPECT_EQ(from_text, c.documents) << c.texts[0];
  }
}

TEST_F(PrepareTest, WhatIsReadIsNeverReplaced) {
  const std::string text = Write("a.txt", "ab a");
  std::filesystem::create_directory(Path("out"));
  const std::string tokenizer = WriteTokenizer("out/corpus.json");
  const std::string before = Contents(tokenizer);
  PrepareOptions options = Options({text});
  options.overwrite = true;
  options.tokenizer = Path("out/../out/corpus.json");
  absl::Status status = Prepare(options).status();
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kUsage) << status;
  EXPECT_THAT(status.message(), HasSubstr("corpus.json, an input of this command"));
  EXPECT_EQ(Contents(tokenizer), before);
  options.tokenizer = "byte";
  options.kind = "text";
  options.inputs = {text, Path("input")};
  std::filesystem::create_symlink(Path("a.txt"), Path("out/corpus.bin"));
  status = Prepare(options).status();
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kUsage) << "no such file as yet: " << status;
  Write("input", "more");
  status = Prepare(options).status();
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kUsage) << status;
  EXPECT_THAT(status.message(), HasSubstr("a.txt, an input of this command"));
  EXPECT_EQ(Contents(text), "ab a");
}

TEST_F(PrepareTest, WhatExistsIsReplacedOnlyWhenAsked) {
  PrepareOptions options = Options({Write("a.txt", "hello")});
  ASSERT_TRUE(Prepare(options).ok());
  options.inputs = {Write("b.txt", "other")};
  EXPECT_THAT(Prepare(options).status().message(), HasSubstr("corpus.bin exists"));
  EXPECT_EQ(Contents(Path("out/corpus.bin")), "hello");
  options.overwrite = true;
  ASSERT_TRUE(Prepare(options).ok());
  EXPECT_EQ(Contents(Path("out/corpus.bin")), "other");
}

}  // namespace
}  // namespace trainctl::data
