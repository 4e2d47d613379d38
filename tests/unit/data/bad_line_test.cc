// One odd line of JSONL among 500 good ones. It does no harm if only unread fields are odd; else it is named
// or left out.
#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "data/batch_source.h"
#include "data/document_store.h"
#include "data/kept_documents.h"
#include "data/prepare.h"
#include "tests/unit/data/data_test_util.h"

namespace trainctl::data {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

constexpr int kOddLine = 400;

std::string Contents(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

struct BadLine {
  std::string line;
  std::string reason;  // the message after "path:400"
};

// Each mistake is in the field "text", which is read, or in the syntax of the line.
std::vector<BadLine> BadLines() {
  return {{"{\"text\":null}", ":9: field 'text' is null"},
          {"{\"text\":5}", ":9: field 'text' is not a string"},
          {"{\"text\":{\"text\":\"a\"}}", ":9: field 'text' is not a string"},
          {"{\"txt\":\"a\"}", ": field 'text' is missing"},
          {"{}", ": field 'text' is missing"},
          {"[\"text\",\"a\"]", ": each line must be a JSON object"},
          {"{\"text\":\"a \\ud83d\"}", ":"},
          {"{\"text\":\"caf\xe9\"}", ":13: not valid UTF-8 (byte 0xE9)"},
          {"{\"text\":\"a\",\"text\":\"a\"}", ":13: key 'text' occurs twice"},
          {"{\"text\":\"a\"", ":12: not valid JSON"},
          {"{\"text\":\"a", ":9: not valid JSON"},
          {"{'text':'a'}", ":2: not valid JSON"},
          {"rubbish", ":1: not valid JSON"},
          {std::string(100'000, '['), ":100001: not valid JSON"},
          // What json.loads of Python refuses in a field that is not read.
          {"{\"text\":\"a\",\"n\":nan}", ":17: not valid JSON"},
          {"{\"text\":\"a\",\"n\":01}", ":18: not valid JSON"},
          {"{\"text\":\"a\",\"n\":1.}", ":19: not valid JSON"},
          {"{\"text\":\"a\",\"n\":-}", ":18: not valid JSON"},
          {"{\"text\":\"a\",\"n\":+1}", ":17: not valid JSON"},
          {"{\"text\":\"a\",\"n\":1e}", ":19: not valid JSON"},
          {"{\"text\":\"a\",\"n\":[1,]}", ":20: not valid JSON"},
          {"{\"text\":\"a\",\"n\":[1 2]}", ":20: not valid JSON"},
          {"{\"text\":\"a\",\"n\":{1:2}}", ":18: not valid JSON"},
          {"{\"text\":\"a\",\"n\":{\"a\"}}", ":21: not valid JSON"},
          {"{\"text\":\"a\",\"n\":\"\\x41\"}", ":19: not valid JSON"},
          {"{\"text\":\"a\",\"n\":\"\\u12\"}", ":22: not valid JSON"},
          {"{\"text\":\"a\",\"n\":\"a\tb\"}", ":19: not valid JSON"}};
}

class BadLineTest : public DataTest {
 protected:
  // 500 good lines with `odd` as line 400; without it if it is empty.
  std::string File(const std::string& name, const std::string& odd) const {
    std::string lines;
    for (int i = 1; i <= 501; ++i) {
      if (i != kOddLine) {
        absl::StrAppend(&lines, "{\"text\":\"b", i, "\"}\n");
      } else if (!odd.empty()) {
        absl::StrAppend(&lines, odd, "\n");
      }
    }
    return Write(name, lines);
  }

  recipe::Recipe RecipeOf(const std::string& file, bool skips = false) const {
    recipe::Recipe recipe = MakeRecipe({Source({file})}, 4, 16, 257);
    recipe.data.on_bad_line = skips ? "skip" : "stop";
    return recipe;
  }

  static std::vector<Batch> BatchesOf(const recipe::Recipe& recipe) {
    const auto source = OpenTrainSource(recipe);
    EXPECT_TRUE(source.ok()) << source.status();
    std::vector<Batch> batches;
    for (int64_t step = 0; source.ok() && step < 50; ++step) batches.push_back(*(*source)->Get(step, {0, 4}));
    return batches;
  }

  PrepareOptions Options(const std::string& file, const std::string& prefix, bool skips = false) const {
    PrepareOptions options;
    options.inputs = {file};
    options.prefix = Path(prefix);
    options.on_bad_line = skips ? "skip" : "stop";
    return options;
  }
};

// json.loads of Python takes each.
TEST_F(BadLineTest, OddFieldsThatAreNotReadDoNotMatter) {
  ASSERT_TRUE(Prepare(Options(File("good.jsonl", "{\"text\":\"odd\"}"), "good")).ok());
  for (const std::string& value :
       {std::string("NaN"), std::string("Infinity"), std::string("-Infinity"), std::string("1e999"),
        std::string("-0.5E-3"), std::string("\"\\ud83d\""), std::string("1,\"n\":2"),
        std::string("123456789012345678901234567890"), std::string("\"\\u0000\""),
        std::string("{\"text\":{\"a\":[ ]},\"b\":{ }}"), std::string(200, '[') + std::string(200, ']'),
        std::string(1'000'000, '[') + std::string(1'000'000, ']')}) {
    const std::string shown = value.substr(0, 40);
    const std::string file = File("a.jsonl", absl::StrCat("{\"n\":", value, ", \"text\":\"odd\"}"));
    const DataReport report = CheckData(RecipeOf(file));
    EXPECT_THAT(report.problems, IsEmpty()) << shown;
    EXPECT_THAT(report.notes, SizeIs(1)) << shown;
    PrepareOptions options = Options(file, "a");
    options.overwrite = true;
    const auto dataset = Prepare(options);
    ASSERT_TRUE(dataset.ok()) << shown << dataset.status();
    EXPECT_EQ(dataset->documents, 501);
    EXPECT_EQ(dataset->left_out.count, 0);
    EXPECT_TRUE(Contents(Path("a.bin")) == Contents(Path("good.bin"))) << shown;
  }
}

TEST_F(BadLineTest, ABadLineStopsWithItsPlaceAndTheWayOut) {
  for (const BadLine& bad : BadLines()) {
    const std::string file = File("a.jsonl", bad.line);
    const std::string place = absl::StrCat(file, ":400", bad.reason);
    const DataReport report = CheckData(RecipeOf(file));
    ASSERT_THAT(report.problems, SizeIs(1)) << bad.reason;
    EXPECT_EQ(ExitCodeFor(report.problems[0]), ExitCode::kBadData);
    const std::string stopped(report.problems[0].message());
    EXPECT_THAT(stopped, StartsWith(place));
    EXPECT_THAT(stopped, EndsWith("; to skip such lines, use data.on_bad_line = \"skip\""));
    const absl::Status prepared = Prepare(Options(file, "a")).status();
    EXPECT_EQ(ExitCodeFor(prepared), ExitCode::kBadData);
    EXPECT_THAT(std::string(prepared.message()), StartsWith(place));
    EXPECT_THAT(std::string(prepared.message()), EndsWith("; to skip such lines, use --on-bad-line skip"));
  }
}

TEST_F(BadLineTest, ASkippedLineIsNamedAndTheOthersAreAsWithoutIt) {
  const std::string good = File("good.jsonl", "");
  const std::vector<Batch> expected = BatchesOf(RecipeOf(good));
  ASSERT_TRUE(Prepare(Options(good, "good")).ok());
  for (const BadLine& bad : BadLines()) {
    const std::string file = File("a.jsonl", bad.line);
    const std::string note = absl::StrCat("1 line skipped: ", file, ":400", bad.reason);
    const recipe::Recipe recipe = RecipeOf(file, true);
    const DataReport report = CheckData(recipe);
    EXPECT_THAT(report.problems, IsEmpty()) << bad.reason;
    EXPECT_THAT(report.notes, Contains(StartsWith(absl::StrCat("data.train[0]: ", note))));
    EXPECT_TRUE(BatchesOf(recipe) == expected) << bad.reason;
    PrepareOptions options = Options(file, "a", true);
    options.overwrite = true;
    const auto dataset = Prepare(options);
    ASSERT_TRUE(dataset.ok()) << bad.reason << dataset.status();
    EXPECT_EQ(dataset->documents, 500);
    EXPECT_THAT(FormatLeftOut(dataset->left_out), StartsWith(note));
    EXPECT_THAT(Contents(Path("a.json")), HasSubstr("\"lines_left_out\": 1"));
    EXPECT_TRUE(Contents(Path("a.bin")) == Contents(Path("good.bin"))) << bad.reason;
    EXPECT_TRUE(Contents(Path("a.idx")) == Contents(Path("good.idx"))) << bad.reason;
  }
}

TEST_F(BadLineTest, TheFirstTenAreNamedAndAllAreCounted) {
  std::string lines;
  for (int i = 1; i <= 13; ++i) absl::StrAppend(&lines, "{\"text\":\"a\"}\n\n[", i, "\n");
  recipe::DataSource source = Source({Write("a.jsonl", lines), Write("b.jsonl", lines)});
  source.name = "web";
  recipe::Recipe recipe = MakeRecipe({source}, 1, 4);
  recipe.data.on_bad_line = "skip";
  recipe::DataSource eval = Source({Write("c.jsonl", "{\"text\":\"ab\"}\n5\n\"x\"\n")});
  eval.name = "held";
  recipe.data.eval = {eval};
  const auto sets = OpenData(recipe);
  ASSERT_TRUE(sets.ok()) << sets.status();
  std::string of_web = "web: 26 lines skipped: ";
  for (int i = 1; i <= 10; ++i) {
    const int column = i < 10 ? 3 : 4;
    absl::StrAppend(&of_web, i > 1 ? "; " : "", Path("a.jsonl"), ":", 3 * i, ":", column, ": not valid JSON");
  }
  EXPECT_THAT(sets->left_out,
              ElementsAre(of_web + "; and 16 more",
                          absl::StrCat("held: 2 lines skipped: ", Path("c.jsonl"),
                                       ":2: each line must be a JSON object; ", Path("c.jsonl"),
                                       ":3: each line must be a JSON object")));
}

TEST_F(BadLineTest, APromptMustBeThereToo) {
  recipe::DataSource source = Source(
      {Write("a.jsonl", "{\"q\":\"a\",\"text\":\"b\"}\n{\"text\":\"b\"}\n{\"q\":[],\"text\":\"b\"}\n")});
  source.prompt_field = "q";
  LeftOutLines left_out;
  const auto store = OpenDocuments(source, 256, {.skip_bad_lines = true, .left_out = &left_out});
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->num_documents(), 1);
  EXPECT_THAT(left_out.first, ElementsAre(Path("a.jsonl") + ":2: field 'q' is missing",
                                          Path("a.jsonl") + ":3:6: field 'q' is not a string"));
}

TEST_F(BadLineTest, AFileOfBadLinesOnlyIsAnError) {
  const std::string file = Write("a.jsonl", "{\"txt\":\"a\"}\n{\"txt\":\"b\"}\n");
  const std::string reason =
      absl::StrCat("2 lines skipped: ", file, ":1: field 'text' is missing; ", file, ":2:");
  const DataReport report = CheckData(RecipeOf(file, true));
  ASSERT_THAT(report.problems, SizeIs(1));
  EXPECT_EQ(ExitCodeFor(report.problems[0]), ExitCode::kBadData);
  EXPECT_THAT(report.problems[0].message(), HasSubstr("data.train[0] has no valid line: " + reason));
  const absl::Status prepared = Prepare(Options(file, "a", true)).status();
  EXPECT_EQ(ExitCodeFor(prepared), ExitCode::kBadData);
  EXPECT_THAT(prepared.message(), HasSubstr("contain no text; " + reason));
}

// A file that is cut off is not a bad line.
TEST_F(BadLineTest, ADamagedFileIsAnErrorAnyway) {
  const std::string file = Write("a.jsonl.gz", std::string("\x1f\x8b\x08\0\0\0\0\0\0\x03", 10) + "rubbish");
  const DataReport report = CheckData(RecipeOf(file, true));
  ASSERT_THAT(report.problems, SizeIs(1));
  EXPECT_THAT(report.problems[0].message(), Not(HasSubstr("skipped")));
}

TEST_F(BadLineTest, AnotherTokenizerThanBytesSkipsTheSameLines) {
  const std::string lines = "{\"text\":\"ab\"}\n{\"text\":7}\n{\"text\":\"ba\"}\n";
  recipe::Recipe recipe = MakeRecipe({Source({Write("a.jsonl", lines)})}, 1, 8, 6);
  recipe.data.tokenizer = WriteTokenizer("t.json");
  recipe.data.shuffle = false;
  EXPECT_THAT(OpenTrainSource(recipe).status().message(), HasSubstr("a.jsonl:2:9"));
  recipe.data.on_bad_line = "skip";
  const auto sets = OpenData(recipe);
  ASSERT_TRUE(sets.ok()) << sets.status();
  EXPECT_THAT(sets->left_out, ElementsAre(HasSubstr("1 line skipped")));
  EXPECT_EQ(sets->train->Get(0, {0, 1})->tokens, (std::vector<int32_t>{4, 2, 5, 4, 1, 0, 5, 4}));
}

TEST_F(BadLineTest, KeptDocumentsAreOfTheSameSetting) {
  const recipe::DataSource source = Source({File("a.jsonl", "rubbish")});
  const auto open = [&](KeptDocuments& kept, bool skips) {
    return OpenDocuments(source, 256, {.kept = &kept, .skip_bad_lines = skips});
  };
  KeptDocuments writer(Path("kept"), 1);
  ASSERT_TRUE(open(writer, true).ok());
  ASSERT_TRUE(writer.Write(Path("kept")).ok());
  KeptDocuments reader(Path("kept"), 1);
  const auto same = open(reader, true);
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ((*same)->num_documents(), 500);
  EXPECT_EQ(reader.BytesToWrite(), 0) << "nothing was read";
  EXPECT_THAT(open(reader, false).status().message(), HasSubstr("a.jsonl:400:1"));
}

}  // namespace
}  // namespace trainctl::data
