// The entries of `<run>/checkpoints` that have the name of a checkpoint, unopened. Thread safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/checkpoint_io.h"

namespace trainctl::checkpoint {

// All names in a folder, sorted; none where there is no folder.
absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& folder);

// A folder itself, not a link to one.
bool IsFolder(const std::string& path);

// Of the files in it.
int64_t BytesIn(const std::string& folder);

// One entry per step, oldest first, `bytes` not filled in: the committed folder, else the replaced one, else
// whatever else has the committed name (a link, a file).
absl::StatusOr<std::vector<CheckpointInfo>> ListNamed(const std::string& root);

}  // namespace trainctl::checkpoint
