// Checks that only this user can modify a run folder. A run folder must be trusted like code, because its
// recipe.json contains environment variables for the workers and commands that the workers and the launcher
// run. Thread-safe.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace trainctl::run {

// Returns UsageError, with the remedy, if another user owns the folder or its recipe.json or can write to
// either. Does not check write access to the parent folders. A path that does not exist is trusted.
//
// The owner may be this user, root, or the owner of the files that this process creates in the folder,
// because a network file system may map all users to one. For the same reason, a mode that the file system
// gives to every file is accepted. Group write access is accepted if the group has this user's name and no
// other members, as is usual with umask 002.
absl::Status CheckFolderIsTrusted(const std::string& folder);

}  // namespace trainctl::run
