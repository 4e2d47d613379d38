// Checks that only this user can change a run folder. A run folder is code: its recipe.json names environment
// variables and commands that the workers and the launcher execute. Thread safe.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace trainctl::run {

// UsageError, with the remedy, if another user owns the folder or its recipe.json, or can write to either.
// The owner may be this user, root, or the owner of files that this process creates in the folder, because a
// network file system may map all users to one. Similarly, a mode that the file system gives to every file is
// accepted. A
// group may write if it has this user's name and no other member, as umask 002 supposes. A path that does not
// exist is trusted. Write access to the parent folders is not checked.
absl::Status CheckFolderIsTrusted(const std::string& folder);

}  // namespace trainctl::run
