// The held-out split and the evaluation sets.
#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "data/batch_source.h"
#include "tests/unit/data/data_test_util.h"

namespace trainctl::data {
namespace {

using testing::HasSubstr;

// Every token that counts as an input of some sequence, with how often; padding is left out.
std::map<int32_t, int> EvalTokens(const EvalSet& set, int64_t batch_sequences) {
  std::map<int32_t, int> seen;
  for (int64_t i = 0; i < set.num_batches; ++i) {
    const auto batch = set.source->Get(i, {0, batch_sequences});
    EXPECT_TRUE(batch.ok()) << batch.status();
    if (!batch.ok()) break;
    for (size_t t = 0; t < batch->tokens.size(); ++t) {
      if (batch->loss_mask[t] == 0) continue;
      ++seen[batch->targets[t]];
    }
  }
  return seen;
}

std::set<int32_t> TrainTokens(const recipe::Recipe& recipe, int64_t steps) {
  const auto source = OpenTrainSource(recipe);
  EXPECT_TRUE(source.ok()) << source.status();
  std::set<int32_t> seen;
  for (int64_t step = 0; source.ok() && step < steps; ++step) {
    const auto batch = (*source)->Get(step, {0, recipe.train.batch_sequences});
    EXPECT_TRUE(batch.ok()) << batch.status();
    seen.insert(batch->tokens.begin(), batch->tokens.end());
  }
  return seen;
}

using HoldOut = DataTest;

TEST_F(HoldOut, NoDocumentTrainsAndIsHeldOut) {
  const std::string file = WriteTagged("a", std::vector<int>(40, 6));
  recipe::Recipe recipe = MakeRecipe({Source({file})}, 4, 6);
  recipe.data.train[0].holdout = 0.1;
  recipe.data.packing = "continuous";  // each token but the first is a target
  const auto sets = OpenEvalSets(recipe);
  ASSERT_TRUE(sets.ok()) << sets.status();
  ASSERT_EQ(sets->size(), 1u);
  EXPECT_EQ((*sets)[0].name, "held-out");
  EXPECT_EQ((*sets)[0].num_batches, 1) << "4 documents of 6 tokens";

  std::set<int> held_out, train;
  for (const auto& [token, times] : EvalTokens((*sets)[0], 4)) {
    EXPECT_EQ(times, 1);
    held_out.insert(token / 1000);
  }
  for (const int32_t token : TrainTokens(recipe, 9)) train.insert(token / 1000);  // one epoch
  EXPECT_EQ(held_out.size(), 4u);
  EXPECT_EQ(train.size(), 36u);
  for (const int document : held_out) EXPECT_EQ(train.count(document), 0u);

  recipe.run.seed = 99;
  const auto other = OpenEvalSets(recipe);
  ASSERT_TRUE(other.ok());
  std::set<int> other_held_out;
  for (const auto& [token, times] : EvalTokens((*other)[0], 4)) other_held_out.insert(token / 1000);
  EXPECT_NE(other_held_out, held_out);
}

TEST_F(HoldOut, ATinyShareIsAtLeastOneDocumentAndALargeOneNotAll) {
  const std::string file = WriteTagged("a", {6, 0, 6, 6});
  for (const auto& [holdout, expected] : std::vector<std::pair<double, size_t>>{{1e-9, 1}, {0.999, 2}}) {
    recipe::Recipe recipe = MakeRecipe({Source({file})}, 1, 6);
    recipe.data.train[0].holdout = holdout;
    const auto sets = OpenEvalSets(recipe);
    ASSERT_TRUE(sets.ok()) << sets.status();
    std::set<int> held_out;
    for (const auto& [token, times] : EvalTokens((*sets)[0], 1)) held_out.insert(token / 1000);
    EXPECT_EQ(held_out.size(), expected);
    std::set<int> train;
    for (const int32_t token : TrainTokens(recipe, 10)) train.insert(token / 1000);
    EXPECT_EQ(train.size(), 3 - expected);
  }
}

TEST_F(HoldOut, OfASingleDocumentTheEndIsHeldOut) {
  const std::string file = WriteTagged("a", {0, 200});
  recipe::Recipe recipe = MakeRecipe({Source({file})}, 1, 10);
  recipe.data.train[0].holdout = 0.1;
  const auto sets = OpenEvalSets(recipe);
  ASSERT_TRUE(sets.ok()) << sets.status();
  const std::map<int32_t, int> held_out = EvalTokens((*sets)[0], 1);
  EXPECT_EQ(held_out.begin()->first, 1181) << "token 180 is the first, which nothing predicts";
  EXPECT_EQ(held_out.rbegin()->first, 1199);
  EXPECT_EQ(held_out.size(), 19u);
  const std::set<int32_t> train = TrainTokens(recipe, 18);
  EXPECT_EQ(train.size(), 180u);
  EXPECT_EQ(*train.rbegin(), 1179);

  recipe.data.train[0].files = {WriteTagged("b", {3})};
  EXPECT_THAT(OpenEvalSets(recipe).status().message(), HasSubstr("at least 4"));
}

TEST_F(HoldOut, AnEvaluationEntryWithAShareHoldsOutOfEachSource) {
  const std::string a = WriteTagged("a", std::vector<int>(20, 5)),
                    b = WriteTagged("b", std::vector<int>(60, 5), 500);
  recipe::Recipe recipe = MakeRecipe({Source({a}), Source({b})}, 2, 5);
  recipe::DataSource entry;
  entry.name = "mine";
  entry.holdout = 0.1;
  recipe.data.eval = {entry};
  const auto sets = OpenEvalSets(recipe);
  ASSERT_TRUE(sets.ok()) << sets.status();
  ASSERT_EQ(sets->size(), 1u);
  EXPECT_EQ((*sets)[0].name, "mine");
  std::set<int> from_a, from_b;
  for (const auto& [token, times] : EvalTokens((*sets)[0], 2)) {
    (token < 500000 ? from_a : from_b).insert(token / 1000);
  }
  EXPECT_EQ(from_a.size(), 2u);
  EXPECT_EQ(from_b.size(), 6u);
  for (const int32_t token : TrainTokens(recipe, 200)) {
    EXPECT_EQ(from_a.count(token / 1000) + from_b.count(token / 1000), 0u);
  }

  // What `recipe` makes of it: the share noted at each source as well. Nothing changes.
  for (recipe::DataSource& source : recipe.data.train) source.holdout = 0.1;
  const auto derived = OpenEvalSets(recipe);
  ASSERT_TRUE(derived.ok());
  EXPECT_EQ(derived->size(), 1u);
  EXPECT_EQ(EvalTokens((*derived)[0], 2), EvalTokens((*sets)[0], 2));

  recipe.data.eval.push_back(entry);
  EXPECT_EQ(ExitCodeFor(OpenEvalSets(recipe).status()), ExitCode::kUsage);
}

TEST_F(HoldOut, EvaluationFilesAreReadInOrderOnceAndPadded) {
  const std::string train = WriteTagged("a", {100});
  const std::string file =
      WriteTagged("e", {3, 1, 9, 10});  // 23 tokens: 22 targets, 5 rows of 5, batches of 2
  recipe::Recipe recipe = MakeRecipe({Source({train})}, 2, 5);
  recipe.data.eval = {Source({file})};
  for (const char* packing : {"documents", "continuous"}) {
    recipe.data.packing = packing;
    const bool continuous = recipe.data.packing == "continuous";
    const auto sets = OpenEvalSets(recipe);
    ASSERT_TRUE(sets.ok()) << sets.status();
    const EvalSet& set = (*sets)[0];
    EXPECT_EQ(set.name, "data.eval[0]");
    ASSERT_EQ(set.num_batches, 3);
    const std::map<int32_t, int> targets = EvalTokens(set, 2);
    EXPECT_EQ(targets.size(), continuous ? 22u : 19u)
        << "23 tokens less the first of the stream / each document";
    for (const auto& [token, times] : targets) EXPECT_EQ(times, 1) << token;

    const auto last = set.source->Get(2, {0, 2});
    ASSERT_TRUE(last.ok());
    // Tokens 20, 21, 22 are 3007..3009; the last has no successor.
    EXPECT_EQ(last->tokens, (std::vector<int32_t>{3007, 3008, 3009, 0, 0, 0, 0, 0, 0, 0}));
    EXPECT_EQ(last->targets, (std::vector<int32_t>{3008, 3009, 0, 0, 0, 0, 0, 0, 0, 0}));
    EXPECT_EQ(last->loss_mask, (std::vector<uint8_t>{1, 1, 0, 0, 0, 0, 0, 0, 0, 0}));
    EXPECT_EQ(last->document, continuous ? std::vector<int32_t>(10, 0)
                                         : (std::vector<int32_t>{0, 0, 0, 1, 1, 0, 0, 0, 0, 0}));
    EXPECT_EQ(last->positions, continuous ? (std::vector<int32_t>{0, 1, 2, 3, 4, 0, 1, 2, 3, 4})
                                          : (std::vector<int32_t>{0, 1, 2, 0, 1, 0, 1, 2, 3, 4}));
    // Beyond its end: all padding, still a batch.
    const auto beyond = set.source->Get(100, {0, 2});
    ASSERT_TRUE(beyond.ok());
    EXPECT_EQ(beyond->loss_mask, std::vector<uint8_t>(10, 0));
  }
  recipe.train.eval_batches = 2;
  EXPECT_EQ((*OpenEvalSets(recipe))[0].num_batches, 2);
  recipe.train.eval_batches = 0;
  EXPECT_EQ((*OpenEvalSets(recipe))[0].num_batches, 1);
}

TEST_F(HoldOut, TheNumberOfEvaluationBatchesCoversEveryTarget) {
  const std::string train = WriteTagged("a", {100});
  for (int tokens = 2; tokens < 40; ++tokens) {
    recipe::Recipe recipe = MakeRecipe({Source({train})}, 2, 5);
    recipe.data.packing = "continuous";
    recipe.data.eval = {Source({WriteTagged("e", {tokens})})};
    const auto sets = OpenEvalSets(recipe);
    ASSERT_TRUE(sets.ok()) << sets.status();
    EXPECT_EQ(EvalTokens((*sets)[0], 2).size(), static_cast<size_t>(tokens - 1)) << tokens;
    EXPECT_EQ((*sets)[0].num_batches, (tokens - 1 + 9) / 10);
  }
}

TEST_F(HoldOut, AnEvaluationSetWithNothingToPredictIsAnError) {
  recipe::Recipe recipe = MakeRecipe({Source({WriteTagged("a", {100})})}, 2, 5);
  recipe.data.eval = {Source({WriteTagged("e", {1})})};
  EXPECT_THAT(OpenEvalSets(recipe).status().message(), HasSubstr("nothing to predict"));
  recipe.data.eval = {Source({WriteTagged("e", {0, 0})})};
  EXPECT_EQ(ExitCodeFor(OpenEvalSets(recipe).status()), ExitCode::kBadData);
  recipe.data.eval = {Source({})};
  EXPECT_EQ(ExitCodeFor(OpenEvalSets(recipe).status()), ExitCode::kUsage);
  recipe.data.eval.clear();
  EXPECT_TRUE(OpenEvalSets(recipe)->empty());
  for (const double wrong : {-0.1, 1.0, std::nan("")}) {
    recipe.data.train[0].holdout = wrong;
    EXPECT_EQ(ExitCodeFor(OpenEvalSets(recipe).status()), ExitCode::kUsage) << wrong;
    EXPECT_EQ(ExitCodeFor(OpenTrainSource(recipe).status()), ExitCode::kUsage) << wrong;
  }
}

// Bytes that this process has asked its kernel for.
int64_t BytesRead() {
  std::ifstream io("/proc/self/io");
  std::string word;
  int64_t bytes = 0;
  while (io >> word) {
    if (word == "rchar:") io >> bytes;
  }
  return bytes;
}

TEST_F(HoldOut, ASourceThatTrainsAndIsHeldOutIsReadOnce) {
  std::string lines;
  for (int i = 0; i < 5000; ++i) lines += absl::StrCat(R"({"text": ")", i, std::string(200, 'x'), "\"}\n");
  recipe::Recipe recipe = MakeRecipe({Source({Write("lines.jsonl", lines)})}, 2, 16);
  recipe.data.train[0].holdout = 0.1;
  const int64_t before = BytesRead();
  std::vector<std::pair<int64_t, int64_t>> told;
  const auto sets =
      OpenData(recipe, {.progress = [&](int64_t done, int64_t total) { told.emplace_back(done, total); }});
  const int64_t read = BytesRead() - before;
  ASSERT_TRUE(sets.ok()) << sets.status();
  const auto size = static_cast<int64_t>(lines.size());
  EXPECT_GE(read, size);
  EXPECT_LT(read, size * 3 / 2);
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told.back(), std::make_pair(size, size));

  const auto train = OpenTrainSource(recipe);
  const auto eval = OpenEvalSets(recipe);
  ASSERT_TRUE(train.ok() && eval.ok());
  ASSERT_EQ(sets->eval.size(), 1u);
  EXPECT_EQ(sets->train->Get(3, {0, 2})->tokens, (*train)->Get(3, {0, 2})->tokens);
  EXPECT_EQ(sets->eval[0].source->Get(1, {0, 2})->tokens, (*eval)[0].source->Get(1, {0, 2})->tokens);
}

}  // namespace
}  // namespace trainctl::data
