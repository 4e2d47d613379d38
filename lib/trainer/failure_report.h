// Reports a worker's failure to the launcher, so that the status, the journal and the hooks show its cause in
// addition to an exit code.
#pragma once

#include <exception>

#include "absl/status/statusor.h"
#include "trainer/run_worker.h"

namespace trainctl::trainer {

// Reports the error of `outcome`, if it has one, and returns `outcome`.
absl::StatusOr<RunOutcome> ReportIfFailed(const WorkerDeps& deps, absl::StatusOr<RunOutcome> outcome);

// Reports an exception and returns its status. Does not report it if the system has refused memory or a
// thread, because the call to the launcher might then never return.
absl::StatusOr<RunOutcome> ReportException(const WorkerDeps& deps, const std::exception& error);

// While the object exists, an uncaught exception in any thread is printed to stderr and reported as by
// ReportException. The process then exits with code 4, or 5 if the system has refused memory or a thread. For
// example, NCCL's watchdog throws an exception when a collective times out. At most one such object may exist
// at a time.
class ReportsUncaught {
 public:
  explicit ReportsUncaught(const WorkerDeps& deps);
  ~ReportsUncaught();
  ReportsUncaught(const ReportsUncaught&) = delete;
  ReportsUncaught& operator=(const ReportsUncaught&) = delete;

 private:
  std::terminate_handler before_ = nullptr;  // handler that the destructor restores
};

}  // namespace trainctl::trainer
