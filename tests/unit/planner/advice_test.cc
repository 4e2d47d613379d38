// A message that names a way out is followed: what it says is done to the recipe, which then has a plan.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/counter_rng.h"
#include "base/status.h"
#include "layout/layout.h"
#include "model/presets.h"
#include "planner/make_plan.h"
#include "tests/unit/num_cases.h"
#include "tests/unit/recipe/bad_input_cases.h"
#include "tests/unit/recipe/recipe_test_util.h"

namespace trainctl::planner {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

// One way out: a text with its --sets.
struct Recipe {
  std::string text;
  std::vector<std::string> sets;
  std::string ToString() const { return absl::StrCat(text, "with ", absl::StrJoin(sets, ", ")); }
};

cluster::Host SomeHost() {
  cluster::Host host;
  host.allowed_cores = 4;
  host.memory_total_bytes = host.memory_available_bytes = 16 * kGiB;
  return host;
}

absl::Status StatusOf(const Recipe& recipe, recipe::Purpose purpose) {
  const recipe::FakeWorld world;
  const absl::StatusOr<recipe::LoadedRecipe> loaded =
      recipe::LoadRecipeText(recipe.text, "r.toml", recipe.sets, world.access(), purpose);
  if (!loaded.ok()) return loaded.status();
  return MakePlan(loaded->recipe, SomeHost()).status();
}

// Every mistake of a message.
std::vector<std::string> LinesOf(const absl::Status& status) {
  std::vector<std::string> lines = absl::StrSplit(std::string(status.message()), "\n  ");
  if (lines.size() > 1) lines.erase(lines.begin());
  return lines;
}

// The line of the text that a mistake's "r.toml:12:1: " means; empty for one of a --set.
std::string* LineOf(const std::string& mistake, std::vector<std::string>& lines) {
  std::smatch place;
  if (!std::regex_search(mistake, place, std::regex("^r\\.toml:(\\d+):"))) return nullptr;
  return &lines.at(static_cast<size_t>(std::stoi(place[1])) - 1);
}

Recipe WithLine(const Recipe& recipe, const std::string& mistake,
                const std::function<void(std::string&)>& change) {
  std::vector<std::string> lines = absl::StrSplit(recipe.text, '\n');
  Recipe changed = recipe;
  if (std::string* line = LineOf(mistake, lines); line != nullptr) change(*line);
  changed.text = absl::StrJoin(lines, "\n");
  return changed;
}

Recipe WithSets(const Recipe& recipe, const std::vector<std::string>& sets) {
  Recipe changed = recipe;
  changed.sets.insert(changed.sets.end(), sets.begin(), sets.end());
  return changed;
}

// "set a = 1 or b = 2, 3 or 4": a = 1, b = 2, b = 3, b = 4; " and " belongs to one.
std::vector<std::vector<std::string>> AssignmentsIn(const std::string& text) {
  std::vector<std::vector<std::string>> ways;
  const std::regex assignment("^([a-z_]+\\.[a-z_]+) = (\"[^\"]*\"|[^\\s,;]+)");
  const std::regex value("^(\\d+)");
  std::string key;
  bool joins = false;
  for (size_t i = 0; i < text.size();) {
    std::smatch match;
    const std::string rest = text.substr(i);
    if (std::regex_search(rest, match, assignment)) {
      key = match[1];
      if (!joins) ways.emplace_back();
      ways.back().push_back(absl::StrCat(key, "=", match[2].str()));
    } else if (std::regex_search(rest, match, value) && !key.empty()) {
      ways.push_back({absl::StrCat(key, "=", match[1].str())});
    } else {
      break;
    }
    i += static_cast<size_t>(match.length());
    std::smatch glue;
    const std::string tail = text.substr(i);
    if (!std::regex_search(tail, glue, std::regex("^(, or set |, or | or | and |, )"))) break;
    joins = glue[1] == " and ";
    i += static_cast<size_t>(glue.length());
  }
  return ways;
}

// The line of the mistake with the name that was meant: a table's head in its place, a key with its value as
// a
// --set, as it may belong into another table.
std::optional<Recipe> WithName(const Recipe& recipe, const std::string& mistake, const std::string& meant) {
  std::vector<std::string> lines = absl::StrSplit(recipe.text, '\n');
  const std::string* line = LineOf(mistake, lines);
  std::smatch stated;
  if (line == nullptr) return std::nullopt;
  if (std::regex_match(*line, stated, std::regex("\\[.*\\]"))) {
    return WithLine(recipe, mistake, [&](std::string& head) { head = absl::StrCat("[", meant, "]"); });
  }
  if (!std::regex_match(*line, stated, std::regex("[a-z_]+ = (.*)"))) return std::nullopt;
  return WithSets(WithLine(recipe, mistake, [](std::string& key) { key.clear(); }),
                  {absl::StrCat(meant, "=", stated[1].str())});
}

// Each way out that a mistake of `recipe` names. All that follows advice in tests is here: a message in other
// words than these is not followed, so that new words belong here as well.
std::vector<Recipe> WaysOut(const Recipe& recipe, const std::string& mistake) {
  std::vector<Recipe> ways;
  std::smatch match;
  const auto add = [&](const std::vector<std::string>& sets) { ways.push_back(WithSets(recipe, sets)); };
  std::smatch field;
  const std::string subject =
      std::regex_search(mistake, field, std::regex("(?:^|: )(?:parallel: )?([a-z]+\\.[a-z_]+)\\b(?: \\(|: )"))
          ? field[1].str()
          : "";
  if (std::regex_search(mistake, match,
                        std::regex("the nearest ([a-z_]+\\.[a-z_]+ )?(?:are|is) (\\d+)(?: and (\\d+))?"))) {
    const std::string key = match[1].matched ? std::string(absl::StripSuffix(match[1].str(), " ")) : subject;
    add({absl::StrCat(key, "=", match[2].str())});
    if (match[3].matched) add({absl::StrCat(key, "=", match[3].str())});
  }
  if (std::regex_search(mistake, match, std::regex("write (\\d+)$"))) {
    const std::string key = subject.substr(subject.find('.') + 1);
    ways.push_back(WithLine(recipe, mistake, [&](std::string& line) {
      EXPECT_EQ(line.find(key), 0u) << mistake;
      line = absl::StrCat(key, " = ", match[1].str());
    }));
  }
  for (const char* fits : {"this fits \\([^)]*\\)[^:]*: ([^;]*)(?:; or, in a new run|$)",
                           "in a new run with weights in bf16 alone \\([^)]*\\): (.*)$"}) {
    if (!std::regex_search(mistake, match, std::regex(fits))) continue;
    std::vector<std::string> all;  // of one change all of it
    for (const std::vector<std::string>& one : AssignmentsIn(match[1])) {
      all.insert(all.end(), one.begin(), one.end());
    }
    add(all);
  }
  if (std::regex_search(mistake, match, std::regex("\\bset ([a-z_]+\\.[a-z_]+ = .*)$"))) {
    for (const std::vector<std::string>& sets : AssignmentsIn(match[1])) add(sets);
  }
  if (std::regex_search(mistake, match, std::regex("did you mean ([a-z_.]+)\\?"))) {
    if (const std::optional<Recipe> way = WithName(recipe, mistake, match[1]); way.has_value()) {
      ways.push_back(*way);
    }
  }
  if (mistake.ends_with("; remove it")) {
    ways.push_back(WithLine(recipe, mistake, [](std::string& line) { line.clear(); }));
  }
  return ways;
}

// Every way out of one mistake leads to a plan. Of several, each leads to a recipe without that mistake.
// Returns how many there were.
int FollowAll(const Recipe& recipe, recipe::Purpose purpose) {
  const absl::Status status = StatusOf(recipe, purpose);
  const std::vector<std::string> mistakes = LinesOf(status);
  int num_followed = 0;
  for (const std::string& mistake : mistakes) {
    for (const Recipe& way : WaysOut(recipe, mistake)) {
      ++num_followed;
      const absl::Status then = StatusOf(way, purpose);
      if (then.ok()) continue;
      const std::vector<std::string> left = LinesOf(then);
      EXPECT_TRUE(mistakes.size() > 1 && std::count(left.begin(), left.end(), mistake) == 0)
          << "\"" << mistake << "\" was followed to\n"
          << way.ToString() << "\n"
          << then;
    }
  }
  return num_followed;
}

TEST(Advice, OfEveryBadInputLeadsToAPlan) {
  int num_followed = 0;
  for (const recipe::BadInputCase& bad : recipe::kBadInputs) {
    const std::string text = bad.text;
    num_followed += FollowAll({text[0] == '!' ? text.substr(1) : absl::StrCat(recipe::kMinimal, text), {}},
                              recipe::Purpose::kTrain);
  }
  for (const recipe::BadSetCase& bad : recipe::kBadSets) {
    num_followed += FollowAll({recipe::kMinimal, bad.sets}, recipe::Purpose::kTrain);
  }
  EXPECT_GT(num_followed, 30) << "the words of advice are no longer understood here";
}

// A batch, degrees and a stage that do not go together, on any number of workers.
TEST(Advice, OfWhatDoesNotDivideLeadsToAPlan) {
  int num_followed = 0;
  for (uint64_t seed = 0; seed < NumCases<uint64_t>(150); ++seed) {
    uint64_t draws = 0;
    const auto below = [&](uint64_t bound) {
      return static_cast<int64_t>(RandomBelow(seed, 7, draws++, bound));
    };
    const int64_t large[] = {100003, 99991, 786433};  // whose shares no power of two divides
    Recipe recipe = {recipe::kMinimal, {}};
    const auto set = [&](const char* key, int64_t value) {
      recipe.sets.push_back(absl::StrCat(key, "=", value));
    };
    const int64_t workers = 1 + below(12);
    const int64_t batch = below(20) == 0 ? large[below(3)] : 1 + below(60);
    set("cluster.devices_per_node", workers);
    set("train.batch_sequences", batch);
    if (below(3) == 0) set("train.micro_batch", 1 + below(9));
    if (below(3) == 0) set("parallel.dp_replicate", 1 + below(9));
    if (below(3) == 0) set("parallel.dp_shard", 1 + below(9));
    if (below(3) == 0) set("parallel.zero_stage", below(4));
    recipe.sets.emplace_back("cluster.memory_limit=64GiB");
    // No part of a batch that cannot be cut fits, whatever else is advised.
    const bool is_whole = batch % workers == 0;
    if (is_whole && !layout::LeastMicroBatch(*model::Preset("toy-1m"), batch / workers).has_value()) continue;
    num_followed += FollowAll(recipe, recipe::Purpose::kPlan);
    if (HasFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GT(num_followed, NumCases(100));
}

// What does not fit, on a machine and on devices.
TEST(Advice, OfWhatDoesNotFitLeadsToAPlan) {
  int num_followed = 0;
  for (uint64_t seed = 0; seed < NumCases<uint64_t>(60); ++seed) {
    uint64_t draws = 0;
    const auto below = [&](uint64_t bound) {
      return static_cast<int64_t>(RandomBelow(seed, 8, draws++, bound));
    };
    const int64_t workers = 1 + below(4);
    Recipe recipe = {recipe::kMinimal, {}};
    const auto set = [&](const char* key, const auto& value) {
      recipe.sets.push_back(absl::StrCat(key, "=", value));
    };
    set("cluster.devices_per_node", workers);
    const int64_t nodes = below(3) == 0 ? 1 + below(3) : 0;  // 0: this machine
    set("train.batch_sequences", workers * std::max<int64_t>(1, nodes) * (1 + below(12)));
    // A device's matrix products need a workspace of 32 MiB, whatever the layout is.
    set("cluster.memory_limit", absl::StrCat((nodes > 0 ? 36 : 4) + below(16), "MiB"));
    if (below(3) > 0) set("parallel.pp", 1), set("parallel.tp", 1);
    if (nodes > 0) set("cluster.device", "h100-sxm-80gb"), set("cluster.nodes", nodes);
    if (below(2) == 0) set("parallel.zero_stage", workers == 1 ? 0 : below(4));
    if (below(3) == 0) set("parallel.recompute", "none");
    if (below(3) == 0) set("train.micro_batch", 1);
    if (below(2) == 0) set("train.precision", "bf16");
    num_followed += FollowAll(recipe, recipe::Purpose::kPlan);
    if (HasFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GE(num_followed, NumCases(10));
  // Between what weights in bf16 alone leave room for and what a copy of them does.
  EXPECT_EQ(FollowAll({recipe::kMinimal, {"train.precision=bf16", "cluster.memory_limit=16MiB"}},
                      recipe::Purpose::kPlan),
            2);
}

}  // namespace
}  // namespace trainctl::planner
