// Finds a program's plugins. Thread-safe.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace trainctl {

// Returns the path of a program's plugin `name` ("libtrainctl_cuda.so"). Looks in the program's folder and
// then in the folder lib next to that folder. If the plugin is in neither, returns the path in the program's
// folder.
std::string PluginPath(const std::string& program, absl::string_view name);

}  // namespace trainctl
