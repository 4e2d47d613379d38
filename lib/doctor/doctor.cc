#include "doctor/doctor.h"

#include <unistd.h>

#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/files.h"
#include "base/status.h"
#include "doctor/findings.h"

namespace trainctl::doctor {

absl::string_view HealthName(Health health) {
  switch (health) {
    case Health::kGood:
      return "ok";
    case Health::kNote:
      return "note";
    case Health::kWarning:
      return "warning";
    case Health::kBad:
      return "bad";
  }
  return "bad";
}

std::string ReadFirstLine(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, 1 << 16);
  if (!text.ok()) return "";
  const std::vector<std::string> lines = absl::StrSplit(*text, absl::MaxSplits('\n', 1));
  return std::string(absl::StripAsciiWhitespace(lines[0]));
}

Limit ReadLimit(const std::string& root, absl::string_view row) {
  Limit limit;
  const absl::StatusOr<std::string> text = ReadFile(root + "/proc/self/limits", 1 << 16);
  if (!text.ok()) return limit;
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    if (!absl::ConsumePrefix(&line, row)) continue;
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() < 2) return limit;
    limit.unlimited = words[0] == "unlimited";
    limit.known = limit.unlimited || absl::SimpleAtoi(words[0], &limit.soft);
    limit.hard = std::string(words[1]);
    return limit;
  }
  return limit;
}

absl::StatusOr<Machine> InspectMachine(const Sources& given) {
  Sources sources = given;
  if (!sources.room) sources.room = FindRoom;
  if (!sources.environment) sources.environment = std::getenv;
  if (!sources.is_writable) {
    sources.is_writable = [](const std::string& path) { return ::access(path.c_str(), W_OK | X_OK) == 0; };
  }
  Machine machine;
  TRAINCTL_ASSIGN_OR_RETURN(machine.host, cluster::DetectHost(sources.root));
  machine.driver = ReadCudaDriver(sources.nvml);
  const std::vector<cluster::ListedGpu> listed = ListGpus(machine.driver, sources.root);
  machine.visible = cluster::FindVisibleGpus(SelectionOf(sources), listed);
  if (machine.visible.ok()) {
    for (const cluster::VisibleGpu& gpu : machine.visible->gpus) {
      machine.accelerators.push_back(ModelOf(gpu, machine.driver, listed));
    }
  }
  AddHostFindings(sources, machine);
  AddBatchFindings(sources, machine);
  AddDeviceFindings(sources, machine);
  return machine;
}

std::string ClusterTable(const Machine& machine) {
  if (machine.device == nullptr) {
    return absl::StrFormat("[cluster]\ndevice = \"cpu\"\ndevices_per_node = %d\n",
                           machine.host.allowed_cores);
  }
  return absl::StrFormat("[cluster]\ndevice = \"%s\"\ndevices_per_node = %d\n", machine.device->name,
                         machine.accelerators.size());
}

}  // namespace trainctl::doctor
