#include "recipe/issues.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "base/status.h"

namespace trainctl::recipe {
namespace {
constexpr size_t kMaxShown = 50;
}  // namespace

void Issues::Add(absl::string_view where, absl::string_view message) {
  is_only_bad_data_ = false;
  AddBadData(where, message);
}

void Issues::AddBadData(absl::string_view where, absl::string_view message) {
  std::string text = where.empty() ? std::string(message) : absl::StrCat(where, ": ", message);
  if (std::find(messages_.begin(), messages_.end(), text) == messages_.end()) {
    messages_.push_back(std::move(text));
  }
}

bool Issues::IsBadBelow(absl::string_view path) const {
  const auto it = bad_.lower_bound(path);
  return it != bad_.end() && absl::StartsWith(*it, path);
}

absl::Status Issues::ToStatus(absl::string_view what) const {
  if (messages_.empty()) return absl::OkStatus();
  const auto error = is_only_bad_data_ ? BadDataError : UsageError;
  if (messages_.size() == 1) return error(messages_[0]);
  const size_t num_shown = std::min(messages_.size(), kMaxShown);
  std::string text = absl::StrCat(messages_.size(), " errors in ", what, ":\n  ",
                                  absl::StrJoin(absl::MakeSpan(messages_).first(num_shown), "\n  "));
  if (num_shown < messages_.size()) absl::StrAppend(&text, "\n  and ", messages_.size() - num_shown, " more");
  return error(text);
}

}  // namespace trainctl::recipe
