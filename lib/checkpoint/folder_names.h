// Names inside `<run>/checkpoints`. Anything else there is not ours and is left alone. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace trainctl::checkpoint {

enum class FolderKind {
  kCommitted,  // step-00000042
  // .replaced-step-00000042: the older of two of one step, where they cannot be swapped at once.
  // It stands for the step as long as no step-00000042 is there.
  kReplaced,
  // .tmp-step-00000042-3-7, being written by who has that tag; .tmp-removed-step-00000042: never read.
  kTemporary,
};

struct FolderName {
  FolderKind kind;
  int64_t step;
};

std::string CommittedName(int64_t step);
std::string ReplacedName(int64_t step);
// `tag`: of digits and '-'; may be empty.
std::string TemporaryName(int64_t step, absl::string_view tag);
std::string RemovedName(int64_t step);
// What a temporary folder of this name is called before it is removed; empty: it has such a name already.
std::string RemovedNameOf(absl::string_view temporary);
std::optional<FolderName> ParseFolderName(absl::string_view name);

}  // namespace trainctl::checkpoint
