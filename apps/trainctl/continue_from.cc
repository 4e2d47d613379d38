#include "apps/trainctl/continue_from.h"

#include <cstdio>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/json.h"
#include "base/status.h"
#include "checkpoint/checkpoint_io.h"
#include "checkpoint/examine.h"
#include "checkpoint/folder_names.h"
#include "checkpoint/manifest.h"
#include "launcher/printable_text.h"
#include "telemetry/log_reader.h"

namespace trainctl::cli {
namespace {

constexpr char kJournal[] = "journal.jsonl";

absl::StatusOr<bool> JournalIsRubbish(const run::RunFolder& run) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string text, ReadFile(run.journal_path()));
  return run::IsRubbish(text);
}

absl::StatusOr<Start> FromScratch(const run::RunFolder& run, bool rubbish) {
  const auto good = checkpoint::FindNewestGood(run.checkpoints_path(), nullptr);
  if (good.ok()) {
    return UsageError(
        absl::StrCat(run.path(), " has a valid checkpoint at step ", good->step,
                     ", but --from-scratch is only for a run that has none. Resume without it, or "
                     "launch a new run in another folder"));
  }
  Start start;
  start.from_scratch = true;
  std::error_code ignored;
  if (rubbish) start.set_aside.emplace_back(kJournal);
  if (!std::filesystem::is_empty(run.checkpoints_path(), ignored) && !ignored) {
    start.set_aside.emplace_back("checkpoints");
  }
  for (const char* log : {"metrics.jsonl", "timings.jsonl"}) {
    if (PathExists(absl::StrCat(run.path(), "/", log))) start.set_aside.emplace_back(log);
  }
  return start;
}

// The journal tells nothing; whether there is something to lose, the checkpoints tell.
absl::StatusOr<Start> WithoutJournal(const run::RunFolder& run, const absl::Status& unreadable) {
  const auto good = checkpoint::FindNewestGood(run.checkpoints_path(), nullptr);
  if (!good.ok()) {
    return BadDataError(absl::StrCat(unreadable.message(), "; none of its lines can be read, and ",
                                     good.status().message(),
                                     ". Restore one of them, or restart at step 1: trainctl resume ",
                                     run.path(), " --from-scratch (or launch --or-resume --from-scratch)"));
  }
  Start start;
  start.step = good->step;
  start.set_aside.emplace_back(kJournal);
  start.notes.push_back(absl::StrCat("warning: ", unreadable.message(),
                                     "; none of its lines can be read, so it is moved aside, and the run "
                                     "continues from the checkpoint at step ",
                                     good->step));
  return start;
}

// True if the run was stopped or killed while it evaluated the step of its newest checkpoint: that checkpoint
// has the step's record, and the log does not have the evaluation.
bool LacksEvaluation(const run::RunFolder& run, int64_t step) {
  const std::string path = absl::StrCat(run.checkpoints_path(), "/", checkpoint::CommittedName(step), "/",
                                        checkpoint::kManifestName);
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return false;
  const absl::StatusOr<checkpoint::Manifest> manifest = checkpoint::ParseManifest(*text, path);
  if (!manifest.ok()) return false;
  const absl::StatusOr<Json> state = ParseJson(manifest->meta.state_json, path);
  return state.ok() && state->is_object() && state->contains("unlogged") &&
         !telemetry::HasEvaluation(run.metrics_path(), step);
}

absl::StatusOr<Start> WithJournal(const run::RunFolder& run, const run::RunState& state) {
  const checkpoint::NewestCommitted newest = run.Checkpoints();
  if (newest.step < 0) TRAINCTL_RETURN_IF_ERROR(run.CheckMayBegin(state));
  Start start;
  start.step = newest.step;
  if (newest.step > 0 && LacksEvaluation(run, newest.step)) --start.step;
  for (const std::string& failure : state.failures) {
    start.notes.push_back(absl::StrCat("note: an earlier launch failed: ", launcher::PrintableText(failure)));
  }
  // What is wrong with a newer one that is there, the worker says that reads it.
  if (newest.step >= 0 && newest.passed_over.empty() && newest.step < state.last_checkpoint_step) {
    start.notes.push_back(absl::StrCat("warning: ", run.journal_path(), " records a checkpoint at step ",
                                       state.last_checkpoint_step,
                                       ", which is missing; the newest one is at step ", newest.step));
  }
  return start;
}

}  // namespace

absl::StatusOr<Start> DecideStart(const run::RunFolder& run, bool from_scratch) {
  const absl::StatusOr<run::RunState> state = run.ReadState();
  bool rubbish = false;
  if (!state.ok()) {
    TRAINCTL_ASSIGN_OR_RETURN(rubbish, JournalIsRubbish(run));
    if (!rubbish) return state.status();
  }
  if (from_scratch) return FromScratch(run, rubbish);
  TRAINCTL_ASSIGN_OR_RETURN(Start start,
                            rubbish ? WithoutJournal(run, state.status()) : WithJournal(run, *state));
  if (start.step > 0 && !PathExists(run.metrics_path())) {
    start.notes.push_back(
        absl::StrCat("note: ", run.metrics_path(), " is missing; a new one starts after step ", start.step));
  }
  return start;
}

absl::Status PrepareStart(run::RunFolder& run, const Start& start) {
  if (start.set_aside.empty() && !start.from_scratch && start.changes.empty()) return absl::OkStatus();
  // From here on a launch of the past, which may not know that it is one, commits nothing more.
  TRAINCTL_RETURN_IF_ERROR(run.BeginTerm());
  for (const std::string& name : start.set_aside) {
    TRAINCTL_ASSIGN_OR_RETURN(const std::string aside, run.SetAside(name));
    std::fprintf(stderr, "moved aside: %s is now %s\n", name.c_str(), aside.c_str());
  }
  TRAINCTL_RETURN_IF_ERROR(MakeDirs(run.checkpoints_path()));
  TRAINCTL_RETURN_IF_ERROR(checkpoint::RevokeUnfinished(run.checkpoints_path()));
  const RealClock clock;
  TRAINCTL_ASSIGN_OR_RETURN(run::Journal journal, run::Journal::Open(run.journal_path(), &clock));
  if (start.from_scratch) {
    TRAINCTL_RETURN_IF_ERROR(journal.Append({run::EventKind::kFromScratch}));
  } else if (!start.set_aside.empty()) {
    // So that the new journal knows what is there to be lost.
    run::JournalEvent event{run::EventKind::kCheckpoint};
    event.step = start.step;
    TRAINCTL_RETURN_IF_ERROR(journal.Append(std::move(event)));
  }
  const int64_t newest = run.Checkpoints().step;  // it may have committed one since the start was decided
  for (const std::string& change : start.changes) {
    run::JournalEvent event{run::EventKind::kChange};
    event.step = newest;
    event.message = change;
    TRAINCTL_RETURN_IF_ERROR(journal.Append(std::move(event)));
  }
  return absl::OkStatus();
}

}  // namespace trainctl::cli
