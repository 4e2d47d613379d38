// Which libraries a program would load, without loading it. Thread safe.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl {

struct SharedLibrary {
  std::string name;  // "libtorch_cpu.so"
  std::string path;  // absolute
};

// Those of a program or library, and theirs, as the dynamic loader of this process would find them now.
// `variables`: of the environment, besides this process's own (LD_LIBRARY_PATH). EnvironmentError: the loader
// cannot be asked, misses one, or takes longer than a few seconds.
absl::StatusOr<std::vector<SharedLibrary>> FindSharedLibraries(
    const std::string& program, const std::map<std::string, std::string>& variables = {});

// The same, of what the loader prints.
std::vector<SharedLibrary> ParseSharedLibraries(absl::string_view printed);

}  // namespace trainctl
