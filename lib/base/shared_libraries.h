// Finds the shared libraries that a program would load, without loading it. Thread-safe.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl {

struct SharedLibrary {
  std::string name;  // for example "libtorch_cpu.so"
  std::string path;  // absolute path
};

// Returns the direct and indirect dependencies of a program or library, as the dynamic loader would resolve
// them now, in this process's environment with `variables` added (for example LD_LIBRARY_PATH). Returns
// EnvironmentError if the loader cannot be run, cannot find a library, or takes more than a few seconds.
absl::StatusOr<std::vector<SharedLibrary>> FindSharedLibraries(
    const std::string& program, const std::map<std::string, std::string>& variables = {});

// Parses the loader's output for FindSharedLibraries.
std::vector<SharedLibrary> ParseSharedLibraries(absl::string_view printed);

}  // namespace trainctl
