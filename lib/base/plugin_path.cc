#include "base/plugin_path.h"

#include <filesystem>

#include "base/files.h"

namespace trainctl {

std::string PluginPath(const std::string& program, absl::string_view name) {
  const std::filesystem::path folder = std::filesystem::path(program).parent_path();
  const std::string next_to_it = folder / std::string(name);
  const std::string in_lib = folder.parent_path() / "lib" / std::string(name);
  return !PathExists(next_to_it) && PathExists(in_lib) ? in_lib : next_to_it;
}

}  // namespace trainctl
