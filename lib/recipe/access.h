// What the loading of a recipe reads besides its text: files, the environment, and the machine's devices.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "recipe/paths.h"
#include "recipe/recipe.h"

namespace trainctl::recipe {

// The devices found on this machine when cluster.device is "auto".
struct FoundDevice {
  std::string device = "cpu";    // name of the device in recipes
  int64_t devices_per_node = 0;  // 0 if unknown
  int64_t memory_bytes = 0;      // memory per device; 0 to use the catalogue's value
  std::string words;             // description of the devices found, for messages
  std::string hidden;            // devices hidden by the environment; empty if none
};

// File system and environment access, which tests and the fuzzer replace.
struct Access {
  std::string working_dir;  // absolute path
  Environment environment;
  std::function<absl::StatusOr<std::string>(const std::string& path)> read_file;
  std::function<absl::StatusOr<std::vector<std::string>>(const std::string& pattern)> expand_glob;
  std::function<bool(const std::string& path)> is_folder;
  std::function<bool(const std::string& path)> is_file;  // if null, no path counts as a file
  // Finds the devices of this machine. If null, "auto" always means "cpu".
  std::function<absl::StatusOr<FoundDevice>()> find_device;
  // Returns the number of tokens in one epoch of the recipe's training data. If null, train.epochs is
  // rejected.
  std::function<absl::StatusOr<int64_t>(const Recipe& recipe)> count_epoch_tokens;
};

// Returns access to this process's working directory and environment. Reads only files of up to 16 MiB.
Access RealAccess();

}  // namespace trainctl::recipe
