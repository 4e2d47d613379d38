#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "optim/optimizer.h"
#include "recipe/check_subjects.h"
#include "recipe/values.h"

namespace trainctl::recipe {
namespace {

// What another optimizer reads and this one does not: stated, it would change nothing.
void CheckOptimizerFields(CheckContext& context) {
  const optim::Optimizer* optimizer = optim::Find(context.recipe().optimizer.name);
  if (optimizer == nullptr || !context.IsUsable({"optimizer.name"})) return;
  std::map<absl::string_view, std::vector<absl::string_view>> readers;
  for (const optim::Optimizer* other : optim::All()) {
    for (const absl::string_view field : other->fields) readers[field].push_back(other->name);
  }
  for (const auto& [field, names] : readers) {
    const std::string path = absl::StrCat("optimizer.", field);
    if (optimizer->Reads(field) || !context.IsGiven(path)) continue;
    context.Fail({path}, absl::StrCat(path, ": ", optimizer->name, " (optimizer.name) does not use it, but ",
                                      absl::StrJoin(names, " and "), names.size() > 1 ? " do" : " does",
                                      "; remove it"));
  }
}

// The options that make the warmup fit. Suggests no new length if `least_steps` is 0, or if the length was
// set with --set or as a number of tokens or epochs.
std::string OptionsForWarmup(const CheckContext& context, int64_t most_warmup, int64_t least_steps) {
  std::string options = absl::StrCat("--set optimizer.warmup_steps=", most_warmup);
  if (most_warmup > 0) absl::StrAppend(&options, " (or fewer)");
  const auto origin = context.origins().find("train.steps");
  const bool is_length_of_recipe = least_steps > 0 && origin != context.origins().end() &&
                                   !absl::StartsWith(origin->second, "--set") &&
                                   !absl::EndsWith(origin->second, ")");
  if (is_length_of_recipe && !context.recipe().optimizer.decay_steps.has_value()) {
    absl::StrAppend(&options, " or --set train.steps=", least_steps, " (or more)");
  }
  return options;
}

// The warmup must end before the decay is over.
void CheckWarmup(CheckContext& context) {
  const OptimizerConfig& optimizer = context.recipe().optimizer;
  if (optimizer.lr_schedule == "constant" ||
      !context.IsUsable({"optimizer.warmup_steps", "optimizer.decay_steps", "train.steps",
                         "optimizer.lr_schedule", "optimizer.decay_fraction"})) {
    return;
  }
  const int64_t decay_steps = optimizer.decay_steps.value_or(context.recipe().train.steps);
  const char* source = optimizer.decay_steps.has_value() ? "optimizer.decay_steps" : "train.steps";
  const bool is_wsd = optimizer.lr_schedule == "wsd";
  const double share = is_wsd ? 1 - optimizer.decay_fraction : 1;
  const double start = share * static_cast<double>(decay_steps);
  const auto warmup = static_cast<double>(optimizer.warmup_steps);
  if (optimizer.warmup_steps <= 0 || (is_wsd ? warmup <= start : warmup < start)) return;
  constexpr double kMostSteps = 1e15;  // a double represents every whole number up to here
  const double least_steps = is_wsd ? std::ceil(warmup / share) : warmup + 1;
  const auto most_warmup = static_cast<int64_t>(is_wsd ? std::floor(start) : std::ceil(start) - 1);
  context.Fail(
      {"optimizer.warmup_steps", source},
      absl::StrCat(
          "optimizer.warmup_steps (", optimizer.warmup_steps, ") leaves no steps for the ",
          optimizer.lr_schedule, " decay, which ends at step ", decay_steps, " (", source,
          is_wsd ? absl::StrCat(") and covers the last ", FormatDouble(optimizer.decay_fraction), " of it")
                 : ")",
          "; pass ",
          OptionsForWarmup(context, most_warmup,
                           least_steps < kMostSteps ? static_cast<int64_t>(least_steps) : 0)));
}

}  // namespace

void CheckNumTokens(CheckContext& context) {
  if (!context.IsUsable({"train.batch_sequences", "train.batch_tokens", "data.seq_len", "train.steps"}))
    return;
  constexpr double kMaxTokens = 4e18;
  const TrainConfig& train = context.recipe().train;
  const double tokens = static_cast<double>(train.steps) * static_cast<double>(train.batch_sequences) *
                        static_cast<double>(context.recipe().data.seq_len);
  if (tokens <= kMaxTokens) return;
  context.Fail({"train.steps"}, absl::StrCat("the run would have ", tokens, " tokens (train.steps x ",
                                             "train.batch_sequences x data.seq_len); the limit is 4e18"));
}

void CheckNumerics(CheckContext& context) {
  const RunConfig& run = context.recipe().run;
  const TrainConfig& train = context.recipe().train;
  context.FailEach({
      {{"run.attention", "run.deterministic"},
       run.attention == "cudnn" && run.deterministic,
       "run.attention = \"cudnn\": its gradients differ in the last bits from run to run, but "
       "run.deterministic is true; set run.attention = \"flash\""},
      {{"train.master_dtype", "train.precision"},
       train.master_dtype == "bf16" && train.precision != "bf16",
       absl::StrCat("train.master_dtype = \"bf16\" keeps the weights only in bf16, but train.precision is ",
                    QuoteToml(train.precision), "; set train.precision = \"bf16\"")},
  });
}

void CheckOptimizer(CheckContext& context) {
  CheckOptimizerFields(context);
  const OptimizerConfig& optimizer = context.recipe().optimizer;
  context.FailEach({
      {{"optimizer.eps"},
       optimizer.eps > 0 && static_cast<float>(optimizer.eps) == 0,
       absl::StrCat("optimizer.eps: ", FormatDouble(optimizer.eps),
                    " rounds to zero in fp32, in which updates are computed; use 1e-38 or more")},
      {{"optimizer.min_lr", "optimizer.lr"},
       optimizer.min_lr > optimizer.lr,
       absl::StrCat("optimizer.min_lr (", FormatDouble(optimizer.min_lr), ") is above optimizer.lr (",
                    FormatDouble(optimizer.lr), "); set optimizer.min_lr = ", FormatDouble(optimizer.lr),
                    " or less")},
  });
  CheckWarmup(context);
}

// Estimates of other trainers know the state of one optimizer.
void CheckWhatIfOptimizer(CheckContext& context) {
  CheckOptimizerFields(context);
  const std::string& name = context.recipe().optimizer.name;
  context.FailEach({{{"optimizer.name"},
                     name != optim::kAdamW.name,
                     absl::StrCat("optimizer.name = ", QuoteToml(name),
                                  ": estimates of other trainers (plan.framework) support only adamw")}});
}

}  // namespace trainctl::recipe
