#include "apps/trainctl/launch_needs.h"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "apps/trainctl/host_of_run.h"
#include "apps/trainctl/planned_job.h"
#include "apps/trainctl/progress_view.h"
#include "apps/trainctl/remote_nodes.h"
#include "apps/trainctl/run_monitors.h"
#include "apps/trainctl/slurm_job.h"
#include "apps/trainctl/worker_program.h"
#include "base/dtype.h"
#include "base/files.h"
#include "base/folder_sync.h"
#include "base/process_limits.h"
#include "base/shell_quote.h"
#include "base/status.h"
#include "base/units.h"
#include "checkpoint/checkpoint_io.h"
#include "checkpoint/model_weights.h"
#include "cluster/task_limits.h"
#include "data/batch_source.h"
#include "data/prepared_tokenizer.h"
#include "launcher/worker_environment.h"
#include "model/parameters.h"
#include "optim/optimizer.h"
#include "recipe/derive.h"
#include "run/journal.h"
#include "tokenizer/config_beside.h"
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

// gRPC aborts, or hangs at the end, if the system refuses it a descriptor or a thread. A launch of one, two
// and four workers needed 34, 38 and 47 descriptors and 15 threads.
absl::Status CheckLauncher(const recipe::Recipe& recipe) {
  if (recipe.launch.backend == "kubernetes" || IsSubmitted(recipe)) return absl::OkStatus();
  const int64_t num_local = recipe.launch.backend == "local" ? recipe.cluster.devices_per_node : 1;
  return TryResources({.num_threads = 16, .num_files = 35 + 5 * num_local, .bytes = int64_t{32} << 20},
                      "the launcher");
}

// Workers and their libraries abort, or wait forever, if the system refuses them a thread.
absl::Status CheckTasks(const recipe::Recipe& recipe) {
  if (recipe.launch.backend != "local") return absl::OkStatus();
  rlimit limit;
  std::optional<int64_t> most_of_user;
  if (::getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    most_of_user = static_cast<int64_t>(limit.rlim_cur);
  }
  const int64_t needed =
      cluster::TasksOfRun(recipe.cluster.devices_per_node, recipe.cluster.threads_per_worker.value_or(1));
  for (const cluster::TaskLimit& one : cluster::FindTaskLimits(most_of_user)) {
    if (one.room() >= needed) continue;
    return EnvironmentError(
        absl::StrCat(one.name, ": limit of ", one.most, " processes and threads (", one.in_use,
                     " in use); this run needs at least ", needed,
                     " more. Raise the limit, or use fewer workers (cluster.devices_per_node)"));
  }
  return absl::OkStatus();
}

absl::Status CheckRoom(const recipe::Recipe& recipe, const std::string& folder, int64_t there) {
  const absl::StatusOr<std::optional<int64_t>> found = FreeBytes(folder);
  if (!found.ok()) return Annotate(found.status(), folder);
  if (!found->has_value()) return absl::OkStatus();  // AddNotesOnDisk
  const int64_t free_bytes = **found;
  const int64_t at_once = CheckpointsAtOnce(recipe);
  const int64_t count = std::max<int64_t>(at_once - there, 1);
  const int64_t each_bytes = CheckpointBytes(recipe);
  if (each_bytes <= free_bytes / count) return absl::OkStatus();
  return EnvironmentError(
      absl::StrCat("the disk that holds ", folder, " has ", FormatBytes(free_bytes), " free, but ", count,
                   there > 0 ? " more" : "", count == 1 ? " checkpoint" : " checkpoints", " of ",
                   FormatBytes(each_bytes), count == 1 ? " needs " : " need ",
                   FormatBytes(each_bytes > INT64_MAX / count ? INT64_MAX : each_bytes * count),
                   at_once == recipe.checkpoint.keep + 1
                       ? " (checkpoint.keep + 1: the new one is written before the oldest is removed)"
                       : "",
                   ". Free some space, lower checkpoint.keep, or put run.root on another disk"));
}

// Adds a note for each thing that the file system of `folder` cannot do.
void AddNotesOnDisk(const std::string& folder, std::vector<std::string>& notes) {
  const absl::StatusOr<std::optional<int64_t>> free_bytes = FreeBytes(folder);
  if (free_bytes.ok() && !free_bytes->has_value()) {
    notes.push_back(absl::StrCat(
        "the file system of ", folder,
        " does not report its free space, so trainctl cannot check whether the checkpoints fit"));
  }
  if (!SyncsFolders(folder).value_or(true)) {
    notes.push_back(absl::StrCat("the file system of ", folder,
                                 " cannot sync folders, so a power failure may lose the newest checkpoint"));
  }
}

