#include "data/whole_sequences.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "base/status.h"
#include "tests/unit/data/data_test_util.h"

namespace trainctl::data {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class WholeSequencesTest : public DataTest {
 protected:
  // Returns a recipe with documents whose tokens are document * 1000 + position.
  recipe::Recipe RecipeOf(const std::vector<int>& lengths, int64_t batch_sequences, int64_t seq_len) {
    recipe::Recipe recipe = MakeRecipe({Source({WriteTagged("a", lengths)})}, batch_sequences, seq_len);
    recipe.data.packing = "whole";
    return recipe;
  }

  static Batch MustGet(const BatchSource& source, int64_t step, SequenceRange which) {
    absl::StatusOr<Batch> batch = source.Get(step, which);
    EXPECT_TRUE(batch.ok()) << batch.status();
    return batch.ok() ? *std::move(batch) : Batch{};
  }

  // The documents of each row, in order; checks that each is there from its first token to its last, and what
  // a batch says of it.
  static std::vector<std::vector<int>> WholeDocuments(const Batch& batch, const std::vector<int>& lengths) {
    std::vector<std::vector<int>> rows;
    for (int64_t row = 0; row < batch.num_sequences; ++row) {
      std::vector<int>& documents = rows.emplace_back();
      size_t at = static_cast<size_t>(row * batch.seq_len);
      const size_t end = at + static_cast<size_t>(batch.seq_len);
      while (at < end && (batch.loss_mask[at] != 0 || batch.tokens[at] != 0)) {
        const int document = batch.tokens[at] / 1000;
        const int length = lengths[static_cast<size_t>(document)];
        EXPECT_LE(at + static_cast<size_t>(length), end);
        for (int p = 0; p < length && at < end; ++p, ++at) {
          const bool is_last = p + 1 == length;
          EXPECT_EQ(batch.tokens[at], document * 1000 + p);
          EXPECT_EQ(batch.positions[at], p);
          EXPECT_EQ(batch.document[at], static_cast<int>(documents.size()));
          EXPECT_EQ(batch.loss_mask[at], is_last ? 0 : 1);
          EXPECT_EQ(batch.targets[at], is_last ? 0 : document * 1000 + p + 1);
        }
        documents.push_back(document);
      }
      for (int p = 0; at < end; ++p, ++at) {  // padding, as a separate document
        EXPECT_EQ(batch.loss_mask[at], 0);
        EXPECT_EQ(batch.tokens[at], 0);
        EXPECT_EQ(batch.positions[at], p);
        EXPECT_EQ(batch.document[at], static_cast<int>(documents.size()));
      }
    }
    return rows;
  }
};

TEST_F(WholeSequencesTest, EveryEpochHasEachDocumentOnceAndWhole) {
  std::mt19937 random(5);
  std::vector<int> lengths(300);
  for (int& length : lengths) length = 2 + static_cast<int>(random() % 60);
  const int total = std::accumulate(lengths.begin(), lengths.end(), 0);
  recipe::Recipe recipe = RecipeOf(lengths, 1, 64);
  const auto sets = OpenData(recipe);
  ASSERT_TRUE(sets.ok()) << sets.status();
  ASSERT_EQ(sets->placements.size(), 1u);
  const double used = sets->placements[0].used_share;
  const int64_t epoch = std::llround(total / used / 64);
  // No placement of these lengths needs fewer than 151 (bound L2 of Martello and Toth, 1990); in the order of
  // the documents they would take 201.
  EXPECT_GE(epoch, 151);
  EXPECT_LE(epoch, 154);

  std::vector<std::vector<std::vector<int>>> epochs(3);
  for (int64_t number = 0; number < 3 * epoch; ++number) {
    const auto rows = WholeDocuments(MustGet(*sets->train, number, {0, 1}), lengths);
    epochs[static_cast<size_t>(number / epoch)].push_back(rows[0]);
  }
  for (const auto& rows : epochs) {
    std::multiset<int> seen;
    for (const auto& row : rows) seen.insert(row.begin(), row.end());
    EXPECT_EQ(seen.size(), lengths.size());
    EXPECT_EQ(std::set<int>(seen.begin(), seen.end()).size(), lengths.size());
  }
  EXPECT_NE(epochs[0], epochs[1]);
  // Not only the order of the sequences: which documents share one changes too.
  auto contents = [](std::vector<std::vector<int>> rows) {
    for (auto& row : rows) std::sort(row.begin(), row.end());
    std::sort(rows.begin(), rows.end());
    return rows;
  };
  EXPECT_NE(contents(epochs[0]), contents(epochs[1]));
}

TEST_F(WholeSequencesTest, WithoutShufflingDocumentsComeInTheirOrder) {
  const std::vector<int> lengths = {3, 9, 5, 7, 2};
  recipe::Recipe recipe = RecipeOf(lengths, 4, 10);
  recipe.data.shuffle = false;
  const auto source = OpenTrainSource(recipe);
  ASSERT_TRUE(source.ok()) << source.status();
  // 9 | 7 + 3 | 5 + 2, and the second epoch begins.
  EXPECT_THAT(WholeDocuments(MustGet(**source, 0, {0, 4}), lengths),
              ElementsAre(ElementsAre(0, 3), ElementsAre(1), ElementsAre(2, 4), ElementsAre(0, 3)));
  EXPECT_THAT(WholeDocuments(MustGet(**source, 1, {1, 2}), lengths),
              ElementsAre(ElementsAre(2, 4), ElementsAre(0, 3)));
}

TEST_F(WholeSequencesTest, LongerDocumentsAreLeftOutOrCutAndCounted) {
  const std::vector<int> lengths = {4, 12, 5, 11};
  recipe::Recipe recipe = RecipeOf(lengths, 3, 10);
  recipe.data.shuffle = false;
  const DataReport left_out = CheckData(recipe);
  EXPECT_THAT(left_out.problems, IsEmpty());
  EXPECT_THAT(left_out.notes, Contains("data.train[0]: 2 documents packed whole; 2 longer than 10 tokens "
                                       "skipped; 90.0 % of each sequence is used"));
  const auto source = OpenTrainSource(recipe);
  EXPECT_THAT(WholeDocuments(MustGet(**source, 0, {0, 1}), lengths), ElementsAre(ElementsAre(0, 2)));

  recipe.data.long_documents = "cut";
  EXPECT_THAT(CheckData(recipe).notes, Contains("data.train[0]: 2 documents packed whole; 2 longer than 10 "
                                                "tokens truncated; 96.7 % of each sequence is used"));
  const Batch cut = MustGet(**OpenTrainSource(recipe), 0, {0, 3});
  EXPECT_EQ(cut.tokens[10], 1000);
  EXPECT_EQ(cut.tokens[19], 1009);
  EXPECT_EQ(cut.targets[18], 1009);
  EXPECT_EQ(cut.loss_mask[19], 0);  // its target was cut off

  recipe.data.long_documents = "skip";
  recipe.data.seq_len = 3;
  const DataReport none = CheckData(recipe);
  ASSERT_EQ(none.problems.size(), 1u);
  EXPECT_EQ(ExitCodeFor(none.problems[0]), ExitCode::kBadData);
  EXPECT_THAT(none.problems[0].message(), HasSubstr("all 4 documents have more than data.seq_len = 3"));
  EXPECT_THAT(none.problems[0].message(), HasSubstr("the longest has 12"));
}

// In a stream of such samples, half of the completions begin a sequence, and their prompt is in the one
// before.
TEST_F(WholeSequencesTest, ACompletionAlwaysHasItsPrompt) {
  std::string lines;
  for (int i = 0; i < 60; ++i) {
    lines +=
        "{\"prompt\":\"" + std::string(50, 'p') + "\",\"text\":\"" + std::string(20 + i % 7, 'c') + "\"}\n";
  }
  recipe::DataSource source = Source({Write("a.jsonl", lines)});
  source.prompt_field = "prompt";
  recipe::Recipe recipe = MakeRecipe({source}, 12, 128, 257);
  ASSERT_EQ(recipe.data.packing, "auto");
  const auto count_orphans = [&recipe] {
    int orphans = 0;
    const auto train = OpenTrainSource(recipe);
    for (int64_t step = 0; step < 5; ++step) {
      const Batch batch = MustGet(**train, step, {0, 12});
      for (size_t row = 0; row < 12; ++row) orphans += batch.tokens[row * 128] == 'c' ? 1 : 0;
    }
    return orphans;
  };
  EXPECT_EQ(count_orphans(), 0);
  recipe.data.packing = "documents";
  EXPECT_GT(count_orphans(), 10);
}

TEST_F(WholeSequencesTest, SourcesWithoutPromptsKeepTheirStreamAndEvaluationHasBoth) {
  std::string lines;
  for (int i = 0; i < 40; ++i) lines += "{\"prompt\":\"pp\",\"text\":\"ccc\"}\n";
  recipe::DataSource answers = Source({Write("a.jsonl", lines)});
  answers.prompt_field = "prompt";
  std::vector<std::string> books;
  for (int i = 0; i < 20; ++i) books.push_back(Write("book" + std::to_string(i), std::string(40, 'b')));
  recipe::Recipe recipe = MakeRecipe({answers, Source(books)}, 8, 16, 257);
  recipe.data.train[0].holdout = recipe.data.train[1].holdout = 0.25;
  recipe.train.eval_batches = 1000;
  const auto sets = OpenData(recipe);
  ASSERT_TRUE(sets.ok()) << sets.status();
  // Two samples of 6 tokens in a sequence of 16, and 205 tokens of books: 5 of 13.
  ASSERT_EQ(sets->eval.size(), 1u);
  ASSERT_EQ(sets->eval[0].num_batches, 3);
  int samples = 0, book_tokens = 0, padding_rows = 0;
  for (int64_t step = 0; step < 3; ++step) {
    const Batch batch = MustGet(*sets->eval[0].source, step, {0, 8});
    for (size_t row = 0; row < 8; ++row) {
      const auto begin = batch.tokens.begin() + static_cast<std::ptrdiff_t>(row * 16);
      samples += static_cast<int>(std::count(begin, begin + 16, 'p')) / 2;
      book_tokens += static_cast<int>(std::count(begin, begin + 16, 'b'));
      padding_rows += std::count(begin, begin + 16, 0) == 16 ? 1 : 0;
      if (*begin == 'c') ADD_FAILURE() << "a completion without its prompt";
    }
  }
  EXPECT_EQ(samples, 10);
  EXPECT_EQ(book_tokens, 200);
  EXPECT_EQ(padding_rows, 24 - 5 - 13);
}

TEST_F(WholeSequencesTest, ABatchIsTheSameAtAnyNumberOfWorkers) {
  std::vector<int> lengths;
  for (int i = 0; i < 100; ++i) lengths.push_back(1 + i * 7 % 30);
  const recipe::Recipe recipe = RecipeOf(lengths, 8, 32);
  const auto source = OpenTrainSource(recipe), other = OpenTrainSource(recipe);
  for (const int64_t step : {0, 3, 1000}) {
    const Batch whole = MustGet(**source, step, {0, 8});
    for (int64_t i = 0; i < 8; ++i) {
      const Batch row = MustGet(**other, step, {i, 1});
      EXPECT_TRUE(std::equal(row.tokens.begin(), row.tokens.end(), whole.tokens.begin() + i * 32));
      EXPECT_TRUE(std::equal(row.loss_mask.begin(), row.loss_mask.end(), whole.loss_mask.begin() + i * 32));
    }
  }
}

}  // namespace
}  // namespace trainctl::data
