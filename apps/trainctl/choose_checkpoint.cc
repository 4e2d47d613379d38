#include "apps/trainctl/choose_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/files.h"
#include "base/shell_quote.h"
#include "base/status.h"
#include "checkpoint/examine.h"
#include "run/run_folder.h"
#include "telemetry/log_reader.h"

namespace trainctl::cli {
namespace {

using checkpoint::Depth;
using checkpoint::Examined;

constexpr absl::string_view kBest = "best";

absl::Status NoneYet(const run::RunFolder& run) {
  return BadDataError(absl::StrCat(run.path(), " has no checkpoint yet"));
}

absl::StatusOr<std::string> NewestGood(const run::RunFolder& run) {
  std::vector<std::string> warnings;
  const absl::StatusOr<checkpoint::CheckpointInfo> newest =
      checkpoint::FindNewestGood(run.checkpoints_path(), &warnings);
  for (const std::string& warning : warnings) std::fprintf(stderr, "warning: %s\n", warning.c_str());
  if (newest.status().code() == absl::StatusCode::kNotFound) return NoneYet(run);
  if (!newest.ok()) return newest.status();
  return newest->path;
}

absl::StatusOr<std::string> WholeOne(const std::string& path) {
  const Examined examined = checkpoint::ExamineFolder(path, Depth::kEveryByte);
  if (!examined.usable()) return examined.status;
  return path;
}

absl::StatusOr<std::vector<Examined>> UsableOnes(const run::RunFolder& run) {
  TRAINCTL_ASSIGN_OR_RETURN(std::vector<Examined> all,
                            checkpoint::ExamineAll(run.checkpoints_path(), Depth::kManifest));
  if (all.empty()) return NoneYet(run);
  std::erase_if(all, [](const Examined& one) { return !one.usable(); });
  return all;
}

std::string StepsOf(const std::vector<Examined>& list) {
  if (list.empty()) return "none that can be used";
  return absl::StrJoin(list, ", ",
                       [](std::string* out, const Examined& one) { absl::StrAppend(out, one.info.step); });
}

absl::StatusOr<std::string> OfStep(const run::RunFolder& run, int64_t step) {
  // A damaged checkpoint is reported as damaged, not as missing.
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<Examined> all,
                            checkpoint::ExamineAll(run.checkpoints_path(), Depth::kManifest));
  for (const Examined& one : all) {
    if (one.info.step == step) return WholeOne(one.info.path);
  }
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<Examined> usable, UsableOnes(run));
  return UsageError(absl::StrCat("--step ", step, ": ", run.path(),
                                 " has no checkpoint of this step; it has ", StepsOf(usable),
                                 " (checkpoint.keep)"));
}

absl::StatusOr<std::string> BestOf(const run::RunFolder& run, const std::string& set) {
  TRAINCTL_ASSIGN_OR_RETURN(const telemetry::Evaluations evaluations,
                            telemetry::ReadEvaluations(run.metrics_path()));
  std::vector<std::string> names;
  for (const auto& [name, losses] : evaluations) names.push_back(name);
  if (evaluations.empty()) {
    return UsageError(absl::StrCat("--step best: ", run.path(),
                                   " has evaluated nothing; it takes [[data.eval]] and train.eval_every"));
  }
  if (set.empty() && names.size() > 1) {
    return UsageError(absl::StrCat("--step best: there are several evaluation sets; take best:",
                                   absl::StrJoin(names, " or best:")));
  }
  const auto found = evaluations.find(set.empty() ? names.front() : set);
  if (found == evaluations.end()) {
    return UsageError(absl::StrCat("--step best:", set, ": there is no such evaluation set, but ",
                                   absl::StrJoin(names, ", ")));
  }
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<Examined> usable, UsableOnes(run));
  const Examined* best = nullptr;
  double least = 0;
  for (const Examined& one : usable) {
    const auto loss = found->second.find(one.info.step);
    if (loss == found->second.end() || std::isnan(loss->second)) continue;
    if (best != nullptr && loss->second >= least) continue;
    best = &one;
    least = loss->second;
  }
  if (best == nullptr) {
    return UsageError(
        absl::StrCat("--step best: no step with a checkpoint (", StepsOf(usable),
                     ") was evaluated; make train.eval_every a multiple of checkpoint.every_steps"));
  }
  std::fprintf(stderr, "step %s has the lowest loss of %s: %.4f\n", absl::StrCat(best->info.step).c_str(),
               found->first.c_str(), least);
  return WholeOne(best->info.path);
}

}  // namespace

void AddCheckpointChoice(CLI::App& verb, CheckpointChoice& choice) {
  verb.add_option("RUN", choice.run, "The run folder, or a checkpoint's folder (default: runs/latest)");
  verb.add_option("--step", choice.step,
                  "The checkpoint of this step; `best`: the one with the lowest loss of the evaluation set "
                  "(best:NAME: of this one); default: the newest")
      ->type_name("N");
}

absl::StatusOr<ChosenCheckpoint> ChooseCheckpoint(const CheckpointChoice& choice) {
  if (PathExists(absl::StrCat(choice.run, "/manifest.json"))) {
    std::error_code error;  // the checkpoint may be a link
    const std::filesystem::path real = std::filesystem::canonical(choice.run, error);
    const std::string run = real.parent_path().parent_path().string();
    if (!choice.step.empty())
      return UsageError(absl::StrCat("--step is for a run, and ", choice.run, " is a checkpoint"));
    if (!PathExists(absl::StrCat(run, "/recipe.json"))) {
      return UsageError(
          absl::StrCat(choice.run,
                       " does not lie in a run folder, whose recipe.json says what model it is; to "
                       "train from it: model.weights = ",
                       ShellQuote(choice.run)));
    }
    TRAINCTL_ASSIGN_OR_RETURN(const std::string path, WholeOne(choice.run));
    return ChosenCheckpoint{run, path};
  }
  TRAINCTL_ASSIGN_OR_RETURN(const run::RunFolder run, run::RunFolder::Open(choice.run));
  ChosenCheckpoint chosen{run.path(), ""};
  int64_t step = 0;
  if (choice.step.empty()) {
    TRAINCTL_ASSIGN_OR_RETURN(chosen.path, NewestGood(run));
  } else if (choice.step == kBest || absl::StartsWith(choice.step, "best:")) {
    const size_t begin = std::min(choice.step.size(), kBest.size() + 1);
    TRAINCTL_ASSIGN_OR_RETURN(chosen.path, BestOf(run, choice.step.substr(begin)));
  } else if (absl::SimpleAtoi(choice.step, &step) && step > 0) {
    TRAINCTL_ASSIGN_OR_RETURN(chosen.path, OfStep(run, step));
  } else {
    return UsageError(absl::StrCat("--step ", choice.step, " is not a step, best or best:SET"));
  }
  return chosen;
}

}  // namespace trainctl::cli
