#include "data/batch_source.h"

#include <gmock/gmock.h>

#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "base/status.h"
#include "data/document_store.h"
#include "recipe/derive.h"
#include "tests/unit/data/data_test_util.h"

namespace trainctl::data {
namespace {

using testing::HasSubstr;
using testing::Not;

Batch MustGet(const BatchSource& source, int64_t step, SequenceRange which) {
  absl::StatusOr<Batch> batch = source.Get(step, which);
  EXPECT_TRUE(batch.ok()) << batch.status();
  return batch.ok() ? *std::move(batch) : Batch{};
}

std::unique_ptr<BatchSource> MustOpen(const recipe::Recipe& recipe) {
  auto source = OpenTrainSource(recipe);
  EXPECT_TRUE(source.ok()) << source.status();
  return source.ok() ? *std::move(source) : nullptr;
}

// The lengths have a document longer than a sequence, single tokens, and empty documents.
const std::vector<int> kLengths = {5, 1, 0, 40, 13, 2, 0, 7, 1, 21, 3, 9, 64, 16, 17};

TEST_F(DataTest, MasksPositionsAndDocumentsFollowTheBordersOfTheDocuments) {
  const std::string file = WriteTagged("a", kLengths);
  const recipe::Recipe recipe = MakeRecipe({Source({file})}, 4, 16);
  const auto source = MustOpen(recipe);
  int borders = 0, learned = 0;
  for (int64_t step = 0; step < 30; ++step) {
    const Batch batch = MustGet(*source, step, {0, 4});
    for (int64_t row = 0; row < 4; ++row) {
      int document = 0, start = 0;
      for (int64_t t = 0; t < 16; ++t) {
        const size_t i = static_cast<size_t>(row * 16 + t);
        // Each token says its document and position, so that the expectations need nothing else.
        const int number = batch.tokens[i] / 1000, position = batch.tokens[i] % 1000;
        ASSERT_LT(position, kLengths[static_cast<size_t>(number)]);
        if (t > 0 && position == 0) {
          ++document;
          ++borders;
          start = static_cast<int>(t);
        } else if (t > 0) {
          ASSERT_EQ(batch.tokens[i], batch.tokens[i - 1] + 1);
        }
        ASSERT_EQ(batch.document[i], document);
        ASSERT_EQ(batch.positions[i], t - start);
        const bool last = position == kLengths[static_cast<size_t>(number)] - 1;
        ASSERT_EQ(batch.loss_mask[i], last ? 0 : 1);
        ASSERT_EQ(batch.targets[i], last ? 0 : batch.tokens[i] + 1);
        learned += batch.loss_mask[i];
      }
    }
  }
  EXPECT_GT(borders, 50);
  EXPECT_GT(learned, 1000);
}

TEST_F(DataTest, ContinuousPackingIsOneStreamWithoutBorders) {
  const std::string file = WriteTagged("a", kLengths);
  recipe::Recipe recipe = MakeRecipe({Source({file})}, 3, 8);
  recipe.data.packing = "continuous";
  recipe.data.shuffle = false;
  const auto source = MustOpen(recipe);
  std::vector<int32_t> stream;
  for (size_t d = 0; d < kLengths.size(); ++d) {
    for (int p = 0; p < kLengths[d]; ++p) stream.push_back(static_cast<int32_t>(d) * 1000 + p);
  }
  for (int64_t step = 0; step < 40; ++step) {
    const Batch batch = MustGet(*source, step, {0, 3});
    for (int64_t i = 0; i < 24; ++i) {
      const size_t at = static_cast<size_t>(step * 24 + i);
      ASSERT_EQ(batch.tokens[static_cast<size_t>(i)], stream[at % stream.size()]);
      ASSERT_EQ(batch.targets[static_cast<size_t>(i)], stream[(at + 1) % stream.size()]);
      ASSERT_EQ(batch.positions[static_cast<size_t>(i)], i % 8);
      ASSERT_EQ(batch.document[static_cast<size_t>(i)], 0);
      ASSERT_EQ(batch.loss_mask[static_cast<size_t>(i)], 1);
    }
  }
}

TEST_F(DataTest, EveryEpochHasEachTokenOnceInAnOrderOfItsOwn) {
  const std::vector<int> lengths = {5, 1, 40, 13, 2, 7, 1, 21, 3, 3};  // 96 tokens: 12 sequences of 8
  const std::string file = WriteTagged("a", lengths);
  const auto source = MustOpen(MakeRecipe({Source({file})}, 12, 8));
  std::set<std::vector<int32_t>> orders;
  for (int64_t epoch = 0; epoch < 6; ++epoch) {
    const Batch batch = MustGet(*source, epoch, {0, 12});
    orders.insert(batch.tokens);
    const std::multiset<int32_t> seen(batch.tokens.begin(), batch.tokens.end());
    std::multiset<int32_t> expected;
    for (size_t d = 0; d < lengths.size(); ++d) {
      for (int p = 0; p < lengths[d]; ++p) expected.insert(static_cast<int32_t>(d) * 1000 + p);
    }
    ASSERT_EQ(seen, expected) << "epoch " << epoch;
  }
  EXPECT_EQ(orders.size(), 6u);
}

TEST_F(DataTest, ThePiecesOfOneLongDocumentAreSpreadOverItsEpoch) {
  const std::string file = WriteTagged("a", {960});  // 120 sequences of 8
  recipe::Recipe recipe = MakeRecipe({Source({file})}, 12, 8);
  for (const bool shuffle : {true, false}) {
    recipe.data.shuffle = shuffle;
    const auto source = MustOpen(recipe);
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      std::set<int32_t> seen;
      int neighbours = 0;
      int32_t previous = -1;
      for (int64_t step = 0; step < 10; ++step) {
        const Batch batch = MustGet(*source, epoch * 10 + step, {0, 12});
        seen.insert(batch.tokens.begin(), batch.tokens.end());
        for (size_t row = 0; row < 12; ++row) {
          if (batch.tokens[row * 8] == previous + 8) ++neighbours;
          previous = batch.tokens[row * 8];
        }
      }
      EXPECT_EQ(seen.size(), 960u) << "each token once an epoch";
      if (shuffle) {
        EXPECT_LT(neighbours, 12);  // about 1 of 120 by chance
      } else {
        EXPECT_EQ(neighbours, 119);
      }
    }
  }
}

TEST_F(DataTest, ASequenceThatDoesNotFitGoesOnInTheNextEpoch) {
  const std::string file = WriteTagged("a", {7, 4});  // 11 tokens, sequences of 8
  const auto source = MustOpen(MakeRecipe({Source({file})}, 11, 8));
  // 11 sequences of 8 are 8 epochs: each token 8 times.
  std::map<int32_t, int> count;
  for (const int32_t token : MustGet(*source, 0, {0, 11}).tokens) ++count[token];
  EXPECT_EQ(count.size(), 11u);
  for (const auto& [token, times] : count) EXPECT_EQ(times, 8) << token;
}

TEST_F(DataTest, TokensLeftOverAtTheEndOfAnEpochAreNotLost) {
  const std::string file = WriteTagged("a", {30, 1, 50, 19});  // 100 tokens, sequences of 8: 4 are left over
  const auto source = MustOpen(MakeRecipe({Source({file})}, 300, 8));
  // 300 sequences of 8 are 24 epochs of 100: each token 24 times.
  std::map<int32_t, int> count;
  for (const int32_t token : MustGet(*source, 0, {0, 300}).tokens) ++count[token];
  EXPECT_EQ(count.size(), 100u);
  for (const auto& [token, times] : count) EXPECT_EQ(times, 24) << token;
}

TEST_F(DataTest, ASourceShorterThanASequenceIsRepeated) {
  const std::string file = WriteTagged("a", {2, 1});
  const auto source = MustOpen(MakeRecipe({Source({file})}, 1, 16));
  const Batch batch = MustGet(*source, 0, {0, 1});
  std::map<int32_t, int> count;
  for (const int32_t token : batch.tokens) ++count[token];
  EXPECT_EQ(count.size(), 3u);
  EXPECT_EQ(batch.document.back(), 10) << "16 tokens of 3-token epochs";
}

TEST_F(DataTest, ABatchDoesNotDependOnHowItIsCutNorOnWhatWasReadBefore) {
  const std::string file = WriteTagged("a", kLengths);
  const std::string other = WriteTagged("b", {100, 3, 50}, 500);
  const recipe::Recipe recipe = MakeRecipe({Source({file}), Source({other})}, 12, 16);
  const auto source = MustOpen(recipe);
  for (const int64_t step : {int64_t{0}, int64_t{5}, int64_t{1000003}, int64_t{1} << 40}) {
    const Batch whole = MustGet(*source, step, {0, 12});
    for (int cut = 1; cut < 12; ++cut) {
      // Another opening, so that nothing cached can help; the later part first.
      const auto again = MustOpen(recipe);
      const Batch second = MustGet(*again, step, {cut, 12 - cut});
      Batch joined = MustGet(*again, step, {0, cut});
      const auto append = [](auto& a, const auto& b) { a.insert(a.end(), b.begin(), b.end()); };
      append(joined.tokens, second.tokens);
      append(joined.targets, second.targets);
      append(joined.positions, second.positions);
      append(joined.document, second.document);
      append(joined.loss_mask, second.loss_mask);
      joined.num_sequences += second.num_sequences;
      ASSERT_TRUE(joined == whole) << "step " << step << " cut " << cut;
    }
  }
  EXPECT_EQ(MustGet(*source, 3, {4, 0}).num_sequences, 0);
}

TEST_F(DataTest, ManyThreadsReadTheSameBatches) {
  const std::string file = WriteTagged("a", kLengths);
  const recipe::Recipe recipe = MakeRecipe({Source({file})}, 4, 16);
  const auto source = MustOpen(recipe);
  std::vector<Batch> expected;
  for (int64_t step = 0; step < 40; ++step) expected.push_back(MustGet(*MustOpen(recipe), step, {0, 4}));
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int64_t i = 0; i < 40; ++i) {
        const int64_t step = (i * 7 + thread * 11) % 40;
        const auto batch = source->Get(step, {0, 4});
        if (!batch.ok() || !(*batch == expected[static_cast<size_t>(step)]))
          ++wrong[static_cast<size_t>(thread)];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST_F(DataTest, TheSeedAndNothingElseChangesTheOrder) {
  const std::string file = WriteTagged("a", kLengths);
  recipe::Recipe recipe = MakeRecipe({Source({file})}, 4, 16);
  const Batch first = MustGet(*MustOpen(recipe), 2, {0, 4});
  recipe.train.steps = 99;
  recipe.parallel.tp = 2;
  EXPECT_TRUE(MustGet(*MustOpen(recipe), 2, {0, 4}) == first);
  recipe.run.seed = 18;
  EXPECT_FALSE(MustGet(*MustOpen(recipe), 2, {0, 4}) == first);
}

// An epoch of several sources is one epoch of each, and train.epochs = 1 ends there.
TEST_F(DataTest, AnEpochOfSeveralSourcesHasEachSequenceOnce) {
  std::vector<int> few(7), many(23);
  for (size_t i = 0; i < few.size(); ++i) few[i] = 3 + static_cast<int>(i % 5);
  for (size_t i = 0; i < many.size(); ++i) many[i] = 2 + static_cast<int>(i % 7);
  recipe::Recipe recipe =
      MakeRecipe({Source({WriteTagged("few", few)}), Source({WriteTagged("many", many, 100)})}, 1, 10);
  recipe.data.packing = "whole";
  const absl::StatusOr<int64_t> epoch_tokens = CountEpochTokens(recipe);
  ASSERT_TRUE(epoch_tokens.ok()) << epoch_tokens.status();
  const int64_t steps = recipe::StepsForEpochs(recipe, 1, *epoch_tokens);
  EXPECT_EQ(steps * 10, *epoch_tokens) << "one sequence of 10 a step";
  std::multiset<int> seen;  // first tokens of documents
  const auto source = MustOpen(recipe);
  for (int64_t step = 0; step < steps; ++step) {
    const Batch batch = MustGet(*source, step, {0, 1});
    for (size_t t = 0; t < batch.tokens.size(); ++t) {
      if (batch.positions[t] == 0 && batch.loss_mask[t] != 0) seen.insert(batch.tokens[t] / 1000);
    }
  }
  std::multiset<int> expected;
  for (int i = 0; i < 7; ++i) expected.insert(i);
  for (int i = 0; i < 23; ++i) expected.insert(100 + i);
  EXPECT_EQ(seen, expected);

  recipe.data.packing = "continuous";
  EXPECT_EQ(*CountEpochTokens(recipe),
            std::accumulate(few.begin(), few.end(), 0) + std::accumulate(many.begin(), many.end(), 0));
  recipe.data.train[1].files = {Path("none.bin")};
  EXPECT_THAT(CountEpochTokens(recipe).status().message(), testing::HasSubstr("none"));
}

TEST_F(DataTest, SourcesAreDrawnByWeightOrBySize) {
  const std::string a = WriteTagged("a", {300}), b = WriteTagged("b", {100}, 1),
                    c = WriteTagged("c", {200}, 2);
  const auto count = [&](std::vector<std::optional<double>> weights) {
    std::vector<recipe::DataSource> sources = {Source({a}), Source({b}), Source({c})};
    for (size_t i = 0; i < 3; ++i) sources[i].weight = weights[i];
    const auto source = MustOpen(MakeRecipe(sources, 100, 10));
    std::vector<int> drawn(3, 0);
    for (int64_t step = 0; step < 10; ++step) {
      const Batch batch = MustGet(*source, step, {0, 100});
      for (int64_t row = 0; row < 100; ++row) {
        ++drawn[static_cast<size_t>(batch.tokens[static_cast<size_t>(row * 10)] / 1000)];
      }
    }
    return drawn;
  };
  EXPECT_EQ(count({0.5, 0.3, 0.2}), (std::vector<int>{500, 300, 200}));
  EXPECT_EQ(count({1.0, 0.0, 3.0}), (std::vector<int>{250, 0, 750}));
  EXPECT_EQ(count({std::nullopt, std::nullopt, std::nullopt}), (std::vector<int>{500, 167, 333}));
}

TEST_F(DataTest, WeightsForSomeSourcesOnlyAreRefused) {
  const std::string file = WriteTagged("a", {300});
  std::vector<recipe::DataSource> sources = {Source({file}), Source({file})};
  sources[0].weight = 0.5;
  EXPECT_THAT(OpenTrainSource(MakeRecipe(sources, 4, 16)).status().message(), HasSubstr("1 of 2 sources"));
  sources[1].weight = -1;
  EXPECT_EQ(ExitCodeFor(OpenTrainSource(MakeRecipe(sources, 4, 16)).status()), ExitCode::kUsage);
  sources[0].weight = sources[1].weight = 0;
  EXPECT_EQ(ExitCodeFor(OpenTrainSource(MakeRecipe(sources, 4, 16)).status()), ExitCode::kUsage);
}

TEST_F(DataTest, StepsAndRangesOutsideTheBatchAreRefused) {
  const std::string file = WriteTagged("a", {300});
  const auto source = MustOpen(MakeRecipe({Source({file})}, 4, 16));
  for (const auto& [step, which] : std::vector<std::pair<int64_t, SequenceRange>>{{-1, {0, 4}},
                                                                                  {0, {-1, 1}},
                                                                                  {0, {0, 5}},
                                                                                  {0, {4, 1}},
                                                                                  {0, {1, INT64_MAX}},
                                                                                  {0, {0, -1}},
                                                                                  {INT64_MAX, {0, 1}}}) {
    EXPECT_EQ(ExitCodeFor(source->Get(step, which).status()), ExitCode::kUsage) << step;
  }
}

TEST_F(DataTest, TokenizersThatDoNotFitAreRefused) {
  recipe::Recipe recipe = MakeRecipe({Source({Write("a.txt", "hello")})}, 1, 4, 256);
  EXPECT_TRUE(OpenTrainSource(recipe).ok());
  recipe.model.spec.vocab = 255;
  EXPECT_THAT(OpenTrainSource(recipe).status().message(), HasSubstr("model.vocab >= 256, not 255"));
  recipe.data.tokenizer = "/x/tokenizer.json";
  EXPECT_EQ(ExitCodeFor(OpenTrainSource(recipe).status()), ExitCode::kUsage);
  recipe.data.tokenizer = WriteTokenizer("tokenizer.json");
  recipe.model.spec.vocab = 5;
  EXPECT_THAT(OpenTrainSource(recipe).status().message(),
              HasSubstr("has IDs up to 5, but model.vocab is 5; set model.vocab = 6"));
  recipe.model.spec.vocab = 6;
  recipe.data.train[0].files = {Write("b.txt", "ab ab ab")};
  EXPECT_TRUE(OpenTrainSource(recipe).ok());
}

TEST_F(DataTest, EverySourceThatCannotBeOpenedIsNamed) {
  const std::string good = WriteTagged("good", kLengths);
  recipe::Recipe recipe = MakeRecipe({Source({good})}, 4, 16);
  recipe.data.eval = {Source({good})};
  EXPECT_TRUE(CheckData(recipe).problems.empty());
  // Two damaged sources, one good one, one that is not there at all (which loading a recipe reports), and a
  // damaged set for evaluation.
  const std::string first = Write("first.jsonl", "{");
  const std::string second = Write("second.jsonl", "[1");
  const std::string third = Write("third.jsonl", "nothing");
  recipe.data.train = {Source({first}), Source({good}), Source({second}), Source({Path("absent.jsonl")})};
  recipe.data.eval = {Source({good}), Source({third})};
  recipe.data.tokenizer = Path("no-tokenizer.json");
  std::string all;
  for (const absl::Status& problem : CheckData(recipe).problems) {
    all += std::string(problem.message()) + "\n";
  }
  for (const std::string& named : {first, second, third, recipe.data.tokenizer}) {
    EXPECT_THAT(all, HasSubstr(named));
  }
  EXPECT_THAT(all, Not(HasSubstr("absent.jsonl")));
  EXPECT_THAT(all, Not(HasSubstr(good)));
}

TEST_F(DataTest, DataWithoutACountedTargetIsNamedBeforeTheFirstStep) {
  recipe::DataSource prompts = Source({Write("p.jsonl", "{\"p\":\"a prompt\",\"t\":\"\"}\n")});
  prompts.name = "questions";
  prompts.prompt_field = "p";
  prompts.text_field = "t";
  recipe::Recipe recipe = MakeRecipe({prompts}, 1, 16, kByteVocab);
  const auto expect_refused = [&] {
    const DataReport report = CheckData(recipe);
    ASSERT_EQ(report.problems.size(), 1u);
    EXPECT_EQ(ExitCodeFor(report.problems[0]), ExitCode::kBadData);
    EXPECT_THAT(report.problems[0].message(), HasSubstr("questions: no target counts toward the loss"));
  };
  expect_refused();
  // The end of a document is a target, unless the prompt fills the sequence.
  recipe.model.spec.vocab = kByteVocab + 1;
  EXPECT_TRUE(CheckData(recipe).problems.empty());
  recipe.data.long_documents = "cut";
  recipe.data.seq_len = 8;
  expect_refused();
  prompts.files = {Write("q.jsonl",
                         "{\"p\":\"a long prompt\",\"t\":\"never read\"}\n"
                         "{\"p\":\"a\",\"t\":\" long answer\"}\n")};
  recipe.data.train = {prompts};
  EXPECT_THAT(CheckData(recipe).notes,
              testing::Contains(HasSubstr(
                  "2 longer than 8 tokens truncated, 1 of them before the completion begins; 100.0 %")));
  recipe.data.train[0].files = {Path("p.jsonl")};
  recipe.data.train.push_back(Source({Write("good.txt", "something to learn")}));
  recipe.data.eval = {recipe.data.train[0]};
  const DataReport report = CheckData(recipe);
  EXPECT_TRUE(report.problems.empty());
  EXPECT_THAT(report.notes,
              testing::IsSupersetOf({HasSubstr("nothing is learned from questions"),
                                     HasSubstr("evaluation set 'questions' will have no loss")}));
}

}  // namespace
}  // namespace trainctl::data
