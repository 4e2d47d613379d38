// Whether a run folder is this user's to work on. A run folder is code: its recipe.json names environment
// variables and commands that the workers and the launcher execute. Thread safe.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace trainctl::run {

// UsageError, with the way out, if another user owns the folder or its recipe.json, or can write to one of
// them. The owner may be this user, root, or whoever owns the files that this process creates in the folder:
// a network file system may map all users to one. Likewise a file system may give every file the same mode. A
// group may write if it has this user's name and no other member, as umask 002 supposes. A path that does not
// exist is trusted. Who may write to the folders above is not checked.
absl::Status CheckFolderIsTrusted(const std::string& folder);

}  // namespace trainctl::run
