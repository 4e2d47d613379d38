#include "launcher/worker_environment.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "base/subprocess.h"
#include "launcher/worker_contract.h"

namespace trainctl::launcher {
namespace {

constexpr const char* kOwnNames[] = {"OMP_NUM_THREADS", "MKL_NUM_THREADS"};

}  // namespace

std::vector<std::string> WorkerEnvironment(const std::map<std::string, std::string>& env) {
  std::vector<std::string> entries;
  for (std::string& entry : CurrentEnvironment()) {
    const std::string name(absl::string_view(entry).substr(0, entry.find('=')));
    bool own = env.contains(name);
    for (const char* own_name : kOwnNames) own = own || name == own_name;
    if (!own) entries.push_back(std::move(entry));
  }
  for (const auto& [name, value] : env) entries.push_back(absl::StrCat(name, "=", value));
  if (!SaysHowThreadsWait(entries)) entries.push_back(absl::StrCat(kSpinVariable, "=", kSpinCount));
  return entries;
}

absl::Status CheckWorkerEnv(const std::map<std::string, std::string>& env) {
  for (const auto& [name, value] : env) {
    if (name.empty() || absl::StrContains(name, "=") || name.find('\0') != std::string::npos ||
        value.find('\0') != std::string::npos) {
      return UsageError(
          absl::StrCat("launch.env: '", absl::CEscape(name), "' is not a valid environment variable name"));
    }
    for (const char* own_name : kOwnNames) {
      if (name != own_name) continue;
      return UsageError(absl::StrCat("launch.env.", name, ": the launcher sets ", name, " itself",
                                     "; set cluster.threads_per_worker instead"));
    }
  }
  return absl::OkStatus();
}

}  // namespace trainctl::launcher
