#include "apps/trainctl/job_access.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/lock_owner.h"
#include "base/shell_quote.h"
#include "base/status.h"
#include "launcher/printable_text.h"
#include "rpc/access_file.h"

namespace trainctl::cli {
namespace {

constexpr absl::Duration kAskInterval = absl::Seconds(5);
constexpr int kMaxSilent = 6;

// Of a run on several machines that is not this host's.
absl::StatusOr<rpc::LauncherAccess> AccessFromHere(const run::RunFolder& run, const run::RunState& state,
                                                   rpc::Role role) {
  absl::StatusOr<rpc::LauncherAccess> access = rpc::ReadAccessFile(run.path(), role);
  if (access.ok()) access->folder = run.id();
  if (!absl::IsNotFound(access.status())) return access;
  return EnvironmentError(absl::StrCat(
      "its launcher, ", LauncherName(state),
      state.nodes.empty() ? ", can be reached only from that host" : ", cannot be reached from this host"));
}

rpc::LocalJob JobHere(const run::RunFolder& run, const run::RunState& state) {
  return {state.socket, run.token_path(), run.id()};
}

}  // namespace

bool IsElsewhere(const run::RunFolder& run, const run::RunState& state) {
  if (state.host.empty() || state.host == HostName()) return false;
  // Machines get new names, and containers have their own.
  return !HasSameKernel(run.Owner(), ThisProcessAsOwner());
}

std::string LauncherName(const run::RunState& state) {
  return absl::StrCat(state.host, " (process ", state.launcher_pid, ")");
}

absl::StatusOr<rpc::JobStatus> AskLauncher(const run::RunFolder& run, const run::RunState& state) {
  if (!IsElsewhere(run, state)) {
    absl::StatusOr<rpc::JobStatus> status = rpc::GetJobStatus(JobHere(run, state));
    // The socket is for the user who launched the run; another one may look as from another machine.
    if (status.ok() || absl::IsAborted(status.status()) ||
        !PathExists(rpc::AccessPath(run.path(), rpc::Role::kReader)))
      return status;
  }
  TRAINCTL_ASSIGN_OR_RETURN(const rpc::LauncherAccess access, AccessFromHere(run, state, rpc::Role::kReader));
  return rpc::GetJobStatus(access);
}

absl::Status AskToSave(const run::RunFolder& run, const run::RunState& state) {
  if (!IsElsewhere(run, state)) return rpc::SaveJob(JobHere(run, state));
  TRAINCTL_ASSIGN_OR_RETURN(const rpc::LauncherAccess access, AccessFromHere(run, state, rpc::Role::kAdmin));
  return rpc::SaveJob(access);
}

absl::Status AskToStop(const run::RunFolder& run, const run::RunState& state, bool now) {
  if (!IsElsewhere(run, state)) return rpc::StopJob(JobHere(run, state), now, "trainctl stop");
  TRAINCTL_ASSIGN_OR_RETURN(const rpc::LauncherAccess access, AccessFromHere(run, state, rpc::Role::kAdmin));
  return rpc::StopJob(access, now, absl::StrCat("trainctl stop on ", HostName()));
}

absl::Status TakeOver(run::RunFolder& run) {
  if (run.FindWork() == run::RunFolder::Work::kUnknown) {
    const absl::StatusOr<run::RunState> state = run.ReadState();
    if (state.ok() && AskLauncher(run, *state).ok()) {
      return EnvironmentError(absl::StrCat(run.path(), " cannot be taken over: its launcher, ",
                                           LauncherName(*state), ", is alive. End it with: trainctl stop ",
                                           ShellQuote(run.path())));
    }
  }
  return run.TakeOver();
}

bool RunWatch::GoesOn() {
  const absl::StatusOr<run::RunState> state = run_.ReadState();
  if (!state.ok() || state->status != run::RunStatus::kRunning) return false;
  const run::RunFolder::Work work = run_.FindWork();
  if (work != run::RunFolder::Work::kUnknown) return work == run::RunFolder::Work::kSeen;
  const RealClock clock;
  if (clock.Monotonic() < next_ask_) return true;
  const absl::StatusOr<rpc::JobStatus> answer = AskLauncher(run_, *state);
  next_ask_ = clock.Monotonic() + kAskInterval;
  if (answer.ok()) {
    num_silent_ = 0;
    return true;
  }
  if (++num_silent_ < kMaxSilent) return true;
  std::fputs(launcher::PrintableText(absl::StrCat("trainctl: no response from the launcher, ",
                                                  LauncherName(*state), ": ", answer.status().message()))
                 .c_str(),
             stderr);
  std::fputs("\n", stderr);
  return false;
}

}  // namespace trainctl::cli
