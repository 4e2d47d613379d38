// What the launcher and a worker program agree on: the command line and the exit codes. Plain;
// thread safe.
//
//   worker --run-dir DIR --socket PATH --token-file PATH --worker-id K [--progress-fd N] [--node NAME]
//          [--address IP] [--incarnation N] [more of its own]
//
// It starts with the signals of worker_signals.h ignored and blocked.
//
// Exit code 0: finished, 75: stopped after saving (both announced beforehand, see
// rpc::WorkerClient::Leave); anything else is a failure. 2, 3, 5, 6 and 7 (style of ExitCode) are
// failures that a restart cannot cure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace trainctl::launcher {

// The node's name where there is but one.
inline constexpr char kLocalNode[] = "local";
inline constexpr char kLoopback[] = "127.0.0.1";

struct WorkerFlags {
  std::string run_dir;
  std::string socket;
  std::string token_file;
  int worker_id = -1;
  int progress_fd = -1;                          // an inherited ProgressBoard; -1: none
  std::string node = std::string(kLocalNode);    // whose agent listens on the socket
  std::string address = std::string(kLoopback);  // of this machine, on which the other workers reach it
  int64_t incarnation = 0;  // of its member's process: the attempt that it was started in
};

std::vector<std::string> FormatWorkerFlags(const WorkerFlags& flags);
// Takes its own flags out of `args` (argv without the program) and leaves the others, in order.
// UsageError when one is missing, repeated or not readable.
absl::StatusOr<WorkerFlags> ParseWorkerFlags(std::vector<std::string>& args);

// The plugin for NVIDIA's devices of this worker program: beside it, or in ../lib. It need not be there.
std::string CudaPluginOf(const std::string& worker_program);

// How long a thread of libgomp spins at a barrier before it sleeps. Its own choice is so long that, where
// other programs want the cores too, the one that is waited for is kept from them: on two cores with two busy
// neighbours steps took seven times as long as alone, against twice with this; alone there is no difference.
inline constexpr char kSpinVariable[] = "GOMP_SPINCOUNT";
inline constexpr char kSpinCount[] = "4000";
// Which the user may have said: "GOMP_SPINCOUNT=..." or "OMP_WAIT_POLICY=..." is among these.
bool SaysHowThreadsWait(absl::Span<const std::string> environment);

// The member name of worker `worker_id` of `node`: "<node>/<worker id>".
std::string MemberName(absl::string_view node, int worker_id);
// That all members of `node` begin with: "<node>/".
std::string MemberPrefix(absl::string_view node);

}  // namespace trainctl::launcher
