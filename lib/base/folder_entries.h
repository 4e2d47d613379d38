// What is in a folder. Thread safe.
#pragma once

#include <string>
#include <vector>

namespace trainctl {

// Names, sorted; none where there is no such folder or it cannot be read.
std::vector<std::string> FolderEntries(const std::string& folder);

}  // namespace trainctl
