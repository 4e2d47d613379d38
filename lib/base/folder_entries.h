// Lists the contents of a folder. Thread-safe.
#pragma once

#include <string>
#include <vector>

namespace trainctl {

// Returns the sorted names. Empty if the folder does not exist or cannot be read.
std::vector<std::string> FolderEntries(const std::string& folder);

}  // namespace trainctl
