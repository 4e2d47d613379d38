#include "cluster/kernel_gpus.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/files.h"
#include "base/folder_entries.h"

namespace trainctl::cluster {

std::vector<KernelGpu> ListGpusOfKernel(const std::string& root) {
  const std::string folder = root + "/proc/driver/nvidia/gpus";
  std::vector<KernelGpu> gpus;
  for (const std::string& address : FolderEntries(folder)) {
    const absl::StatusOr<std::string> text =
        ReadFile(absl::StrCat(folder, "/", address, "/information"), 1 << 16);
    if (!text.ok()) continue;
    KernelGpu found{address, {}};
    for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
      const std::pair<absl::string_view, absl::string_view> field =
          absl::StrSplit(line, absl::MaxSplits(':', 1));
      const absl::string_view name = absl::StripAsciiWhitespace(field.first);
      const std::string value(absl::StripAsciiWhitespace(field.second));
      if (name == "Model") found.gpu.model = value;
      // Question marks stand for the UUID of a GPU that nothing has opened yet.
      if (name == "GPU UUID" && !absl::StrContains(value, "?")) found.gpu.uuid = value;
    }
    if (!found.gpu.model.empty()) gpus.push_back(std::move(found));
  }
  return gpus;
}

}  // namespace trainctl::cluster
