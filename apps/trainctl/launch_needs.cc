#include "apps/trainctl/launch_needs.h"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "apps/trainctl/host_of_run.h"
#include "apps/trainctl/planned_job.h"
#include "apps/trainctl/progress_view.h"
#include "apps/trainctl/remote_nodes.h"
#include "apps/trainctl/slurm_job.h"
#include "apps/trainctl/worker_program.h"
#include "base/dtype.h"
#include "base/files.h"
#include "base/shell_quote.h"
#include "base/status.h"
#include "base/units.h"
#include "checkpoint/checkpoint_io.h"
#include "checkpoint/model_weights.h"
#include "data/batch_source.h"
#include "launcher/worker_environment.h"
#include "model/model_spec.h"
#include "optim/optimizer.h"
#include "recipe/derive.h"
#include "run/journal.h"
#include "tokenizer/tokenizer.h"

namespace trainctl::cli {
namespace {

// At most as many lie on the disk at once: a new one is complete before the oldest goes.
int64_t CheckpointsAtOnce(const recipe::Recipe& recipe) {
  const recipe::CheckpointConfig& config = recipe.checkpoint;
  const int64_t most = config.keep + 1 + (config.keep_best.empty() ? 0 : 1);
  if (config.every.has_value() || !config.every_steps.has_value() || recipe.train.steps < 1) return most;
  const int64_t saves = (recipe.train.steps + *config.every_steps - 1) / *config.every_steps;
  return std::min(most, std::max<int64_t>(saves, 1));
}

// With less address space a worker of any size fails at once or, worse, waits for a library's thread that
// could not be started: seen at 1.14 GiB with a model of 1 M parameters, which ran at 1.9 GiB.
constexpr int64_t kLeastAddressBytes = int64_t{3} << 29;

absl::Status CheckAddressSpace() {
  rlimit limit;
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return absl::OkStatus();
  const auto bytes = static_cast<int64_t>(limit.rlim_cur);
  if (bytes >= kLeastAddressBytes) return absl::OkStatus();
  return EnvironmentError(absl::StrCat(
      "ulimit -v: ", FormatBytes(bytes), "; a worker needs more than ", FormatBytes(kLeastAddressBytes),
      " of address space, most of it for LibTorch and its threads. Raise the limit: ulimit "
      "-v unlimited"));
}

absl::Status CheckRoom(const recipe::Recipe& recipe, const std::string& folder, int64_t there) {
  const absl::StatusOr<std::optional<int64_t>> found = FreeBytes(folder);
  if (!found.ok()) return Annotate(found.status(), folder);
  if (!found->has_value()) return absl::OkStatus();  // NoteOfUnknownRoom
  const int64_t free_bytes = **found;
  const int64_t at_once = CheckpointsAtOnce(recipe);
  const int64_t count = std::max<int64_t>(at_once - there, 1);
  const int64_t each_bytes = CheckpointBytes(recipe);
  if (each_bytes <= free_bytes / count) return absl::OkStatus();
  return EnvironmentError(
      absl::StrCat("the disk of ", folder, " has ", FormatBytes(free_bytes), " free; ", count,
                   there > 0 ? " more" : "", count == 1 ? " checkpoint" : " checkpoints", " of ",
                   FormatBytes(each_bytes), count == 1 ? " needs " : " need ",
                   FormatBytes(each_bytes > INT64_MAX / count ? INT64_MAX : each_bytes * count),
                   at_once == recipe.checkpoint.keep + 1
                       ? " (checkpoint.keep + 1: the new one is written before the oldest goes)"
                       : "",
                   ". Free some, lower checkpoint.keep, or put run.root on another disk"));
}

// A sentence if the file system of `folder` does not report its size; else empty.
std::string NoteOfUnknownRoom(const std::string& folder) {
  const absl::StatusOr<std::optional<int64_t>> free_bytes = FreeBytes(folder);
  if (!free_bytes.ok() || free_bytes->has_value()) return "";
  return absl::StrCat("the file system of ", folder,
                      " does not say how much room it has: whether the checkpoints fit is not checked");
}

absl::Status CheckFirstWeights(const recipe::ModelConfig& model) {
  if (model.weights == "random") return absl::OkStatus();
  if (model.weights == "from") return checkpoint::CheckModelFolder(model.from, model.spec);
  // A folder that is not there is the recipe's mistake, and loading it has said so.
  if (!PathExists(model.weights)) return absl::OkStatus();
  return checkpoint::CheckCheckpointFolder(model.weights, model.spec);
}

// Whether the device is there is seen on the nodes, of which this machine may be none. Pods come later.
absl::Status CheckMachines(const recipe::Recipe& recipe, const cluster::Host& host) {
  if (recipe.launch.backend == "kubernetes") return absl::OkStatus();
  if (IsSubmitted(recipe)) return CheckCanSubmit();
  return recipe.launch.backend == "local" ? CheckDeviceIsHere(recipe, host)
                                          : FindRemoteNodes(recipe).status();
}

// A sentence if the model's configs end a text with other tokens than `end`, which ends its training data.
std::string NoteOfOtherEnd(const recipe::Recipe& recipe, const std::string& end) {
  const absl::StatusOr<std::vector<int64_t>> of_model = EndIdsOfModel(recipe);
  const auto tokenizer = tokenizer::Tokenizer::Load(recipe.data.tokenizer);
  if (!of_model.ok() || of_model->empty() || !tokenizer.ok()) return "";
  const int32_t id = end.empty() ? -1 : (*tokenizer)->IdOf(end);
  if (std::find(of_model->begin(), of_model->end(), id) != of_model->end()) return "";
  return absl::StrCat(
      id < 0 ? "no token ends a document" : absl::StrCat("documents end with ", end, " (", id, ")"),
      ", but eos_token_id of the model is ", absl::StrJoin(*of_model, ", "),
      id < 0 ? ": the model does not learn to end an answer" : "; an exported model gets both",
      " (data.end_of_document)");
}

data::OpenOptions OpenShowing(ProgressView& view, data::KeptDocuments* kept) {
  return {
      .progress = [&view](int64_t done_bytes, int64_t total_bytes) { view.Show(done_bytes, total_bytes); },
      .kept = kept};
}

}  // namespace

int64_t CheckpointBytes(const recipe::Recipe& recipe) {
  const optim::Optimizer* optimizer = optim::Find(recipe.optimizer.name);
  const int64_t state_bytes = optimizer == nullptr ? 0 : optimizer->StateBytes();
  return model::NumParameters(recipe.model.spec) *
         (DTypeBytes(recipe::MasterType(recipe.train)) + state_bytes);
}

absl::Status ReadToKeep(const recipe::Recipe& recipe, const Output& output, data::KeptDocuments& kept) {
  if (data::BytesReadAtOpening(recipe.data) < data::KeptDocuments::kMinBytes) return absl::OkStatus();
  ProgressView view(output.stderr_terminal);
  return data::OpenData(recipe, OpenShowing(view, &kept)).status();
}

int64_t CheckpointRoomBytes(const recipe::Recipe& recipe) {
  const int64_t count = CheckpointsAtOnce(recipe);
  const int64_t each_bytes = CheckpointBytes(recipe);
  return each_bytes > INT64_MAX / count ? INT64_MAX : each_bytes * count;
}

LaunchNeeds FindMissing(const recipe::Recipe& recipe, const cluster::Host& host, const std::string& run_dir,
                        const Output& output, data::KeptDocuments* kept) {
  ProgressView view(output.stderr_terminal);
  std::vector<absl::Status> checks = {CheckMachines(recipe, host), CheckAddressSpace(),
                                      launcher::CheckWorkerEnv(recipe.launch.env)};
  data::OpenOptions open = OpenShowing(view, kept);
  open.check_tokens = true;
  data::DataReport report = data::CheckData(recipe, std::move(open));
  for (absl::Status& status : report.problems) checks.push_back(std::move(status));
  checks.push_back(CheckFirstWeights(recipe.model));
  checks.push_back(EndIdsOfModel(recipe).status());
  const std::string& folder = run_dir.empty() ? recipe.run.root : run_dir;
  checks.push_back(CheckRoom(recipe, folder, 0));
  checks.push_back(FindWorkerProgram().status());
  LaunchNeeds needs = {.missing = std::move(checks),
                       .notes = std::move(report.notes),
                       .end_of_document = recipe.data.end_of_document};
  if (std::string note = NoteOfUnknownRoom(folder); !note.empty()) needs.notes.push_back(std::move(note));
  if (recipe.data.tokenizer == "byte") return needs;
  needs.end_of_document = report.end_of_document.empty() ? "none" : report.end_of_document;
  if (std::string note = NoteOfOtherEnd(recipe, report.end_of_document); !note.empty()) {
    needs.notes.push_back(std::move(note));
  }
  return needs;
}

LaunchNeeds FindMissingToContinue(const recipe::Recipe& recipe, const cluster::Host& host,
                                  const run::RunFolder& run, bool begins_again) {
  const auto saved = checkpoint::ListCheckpoints(run.checkpoints_path());
  LaunchNeeds needs = {
      .missing = {CheckMachines(recipe, host), CheckAddressSpace(),
                  launcher::CheckWorkerEnv(recipe.launch.env),
                  begins_again ? CheckFirstWeights(recipe.model) : absl::OkStatus(),
                  CheckRoom(recipe, run.path(), saved.ok() ? static_cast<int64_t>(saved->size()) : 0),
                  FindWorkerProgram().status()},
      .notes = {},
      .end_of_document = recipe.data.end_of_document};
  if (std::string note = NoteOfUnknownRoom(run.path()); !note.empty()) needs.notes.push_back(std::move(note));
  return needs;
}

std::vector<absl::Status> LacksOfRecipe(const recipe::LoadedRecipe& loaded,
                                        const std::vector<std::string>& unset) {
  std::vector<absl::Status> lacks;
  for (const std::vector<std::string>* list : {&unset, &loaded.missing}) {
    for (const std::string& text : *list) lacks.push_back(UsageError(text));
  }
  return lacks;
}

std::vector<std::string> TextsOf(const std::vector<absl::Status>& missing) {
  std::vector<std::string> texts;
  for (const absl::Status& status : missing) {
    const std::string text(status.message());
    if (!status.ok() && std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(text);
  }
  return texts;
}

absl::Status AsOneError(const std::vector<absl::Status>& missing) {
  for (const absl::Status& status : missing) {
    if (!status.ok()) return absl::Status(status.code(), absl::StrJoin(TextsOf(missing), "\n"));
  }
  return absl::OkStatus();
}

bool HoldsARun(const std::string& folder) { return PathExists(folder + "/recipe.json"); }

bool HoldsWork(const std::string& folder) {
  const auto has_bytes = [&](const char* name) {
    return FileBytes(absl::StrCat(folder, "/", name)).value_or(0) > 0;
  };
  // Its checkpoints may be on a disk that is not mounted.
  const std::string journal = folder + "/journal.jsonl";
  if (PathExists(journal)) {
    const absl::StatusOr<std::string> text = ReadFile(journal);
    const absl::StatusOr<run::RunState> state =
        text.ok() ? run::ReplayJournal(*text, journal) : text.status();
    if (!state.ok() || state->last_checkpoint_step >= 0) return HoldsARun(folder);
  }
  std::error_code error;
  const bool has_no_checkpoint = std::filesystem::is_empty(folder + "/checkpoints", error) && !error;
  return HoldsARun(folder) && (!has_no_checkpoint || has_bytes("timings.jsonl") || has_bytes("report.json") ||
                               has_bytes("batch-job.json"));
}

absl::Status AlreadyHoldsARun(const std::string& folder) {
  return UsageError(absl::StrCat(folder, " already holds a run; continue it with: trainctl resume ",
                                 ShellQuote(folder), " (or launch with --or-resume)"));
}

}  // namespace trainctl::cli
