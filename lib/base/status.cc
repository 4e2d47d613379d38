#include "base/status.h"

#include <cstdio>
#include <cstdlib>

namespace trainctl {

absl::Status UsageError(absl::string_view message) { return absl::InvalidArgumentError(message); }
absl::Status InfeasibleError(absl::string_view message) { return absl::ResourceExhaustedError(message); }
absl::Status WorkerError(absl::string_view message) { return absl::AbortedError(message); }
absl::Status EnvironmentError(absl::string_view message) { return absl::FailedPreconditionError(message); }
absl::Status BadDataError(absl::string_view message) { return absl::DataLossError(message); }
absl::Status CheckFailedError(absl::string_view message) { return absl::OutOfRangeError(message); }
absl::Status InternalError(absl::string_view message) { return absl::InternalError(message); }

ExitCode ExitCodeFor(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return ExitCode::kOk;
    case absl::StatusCode::kInvalidArgument:
      return ExitCode::kUsage;
    case absl::StatusCode::kResourceExhausted:
      return ExitCode::kInfeasible;
    case absl::StatusCode::kAborted:
      return ExitCode::kWorkerFailed;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kDeadlineExceeded:
      return ExitCode::kEnvironment;
    case absl::StatusCode::kDataLoss:
      return ExitCode::kBadData;
    case absl::StatusCode::kOutOfRange:
      return ExitCode::kCheckFailed;
    default:
      return ExitCode::kInternal;
  }
}

absl::Status Annotate(const absl::Status& status, absl::string_view context) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(context, ": ", status.message()));
}

void CheckFailure(const char* file, int line, const char* expression, absl::string_view message) {
  std::fprintf(stderr, "trainctl: internal error at %s:%d: %s %.*s\n", file, line, expression,
               static_cast<int>(message.size()), message.data());
  std::abort();
}

}  // namespace trainctl
