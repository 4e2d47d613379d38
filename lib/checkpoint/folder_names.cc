#include "checkpoint/folder_names.h"

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace trainctl::checkpoint {
namespace {

struct Prefix {
  absl::string_view text;
  FolderKind kind;
};
constexpr absl::string_view kTemporary = ".tmp-step-";
constexpr absl::string_view kRemoved = ".tmp-removed-step-";
constexpr std::array kPrefixes = {
    Prefix{"step-", FolderKind::kCommitted},
    Prefix{".replaced-step-", FolderKind::kReplaced},
    Prefix{kTemporary, FolderKind::kTemporary},
    Prefix{kRemoved, FolderKind::kTemporary},
};

}  // namespace

std::string CommittedName(int64_t step) { return absl::StrFormat("step-%08d", step); }
std::string ReplacedName(int64_t step) { return absl::StrFormat(".replaced-step-%08d", step); }
std::string TemporaryName(int64_t step, absl::string_view tag) {
  return absl::StrFormat("%s%08d%s%s", kTemporary, step, tag.empty() ? "" : "-", tag);
}
std::string RemovedName(int64_t step) { return absl::StrFormat("%s%08d", kRemoved, step); }
std::string RemovedNameOf(absl::string_view temporary) {
  return absl::ConsumePrefix(&temporary, kTemporary) ? absl::StrCat(kRemoved, temporary) : "";
}

std::optional<FolderName> ParseFolderName(absl::string_view name) {
  for (const Prefix& prefix : kPrefixes) {
    absl::string_view digits = name;
    if (!absl::ConsumePrefix(&digits, prefix.text)) continue;
    if (prefix.kind == FolderKind::kTemporary) {
      const size_t tag = std::min(digits.find('-'), digits.size());
      if (digits.find_first_not_of("-0123456789", tag) != absl::string_view::npos) return std::nullopt;
      digits = digits.substr(0, tag);
    }
    if (digits.size() < 8) continue;
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
