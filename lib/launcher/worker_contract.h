// The contract between the launcher and a worker program: its command line and its exit codes. Plain data;
// thread-safe.
//
//   worker --run-dir DIR --socket PATH --token-file PATH --worker-id K [--progress-fd N] [--node NAME]
//          [--address IP] [--incarnation N] [more of its own]
//
// A worker starts with the signals of worker_signals.h ignored and blocked.
//
// Exit code 0 means that the worker finished, and 75 that it stopped after saving; the worker announces both
// beforehand (rpc::WorkerClient::Leave). Any other code is a failure. Failures with codes 2, 3, 5, 6, and 7
// cannot be fixed by a restart (see ExitCode).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace trainctl::launcher {

// The name of the node if there is only one.
inline constexpr char kLocalNode[] = "local";
inline constexpr char kLoopback[] = "127.0.0.1";

struct WorkerFlags {
  std::string run_dir;
  std::string socket;
  std::string token_file;
  int worker_id = -1;
  int progress_fd = -1;                        // inherited ProgressBoard; -1 if none
  std::string node = std::string(kLocalNode);  // node whose agent listens on `socket`
  // Address at which the other workers reach this machine.
  std::string address = std::string(kLoopback);
  int64_t incarnation = 0;  // attempt that started this process of the member
};

std::vector<std::string> FormatWorkerFlags(const WorkerFlags& flags);
// Removes the contract's flags from `args` (argv without the program) and leaves the other arguments in
// order. Returns UsageError if a flag is missing, repeated, or malformed.
absl::StatusOr<WorkerFlags> ParseWorkerFlags(std::vector<std::string>& args);

// Returns the path of the NVIDIA plugin for this worker program: next to the program or in ../lib. The file
// may not exist.
std::string CudaPluginOf(const std::string& worker_program);

// How long a libgomp thread spins at a barrier before it sleeps. With the library's much longer default,
// spinning threads can keep the thread they are waiting for off the cores when other programs are busy. On
// two cores with two busy neighbors, the default slowed steps down by a factor of seven, compared with a
// factor of two for this value. On an idle machine there is no difference.
inline constexpr char kSpinVariable[] = "GOMP_SPINCOUNT";
inline constexpr char kSpinCount[] = "4000";
// Whether the environment already controls how threads wait, through GOMP_SPINCOUNT or OMP_WAIT_POLICY.
bool SaysHowThreadsWait(absl::Span<const std::string> environment);

// Returns the member name of worker `worker_id` on `node`: "<node>/<worker id>".
std::string MemberName(absl::string_view node, int worker_id);
// Returns the prefix of all member names on `node`: "<node>/".
std::string MemberPrefix(absl::string_view node);

}  // namespace trainctl::launcher
