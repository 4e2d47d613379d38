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
  kTemporary,  // .tmp-step-00000042, .tmp-removed-step-00000042: never read
};

struct FolderName {
  FolderKind kind;
  int64_t step;
};

std::string CommittedName(int64_t step);
std::string ReplacedName(int64_t step);
std::string TemporaryName(int64_t step);
std::string RemovedName(int64_t step);
std::optional<FolderName> ParseFolderName(absl::string_view name);

}  // namespace trainctl::checkpoint
