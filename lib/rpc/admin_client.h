// Asking a running job, and telling it to save or stop: on the launcher's host over its Unix socket, from
// others over the network. Whoever can read the job's token or its admin file may. Thread safe.
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
  std::string state;  // expected, joined, prepared, running, finished, stopped, exited
  absl::Duration silent;
  std::optional<int64_t> peak_bytes;  // of its tensors on its device, so far
};

struct JobStatus {
  std::string phase;  // gathering, preparing, recording, running, failed, finished
  int64_t generation = 0;
  std::string stop;  // "", "after save", "now"
  int64_t pid = 0;   // of the launcher
  std::vector<WorkerStatus> workers;
};

// A job on this machine.
struct LocalJob {
  std::string socket;
  std::string token_file;
  std::string folder = {};  // JobFolder::id of the run folder that is meant
};

// In all calls Aborted if the launcher works on another folder, of which this one is a copy.

// Unavailable when nobody listens on the socket or it does not answer within `timeout`.
absl::StatusOr<JobStatus> GetJobStatus(const LocalJob& job, absl::Duration timeout = absl::Seconds(3));
// Returns when the job has taken note, not when it has stopped.
absl::Status StopJob(const LocalJob& job, bool now, absl::string_view reason,
                     absl::Duration timeout = absl::Seconds(3));

// Asks for a checkpoint after the step that is being trained; returns when the job has taken note.
// FailedPrecondition while its workers do not train.
absl::Status SaveJob(const LocalJob& job, absl::Duration timeout = absl::Seconds(3));

// Over the network. One endpoint is tried after the other, each for `timeout`; Unavailable when none answers.
absl::StatusOr<JobStatus> GetJobStatus(const LauncherAccess& access,
                                       absl::Duration timeout = absl::Seconds(3));
absl::Status StopJob(const LauncherAccess& access, bool now, absl::string_view reason,
                     absl::Duration timeout = absl::Seconds(3));
absl::Status SaveJob(const LauncherAccess& access, absl::Duration timeout = absl::Seconds(3));

}  // namespace trainctl::rpc
