#include "checkpoint/folder_names.h"

#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace trainctl::checkpoint {
namespace {

struct Prefix {
  absl::string_view text;
  FolderKind kind;
};
constexpr std::array kPrefixes = {
    Prefix{"step-", FolderKind::kCommitted},
    Prefix{".replaced-step-", FolderKind::kReplaced},
    Prefix{".tmp-step-", FolderKind::kTemporary},
    Prefix{".tmp-removed-step-", FolderKind::kTemporary},
};

}  // namespace

std::string CommittedName(int64_t step) { return absl::StrFormat("step-%08d", step); }
std::string ReplacedName(int64_t step) { return absl::StrFormat(".replaced-step-%08d", step); }
std::string TemporaryName(int64_t step) { return absl::StrFormat(".tmp-step-%08d", step); }
std::string RemovedName(int64_t step) { return absl::StrFormat(".tmp-removed-step-%08d", step); }

std::optional<FolderName> ParseFolderName(absl::string_view name) {
  for (const Prefix& prefix : kPrefixes) {
    absl::string_view digits = name;
    if (!absl::ConsumePrefix(&digits, prefix.text) || digits.size() < 8) continue;
    for (const char c : digits) {
      if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return std::nullopt;
    }
    int64_t step = 0;
    if (!absl::SimpleAtoi(digits, &step)) return std::nullopt;
    if (digits != absl::StrFormat("%08d", step)) return std::nullopt;  // one name per step
    return FolderName{prefix.kind, step};
  }
  return std::nullopt;
}

}  // namespace trainctl::checkpoint
