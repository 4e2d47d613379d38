#include "launcher/worker_contract.h"

#include <set>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/plugin_path.h"
#include "base/status.h"

namespace trainctl::launcher {

std::vector<std::string> FormatWorkerFlags(const WorkerFlags& flags) {
  std::vector<std::string> args = {
      "--run-dir",    flags.run_dir,    "--socket",    flags.socket,
      "--token-file", flags.token_file, "--worker-id", absl::StrCat(flags.worker_id)};
  if (flags.progress_fd >= 0) args.insert(args.end(), {"--progress-fd", absl::StrCat(flags.progress_fd)});
  if (flags.node != kLocalNode) args.insert(args.end(), {"--node", flags.node});
  if (flags.incarnation != 0) args.insert(args.end(), {"--incarnation", absl::StrCat(flags.incarnation)});
  if (flags.address != kLoopback) args.insert(args.end(), {"--address", flags.address});
  return args;
}

absl::StatusOr<WorkerFlags> ParseWorkerFlags(std::vector<std::string>& args) {
  WorkerFlags flags;
  std::string worker_id;
  std::string progress_fd;
  std::string incarnation;
  std::vector<std::string> others;
  std::set<std::string> seen;
  for (size_t i = 0; i < args.size(); ++i) {
    std::string* target = args[i] == "--run-dir"       ? &flags.run_dir
                          : args[i] == "--socket"      ? &flags.socket
                          : args[i] == "--token-file"  ? &flags.token_file
                          : args[i] == "--worker-id"   ? &worker_id
                          : args[i] == "--progress-fd" ? &progress_fd
                          : args[i] == "--node"        ? &flags.node
                          : args[i] == "--address"     ? &flags.address
                          : args[i] == "--incarnation" ? &incarnation
                                                       : nullptr;
    if (target == nullptr) {
      others.push_back(args[i]);
      continue;
    }
    if (i + 1 == args.size()) return UsageError(absl::StrCat(args[i], " requires a value"));
    if (!seen.insert(args[i]).second) return UsageError(absl::StrCat(args[i], " was given twice"));
    *target = args[++i];
  }
  for (const char* name : {"--run-dir", "--socket", "--token-file", "--worker-id"}) {
    if (!seen.contains(name)) {
      return UsageError(absl::StrCat(name, " is missing; workers are started by 'trainctl launch'"));
    }
  }
  if (!absl::SimpleAtoi(worker_id, &flags.worker_id) || flags.worker_id < 0) {
    return UsageError(absl::StrCat("--worker-id must be a non-negative integer, not '", worker_id, "'"));
  }
  if (!progress_fd.empty() && (!absl::SimpleAtoi(progress_fd, &flags.progress_fd) || flags.progress_fd < 3)) {
    return UsageError(absl::StrCat("--progress-fd must be a descriptor, not '", progress_fd, "'"));
  }
  if (!incarnation.empty() && (!absl::SimpleAtoi(incarnation, &flags.incarnation) || flags.incarnation < 0)) {
    return UsageError(absl::StrCat("--incarnation must be a non-negative integer, not '", incarnation, "'"));
  }
  args = std::move(others);
  return flags;
}

bool SaysHowThreadsWait(absl::Span<const std::string> environment) {
  return absl::c_any_of(environment, [](const std::string& entry) {
    return absl::StartsWith(entry, absl::StrCat(kSpinVariable, "=")) ||
           absl::StartsWith(entry, "OMP_WAIT_POLICY=");
  });
}

std::string MemberPrefix(absl::string_view node) { return absl::StrCat(node, "/"); }

std::string MemberName(absl::string_view node, int worker_id) {
  return absl::StrCat(MemberPrefix(node), worker_id);
}

std::string CudaPluginOf(const std::string& worker_program) {
  return PluginPath(worker_program, "libtrainctl_cuda.so");
}

}  // namespace trainctl::launcher
