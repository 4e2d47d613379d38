#include "apps/trainctl/nonfinite_advice.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/shell_quote.h"
#include "optim/optimizer.h"
#include "optim/update_limits.h"
#include "recipe/values.h"

namespace trainctl::cli {
namespace {

// A tenth of what it was, and no more than the optimizer's default; two digits.
double LowerRate(const recipe::OptimizerConfig& config) {
  const optim::Optimizer* optimizer = optim::Find(config.name);
  const double most = optimizer != nullptr ? optimizer->defaults.lr : config.lr;
  double rounded = 0;
  return absl::SimpleAtod(absl::StrFormat("%.2g", std::min(config.lr / 10, most)), &rounded) ? rounded : 0;
}

}  // namespace

std::string NonFiniteAdvice(const recipe::Recipe& recipe, const std::string& run_path,
                            int64_t checkpoint_step, int64_t failed_step) {
  const bool skips = recipe.train.on_nonfinite == "skip";
  // Such a run ends at this step if it has skipped every update since step 1.
  const bool made_no_update = failed_step == 1 || (skips && failed_step == optim::kMostSkippedInARow);
  if (made_no_update || recipe.optimizer.lr == 0) {
    return absl::StrCat(made_no_update ? "no update preceded it" : "optimizer.lr is 0",
                        ", so changing the learning rate will not help; check the initial weights "
                        "(model.weights) and the data");
  }
  const double lr = LowerRate(recipe.optimizer);
  std::string command = absl::StrCat("trainctl resume ", ShellQuote(run_path),
                                     " --set optimizer.lr=", recipe::FormatDouble(lr));
  if (recipe.optimizer.min_lr > lr) {
    absl::StrAppend(&command, " --set optimizer.min_lr=", recipe::FormatDouble(lr));
  }
  std::string advice;
  if (skips && checkpoint_step > 0 && checkpoint_step >= failed_step - optim::kMostSkippedInARow) {
    advice = absl::StrCat(
        "the checkpoint at step ", checkpoint_step,
        " may already contain weights that no longer produce finite gradients. If it does, move it and "
        "any newer ones out of ",
        ShellQuote(run_path + "/checkpoints"),
        " before you continue, or launch a new run if `trainctl checkpoint ls ", ShellQuote(run_path),
        "` lists no older one.\n");
  }
  std::string next = absl::StrCat("continue from step ", checkpoint_step);
  if (checkpoint_step <= 0) next = "restart at step 1";
  if (!advice.empty()) next = "continue";  // perhaps from an older checkpoint
  absl::StrAppend(
      &advice, next, " with a lower learning rate (now ", recipe::FormatDouble(recipe.optimizer.lr), "):\n  ",
      command, "\nor with --set optimizer.warmup_steps=N (counted from step 1), --set optimizer.clip_norm=X");
  if (!skips) {
    absl::StrAppend(&advice, ", --set train.on_nonfinite=skip (skips such updates)");
  }
  return advice;
}

}  // namespace trainctl::cli
