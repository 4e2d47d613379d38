// Loads libtrainctl_parquet.so, and with it Arrow C++ from the Python package pyarrow, the first time a
// Parquet file is read.
//
// The plugin requires libarrow.so and libparquet.so in exactly the version that it was built with. It
// searches for them in:
//   1. the folder TRAINCTL_PYARROW, which is the Python package or any other folder with the two libraries.
//      If this variable is set, nothing else is searched;
//   2. the plugin's run path (the package used for the build, and the plugin's own folder) and the default
//      paths of the dynamic loader;
//   3. the user's Python environments: VIRTUAL_ENV, that of each python3 in PATH, and ~/.local.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/parquet_api.h"

namespace trainctl::data {

// Loads the plugin once and keeps it loaded until the process exits. Returns EnvironmentError if the plugin
// or the package is missing or has the wrong version. The message names `file` and the package to install,
// and gives a command that converts the file instead. Thread-safe.
absl::StatusOr<const ParquetApi*> LoadParquetApi(const std::string& file);

// Returns existing folders in this user's Python environments that may be the pyarrow package, most likely
// first. Reads environment variables and lists folders. Thread-safe unless another thread modifies the
// environment.
std::vector<std::string> PyarrowFolders();

// Returns a clause that begins with "convert it" and contains a command that converts the Parquet file to
// JSONL.
std::string ConvertParquetHint(const std::string& file);

}  // namespace trainctl::data
