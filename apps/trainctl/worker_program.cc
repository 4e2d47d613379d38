#include "apps/trainctl/worker_program.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "apps/trainctl/installed_worker.h"
#include "base/files.h"
#include "base/process_limits.h"
#include "base/subprocess.h"
#include "cluster/host.h"
#include "launcher/worker_contract.h"

namespace trainctl::cli {

absl::StatusOr<std::string> OwnProgram() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return ErrnoError("read", "/proc/self/exe", error.value());
  return self.string();
}

absl::StatusOr<std::string> FindWorkerProgram() {
  TRAINCTL_RETURN_IF_ERROR(CheckWorkerLimits());
  TRAINCTL_ASSIGN_OR_RETURN(const std::filesystem::path self, OwnProgram());
  const std::string beside = (self.parent_path() / "trainctl-worker").string();
  if (access(beside.c_str(), X_OK) == 0) return beside;
  absl::StatusOr<std::string> installed = FindInstalledWorker(self.string());
  if (!absl::IsNotFound(installed.status())) return installed;
  return EnvironmentError(
      absl::StrCat(beside, " does not exist or cannot be executed; build it with ./dev build"));
}

absl::StatusOr<std::vector<std::string>> OneProcessArgs(const std::string& verb, const ModelSource& model) {
  TRAINCTL_ASSIGN_OR_RETURN(const cluster::Host host, cluster::DetectHost());
  std::vector<std::string> args = {verb, "--threads", absl::StrCat(host.allowed_cores), "--weight-bytes",
                                   absl::StrCat(host.memory_available_bytes / 10 * 7)};
  if (model.is_folder()) {
    args.insert(args.end(), {"--model", model.folder});
  } else {
    args.insert(args.end(), {"--run-dir", model.run, "--checkpoint", model.checkpoint});
  }
  return args;
}

absl::Status ExecWorker(const std::vector<std::string>& args) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string program, FindWorkerProgram());
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  if (!launcher::SaysHowThreadsWait(CurrentEnvironment())) {
    setenv(launcher::kSpinVariable, launcher::kSpinCount, 1);
  }
  std::fflush(nullptr);
  execv(program.c_str(), argv.data());
  return ErrnoError("execute", program, errno);
}

}  // namespace trainctl::cli
