// Status helpers, exit codes, and checks. All modules return absl::Status or absl::StatusOr at their
// boundaries; TRAINCTL_CHECK is only for bugs in our own code. Thread-safe.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace trainctl {

// The programs' exit codes. 75 is EX_TEMPFAIL; it means that a run was stopped on request and can be resumed.
enum class ExitCode : int {
  kOk = 0,
  kInternal = 1,
  kUsage = 2,
  kInfeasible = 3,
  kWorkerFailed = 4,
  kEnvironment = 5,
  kBadData = 6,
  kCheckFailed = 7,
  kStoppedResumable = 75,
  kStoppedUnsaved = 130,
};

// Each function creates the status for one kind of failure; ExitCodeFor maps it to the exit code given here.
absl::Status UsageError(absl::string_view message);        // 2: invalid recipe or command line
absl::Status InfeasibleError(absl::string_view message);   // 3: nothing fits
absl::Status WorkerError(absl::string_view message);       // 4
absl::Status EnvironmentError(absl::string_view message);  // 5: missing package, denied permission, full disk
absl::Status BadDataError(absl::string_view message);      // 6: bad data file or checkpoint
absl::Status CheckFailedError(absl::string_view message);  // 7
absl::Status InternalError(absl::string_view message);     // 1

// Returns the exit code for `status`: kOk for an OK status, and kInternal for one that was not created by the
// functions above.
ExitCode ExitCodeFor(const absl::Status& status);

// Returns `status` with `context` prepended to its message, for example "while reading X: ...".
absl::Status Annotate(const absl::Status& status, absl::string_view context);

[[noreturn]] void CheckFailure(const char* file, int line, const char* expression, absl::string_view message);

}  // namespace trainctl

#define TRAINCTL_CHECK(condition)               \
  (__builtin_expect(!!(condition), 1) ? (void)0 \
                                      : ::trainctl::CheckFailure(__FILE__, __LINE__, #condition, {}))
#define TRAINCTL_CHECK_MSG(condition, ...) \
  (__builtin_expect(!!(condition), 1)      \
       ? (void)0                           \
       : ::trainctl::CheckFailure(__FILE__, __LINE__, #condition, ::absl::StrCat(__VA_ARGS__)))

#define TRAINCTL_CONCAT_INNER(a, b) a##b
#define TRAINCTL_CONCAT(a, b) TRAINCTL_CONCAT_INNER(a, b)

#define TRAINCTL_RETURN_IF_ERROR(expression)           \
  do {                                                 \
    ::absl::Status trainctl_status = (expression);     \
    if (!trainctl_status.ok()) return trainctl_status; \
  } while (false)

#define TRAINCTL_ASSIGN_OR_RETURN(target, expression) \
  TRAINCTL_ASSIGN_OR_RETURN_IMPL(TRAINCTL_CONCAT(trainctl_result_, __LINE__), target, expression)
#define TRAINCTL_ASSIGN_OR_RETURN_IMPL(result, target, expression) \
  auto result = (expression);                                      \
  if (!result.ok()) return std::move(result).status();             \
  target = std::move(result).value()