// Checks the weights that a run starts from. Adds a note if the model's folder contains tensors that are not
// loaded.
absl::Status CheckFirstWeights(const recipe::ModelConfig& model, std::vector<std::string>& notes) {
  if (model.weights == "random") return absl::OkStatus();
  if (model.weights == "from") {
    std::vector<std::string> unused;
    TRAINCTL_RETURN_IF_ERROR(checkpoint::CheckModelFolder(model.from, model.spec, &unused));
    if (unused.size() == 1) {
      notes.push_back(absl::StrCat(model.from, ": tensor ", unused[0], " has no effect and is not loaded"));
    } else if (!unused.empty()) {
      notes.push_back(absl::StrCat(model.from, ": ", unused.size(),
                                   " tensors have no effect and are not loaded, such as ", unused[0]));
    }
    return absl::OkStatus();
  }
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

// Where the launcher runs is another machine's business if the run begins there.
void AddMonitorChecks(const recipe::Recipe& recipe, std::vector<absl::Status>& checks) {
  if (recipe.launch.backend == "kubernetes" || IsSubmitted(recipe)) return;
  for (absl::Status& status : CheckMonitors(recipe)) checks.push_back(std::move(status));
}

// Sentences about the tokens around a text that differ from what the model, or its folder, expects.
std::vector<std::string> NotesOnTokenizer(const recipe::Recipe& recipe) {
  const auto tokenizer = tokenizer::Tokenizer::Load(recipe.data.tokenizer);
  const auto file = tokenizer::Tokenizer::FindFile(recipe.data.tokenizer);
  if (!tokenizer.ok() || !file.ok()) return {};
  std::vector<std::string> notes = tokenizer::DifferencesOfConfigBeside(**tokenizer, *file);
  if (recipe.data.end_of_document != "auto" &&
      !(*tokenizer)->SetEndOfDocument(recipe.data.end_of_document).ok()) {
    return notes;
  }
  const int32_t own_end = (*tokenizer)->end_of_document_id();
  std::vector<int64_t> ends = EndIdsOfModel(recipe).value_or(std::vector<int64_t>());
  ends.push_back(own_end);
  for (const data::PreparedEnd& prepared : data::FindPreparedEnds(recipe.data, **tokenizer)) {
    if (own_end < 0 || std::find(ends.begin(), ends.end(), prepared.id) != ends.end()) continue;
    const absl::string_view found = (*tokenizer)->TokenOf(prepared.id);
    notes.push_back(absl::StrCat("the documents in ", prepared.file, " end with ", found, " (", prepared.id,
                                 "), but the model ends a text with ", (*tokenizer)->TokenOf(own_end), " (",
                                 own_end,
                                 "), so it does not learn to end its answers; prepare the data again, or set "
                                 "data.end_of_document = \"",
                                 found, "\""));
  }
  return notes;
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
      id < 0 ? ", so the model does not learn to end its answers" : "; an exported model gets both",
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
  if (!data::MayKeepDocuments(recipe.data)) return absl::OkStatus();
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
  std::vector<absl::Status> checks = {CheckMachines(recipe, host), CheckLauncher(recipe), CheckTasks(recipe),
                                      launcher::CheckWorkerEnv(recipe.launch.env)};
  data::OpenOptions open = OpenShowing(view, kept);
  open.check_tokens = true;
  data::DataReport report = data::CheckData(recipe, std::move(open));
  const bool data_is_read = report.problems.empty();
  for (absl::Status& status : report.problems) checks.push_back(std::move(status));
  checks.push_back(CheckFirstWeights(recipe.model, report.notes));
  checks.push_back(EndIdsOfModel(recipe).status());
  const std::string& folder = run_dir.empty() ? recipe.run.root : run_dir;
  checks.push_back(CheckRoom(recipe, folder, 0));
  checks.push_back(FindWorkerProgram().status());
  AddMonitorChecks(recipe, checks);
  LaunchNeeds needs = {.missing = std::move(checks),
                       .notes = std::move(report.notes),
                       .end_of_document = recipe.data.end_of_document,
                       .uses = std::move(report.uses)};
  AddNotesOnDisk(folder, needs.notes);
  if (recipe.data.tokenizer == "byte") return needs;
  needs.end_of_document = report.end_of_document.empty() ? "none" : report.end_of_document;
  for (std::string& note : NotesOnTokenizer(recipe)) needs.notes.push_back(std::move(note));
  std::string other_end = data_is_read ? NoteOfOtherEnd(recipe, report.end_of_document) : "";
  if (!other_end.empty()) needs.notes.push_back(std::move(other_end));
  return needs;
}

LaunchNeeds FindMissingToContinue(const recipe::Recipe& recipe, const cluster::Host& host,
                                  const run::RunFolder& run, bool begins_again) {
  const auto saved = checkpoint::ListCheckpoints(run.checkpoints_path());
  std::vector<std::string> notes;
  LaunchNeeds needs = {
      .missing = {CheckMachines(recipe, host), CheckLauncher(recipe), CheckTasks(recipe),
                  launcher::CheckWorkerEnv(recipe.launch.env),
                  begins_again ? CheckFirstWeights(recipe.model, notes) : absl::OkStatus(),
                  CheckRoom(recipe, run.path(), saved.ok() ? static_cast<int64_t>(saved->size()) : 0),
                  FindWorkerProgram().status()},
      .notes = std::move(notes),
      .end_of_document = recipe.data.end_of_document,
      .uses = {}};
  AddMonitorChecks(recipe, needs.missing);
  AddNotesOnDisk(run.path(), needs.notes);
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
    // The recipe's checks also say where a mistake is: "--set: launch.ssh.hosts has 1 machine, but ...".
    const std::string located = absl::StrCat(": ", text);
    const bool is_known = absl::c_any_of(
        texts, [&](const std::string& other) { return other == text || absl::EndsWith(other, located); });
    if (!status.ok() && !is_known) texts.push_back(text);
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
  return UsageError(absl::StrCat(folder, " already contains a run; continue it with: trainctl resume ",
                                 ShellQuote(folder),
                                 " (or launch with --or-resume); for a new run, choose another --run-dir"));
}

}  // namespace trainctl::cli
