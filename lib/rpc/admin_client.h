// Queries the status of a running job and asks it to save or stop. Calls use the launcher's Unix socket on
// its own host, and the network from other hosts. The caller must be able to read the job's token or its
// access file. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rpc/access_file.h"

namespace trainctl::rpc {

struct WorkerStatus {
  std::string node;
  int rank = -1;
  int64_t pid = 0;
  int64_t step = -1;
  std::string phase;
  std::string state;  // "expected", "joined", "prepared", "running", "finished", "stopped" or "exited"
  absl::Duration silent;
  std::optional<int64_t> peak_bytes;  // peak tensor memory on its device so far
};

struct JobStatus {
  std::string phase;  // "gathering", "preparing", "recording", "running", "failed" or "finished"
  int64_t generation = 0;
  std::string stop;  // requested stop: "", "after save" or "now"
  int64_t pid = 0;   // the launcher's process ID
  std::vector<WorkerStatus> workers;
};

// A job on this machine.
struct LocalJob {
  std::string socket;
  std::string token_file;
  std::string folder = {};  // JobFolder::id of the run folder that the caller means
};

// Every call returns Aborted if the launcher works on another run folder, of which the caller's is a copy.

// Returns the job's status. Returns Unavailable if no process is listening on the socket or it does not
// answer within `timeout`.
absl::StatusOr<JobStatus> GetJobStatus(const LocalJob& job, absl::Duration timeout = absl::Seconds(3));
// Asks the job to stop. Returns once the job has accepted the request, without waiting for it to stop.
absl::Status StopJob(const LocalJob& job, bool now, absl::string_view reason,
                     absl::Duration timeout = absl::Seconds(3));

// Requests a checkpoint after the current step. Returns once the job has accepted the request, or
// FailedPrecondition if its workers are not training.
absl::Status SaveJob(const LocalJob& job, absl::Duration timeout = absl::Seconds(3));

// The same calls over the network. They try the endpoints in turn, each for `timeout`, and return Unavailable
// if none answers.
absl::StatusOr<JobStatus> GetJobStatus(const LauncherAccess& access,
                                       absl::Duration timeout = absl::Seconds(3));
absl::Status StopJob(const LauncherAccess& access, bool now, absl::string_view reason,
                     absl::Duration timeout = absl::Seconds(3));
absl::Status SaveJob(const LauncherAccess& access, absl::Duration timeout = absl::Seconds(3));

}  // namespace trainctl::rpc
