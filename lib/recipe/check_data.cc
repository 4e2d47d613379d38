#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "recipe/check_subjects.h"
#include "recipe/values.h"

namespace trainctl::recipe {
namespace {

void CheckWeights(CheckContext& context) {
  const std::vector<DataSource>& sources = context.recipe().data.train;
  size_t num_weights = 0;
  size_t without = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].weight.has_value()) {
      ++num_weights;
    } else {
      without = i;
    }
  }
  if (num_weights > 0 && num_weights < sources.size() && !context.IsBadBelow("data.train")) {
    context.Fail(
        {absl::StrCat("data.train[", without, "].files")},
        absl::StrCat("data.train[", without,
                     "] has no weight, but another source does; set a weight for every source or for none"));
  }
  if (context.recipe().train.epochs.has_value() && num_weights > 0 && sources.size() > 1) {
    context.Fail({"train.epochs"},
                 "train.epochs: sources with weights have no common epoch, because each is repeated at its "
                 "own rate; set train.steps or train.tokens instead, or remove the weights");
  }
}

void CheckNames(CheckContext& context, absl::string_view list, const std::vector<DataSource>& sources) {
  for (size_t i = 0; i < sources.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (sources[i].name != sources[j].name) continue;
      const std::string path = absl::StrCat(list, "[", i, "].name");
      context.Fail(
          {path, absl::StrCat(list, "[", j, "].name")},
          absl::StrCat(path, ": ", QuoteToml(sources[i].name), " is also the name of ", list, "[", j, "]"));
    }
  }
}

// The names are those that data/batch_source.h gives the sets.
void CheckKeepBest(CheckContext& context) {
  const DataConfig& data = context.recipe().data;
  const std::string& wanted = context.recipe().checkpoint.keep_best;
  if (wanted.empty()) return;
  std::vector<std::string> names;
  bool has_holdout = false;
  for (size_t i = 0; i < data.eval.size(); ++i) {
    const DataSource& set = data.eval[i];
    names.push_back(set.name.empty() ? absl::StrCat("data.eval[", i, "]") : set.name);
    has_holdout |= set.holdout > 0;
  }
  const auto holds_out = [](const DataSource& source) { return source.holdout > 0; };
  if (!has_holdout && std::any_of(data.train.begin(), data.train.end(), holds_out))
    names.emplace_back("held-out");
  if (std::count(names.begin(), names.end(), wanted) > 0) return;
  context.Fail({"checkpoint.keep_best"}, absl::StrCat("checkpoint.keep_best: there is no evaluation set ",
                                                      QuoteToml(wanted), " in the recipe; it has ",
                                                      names.empty() ? "none, so add one with [[data.eval]]"
                                                                    : absl::StrJoin(names, ", ")));
}

void CheckHoldouts(CheckContext& context) {
  const std::vector<DataSource>& sets = context.recipe().data.eval;
  size_t num_holdouts = 0;
  for (size_t i = 0; i < sets.size(); ++i) {
    if (sets[i].holdout <= 0) continue;
    const std::string path = absl::StrCat("data.eval[", i, "].holdout");
    if (++num_holdouts > 1)
      context.Fail({path}, absl::StrCat(path, ": only one evaluation set can use holdout"));
  }
}

}  // namespace

void CheckSources(CheckContext& context) {
  const DataConfig& data = context.recipe().data;
  CheckWeights(context);
  CheckNames(context, "data.train", data.train);
  CheckNames(context, "data.eval", data.eval);
}

void CheckEvaluation(CheckContext& context) {
  const int64_t every = context.recipe().train.eval_every;
  CheckKeepBest(context);
  CheckHoldouts(context);
  if (every > 0 && context.recipe().data.eval.empty() && !context.IsBadBelow("data.eval")) {
    context.Fail({"train.eval_every"}, absl::StrCat("train.eval_every = ", every,
                                                    ", but there is no [[data.eval]] to evaluate on"));
  }
}

}  // namespace trainctl::recipe
