// The names that trainctl uses in `<run>/checkpoints`. It never touches entries with other names. Pure
// functions; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace trainctl::checkpoint {

enum class FolderKind {
  kCommitted,  // step-00000042
  // .replaced-step-00000042, the older of two checkpoints of one step on a file system that cannot swap them
  // atomically. It stands in for step-00000042 while that does not exist.
  kReplaced,
  // .tmp-step-00000042-3-7, which is being written by the owner of tag "3-7", or .tmp-removed-step-00000042.
  // Never read.
  kTemporary,
};

struct FolderName {
  FolderKind kind;
  int64_t step;
};

std::string CommittedName(int64_t step);
std::string ReplacedName(int64_t step);
// `tag` consists of digits and '-' and may be empty.
std::string TemporaryName(int64_t step, absl::string_view tag);
std::string RemovedName(int64_t step);
// Returns the name to which a temporary folder is renamed before it is removed, or an empty string if it
// already has such a name.
std::string RemovedNameOf(absl::string_view temporary);
std::optional<FolderName> ParseFolderName(absl::string_view name);

}  // namespace trainctl::checkpoint
