#include "trainer/failure_report.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "device/error_text.h"

namespace trainctl::trainer {
namespace {

// Without memory or threads, a call to the launcher might never return. Only the exit code and the log then
// show the cause.
bool MayReport(const absl::Status& exception) { return ExitCodeFor(exception) != ExitCode::kEnvironment; }

// The run of this process; null if none is in progress.
std::atomic<const WorkerDeps*> g_running = nullptr;

[[noreturn]] void ReportAndExit() {
  const absl::Status status = device::StatusOfUncaught();
  const std::string why(status.message());
  const bool may_report = MayReport(status);
  const WorkerDeps* const deps = g_running.exchange(nullptr);
  std::fprintf(stderr, "%s\n", why.c_str());
  if (deps != nullptr && may_report) {
    // A collective that takes too long is usually the fault of a peer.
    deps->control->Fail({.rank = deps->rank, .message = why, .peer_failed = true});
  }
  std::_Exit(static_cast<int>(may_report ? ExitCode::kWorkerFailed : ExitCode::kEnvironment));
}

}  // namespace

absl::StatusOr<RunOutcome> ReportIfFailed(const WorkerDeps& deps, absl::StatusOr<RunOutcome> outcome) {
  if (outcome.ok()) return outcome;
  const ExitCode code = ExitCodeFor(outcome.status());
  deps.control->Fail({.rank = deps.rank,
                      .message = std::string(outcome.status().message()),
                      .peer_failed = code == ExitCode::kWorkerFailed,
                      .exit_code = static_cast<int>(code)});
  return outcome;
}

absl::StatusOr<RunOutcome> ReportException(const WorkerDeps& deps, const std::exception& error) {
  const absl::Status status = Annotate(device::StatusOf(error), absl::StrCat("rank ", deps.rank));
  if (!MayReport(status)) return status;
  return ReportIfFailed(deps, status);
}

ReportsUncaught::ReportsUncaught(const WorkerDeps& deps) {
  g_running = &deps;
  before_ = std::set_terminate(ReportAndExit);
}

ReportsUncaught::~ReportsUncaught() {
  std::set_terminate(before_);
  g_running = nullptr;
}

}  // namespace trainctl::trainer
