#include "apps/trainctl/model_source.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <initializer_list>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/files.h"
#include "base/folder_entries.h"
#include "base/folder_paths.h"
#include "base/shell_quote.h"
#include "base/status.h"
#include "checkpoint/examine.h"
#include "checkpoint/model_weights.h"
#include "recipe/load.h"
#include "recipe/model_folder.h"
#include "recipe/paths.h"
#include "recipe/url.h"
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
  if (list.empty()) return "none usable";
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
                                 " has no checkpoint at this step; available: ", StepsOf(usable),
                                 " (see checkpoint.keep)"));
}

absl::StatusOr<std::string> BestOf(const run::RunFolder& run, const std::string& set) {
  TRAINCTL_ASSIGN_OR_RETURN(const telemetry::Evaluations evaluations,
                            telemetry::ReadEvaluations(run.metrics_path()));
  std::vector<std::string> names;
  for (const auto& [name, losses] : evaluations) names.push_back(name);
  if (evaluations.empty()) {
    return UsageError(
        absl::StrCat("--step best: ", run.path(),
                     " has no evaluations; add [[data.eval]] and train.eval_every to the recipe"));
  }
  if (set.empty() && names.size() > 1) {
    return UsageError(absl::StrCat("--step best: the run has several evaluation sets; use best:",
                                   absl::StrJoin(names, " or best:")));
  }
  const auto found = evaluations.find(set.empty() ? names.front() : set);
  if (found == evaluations.end()) {
    return UsageError(absl::StrCat("--step best:", set, ": the run has no evaluation set ", set, "; it has ",
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

// A checkpoint's folder, which may be a link.
absl::StatusOr<ModelSource> NamedCheckpoint(const ModelChoice& choice) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(choice.path, error);
  const std::string run = real.parent_path().parent_path().string();
  if (!choice.step.empty())
    return UsageError(absl::StrCat("--step applies to a run, but ", choice.path, " is a checkpoint"));
  if (!PathExists(absl::StrCat(run, "/recipe.json"))) {
    return UsageError(absl::StrCat(choice.path,
                                   " is not inside a run folder, so there is no recipe.json that describes "
                                   "its model; to train from it, set model.weights = ",
                                   ShellQuote(choice.path)));
  }
  TRAINCTL_ASSIGN_OR_RETURN(const std::string path, WholeOne(choice.path));
  return ModelSource{.run = run, .checkpoint = path};
}

absl::StatusOr<ModelSource> CheckpointOfRun(const ModelChoice& choice) {
  TRAINCTL_ASSIGN_OR_RETURN(const run::RunFolder run, run::RunFolder::Open(choice.path));
  ModelSource source{.run = run.path()};
  int64_t step = 0;
  if (choice.step.empty()) {
    TRAINCTL_ASSIGN_OR_RETURN(source.checkpoint, NewestGood(run));
  } else if (choice.step == kBest || absl::StartsWith(choice.step, "best:")) {
    const size_t begin = std::min(choice.step.size(), kBest.size() + 1);
    TRAINCTL_ASSIGN_OR_RETURN(source.checkpoint, BestOf(run, choice.step.substr(begin)));
  } else if (absl::SimpleAtoi(choice.step, &step) && step > 0) {
    TRAINCTL_ASSIGN_OR_RETURN(source.checkpoint, OfStep(run, step));
  } else {
    return UsageError(absl::StrCat("--step ", choice.step, " is not a step, best or best:SET"));
  }
  return source;
}

bool HoldsOneOf(const std::string& folder, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(),
                     [&](const char* name) { return PathExists(absl::StrCat(folder, "/", name)); });
}

bool HoldsWeights(const std::string& folder) {
  const std::vector<std::string> names = FolderEntries(folder);
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return absl::EndsWith(name, ".safetensors"); });
}

bool IsRun(const std::string& path) {
  return path.empty() || HoldsOneOf(path, {"journal.jsonl", "recipe.json"});
}
bool IsCheckpoint(const std::string& path) { return HoldsOneOf(path, {"manifest.json"}); }
bool IsHuggingFaceFolder(const std::string& path) {
  return HoldsOneOf(path, {"config.json"}) || HoldsWeights(path);
}

absl::StatusOr<ModelSource> HuggingFaceFolder(const ModelChoice& choice, const recipe::Access& access) {
  if (!choice.step.empty())
    return UsageError(
        absl::StrCat("--step applies to a run, but ", choice.path, " is a Hugging Face folder"));
  const std::string folder = AbsolutePath(choice.path, access.working_dir);
  if (!HoldsOneOf(folder, {"config.json"})) {
    return EnvironmentError(absl::StrCat(
        choice.path, " has weights but no config.json, which describes the model; download it as well"));
  }
  TRAINCTL_ASSIGN_OR_RETURN(const recipe::Recipe recipe, recipe::RecipeOfFolder(folder, access));
  TRAINCTL_RETURN_IF_ERROR(checkpoint::CheckModelFolder(folder, recipe.model.spec));
  return ModelSource{.folder = folder};
}

absl::Status NoModelAt(const std::string& path, const recipe::Access& access) {
  if (!PathExists(path)) {
    TRAINCTL_RETURN_IF_ERROR(recipe::RefuseUrl(path));
    return UsageError(absl::StrCat("no such folder: ", path,
                                   "; specify a run, a checkpoint or a Hugging Face folder",
                                   recipe::HowToFetch(AbsolutePath(path, access.working_dir), access)));
  }
  if (!access.is_folder(path))
    return UsageError(absl::StrCat(path, " is a file; specify the model's folder"));
  const bool is_cache = PathExists(absl::StrCat(path, "/snapshots"));
  return UsageError(absl::StrCat(
      path, " does not contain a model: a run folder contains journal.jsonl and recipe.json, a checkpoint ",
      "manifest.json, a Hugging Face folder config.json and *.safetensors",
      is_cache ? "; it is a Hugging Face cache folder, so specify one of the folders in its snapshots/"
               : ""));
}

void AddPathAndStep(CLI::App& verb, ModelChoice& choice, const std::string& what) {
  verb.add_option("RUN", choice.path, what);
  verb.add_option(
          "--step", choice.step,
          "Use the checkpoint at this step (default: the newest). `best` selects the one with the lowest "
          "evaluation loss, and `best:NAME` the one with the lowest loss on evaluation set NAME")
      ->type_name("N");
}

}  // namespace

void AddModelChoice(CLI::App& verb, ModelChoice& choice) {
  AddPathAndStep(verb, choice,
                 "Run folder, checkpoint folder, or Hugging Face model folder (default: runs/latest)");
}

void AddCheckpointChoice(CLI::App& verb, ModelChoice& choice) {
  AddPathAndStep(verb, choice, "Run folder or checkpoint folder (default: runs/latest)");
}

absl::StatusOr<ModelSource> FindModel(const ModelChoice& choice) {
  if (IsRun(choice.path)) return CheckpointOfRun(choice);
  if (IsCheckpoint(choice.path)) return NamedCheckpoint(choice);
  const recipe::Access access = recipe::RealAccess();
  return IsHuggingFaceFolder(choice.path) ? HuggingFaceFolder(choice, access)
                                          : NoModelAt(choice.path, access);
}

absl::StatusOr<ModelSource> FindCheckpoint(const ModelChoice& choice) {
  if (IsRun(choice.path) || IsCheckpoint(choice.path) || !IsHuggingFaceFolder(choice.path)) {
    return FindModel(choice);
  }
  return UsageError(
      absl::StrCat(choice.path, " is already a Hugging Face folder; specify a run or a checkpoint"));
}

}  // namespace trainctl::cli
