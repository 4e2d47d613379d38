// Lists the entries of `<run>/checkpoints` that are named like a checkpoint, without opening them.
// Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/checkpoint_io.h"

namespace trainctl::checkpoint {

// Returns all names in a folder, sorted. Returns an empty list if the folder does not exist.
absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& folder);

// Whether `path` is a folder, as opposed to a link to one.
bool IsFolder(const std::string& path);

// Returns the total size of the files in a folder.
int64_t BytesIn(const std::string& folder);

// Returns one entry per step, oldest first, without setting `bytes`. The entry is the committed folder if it
// exists, else the replaced folder, else whatever file or link has the committed name.
absl::StatusOr<std::vector<CheckpointInfo>> ListNamed(const std::string& root);

}  // namespace trainctl::checkpoint
