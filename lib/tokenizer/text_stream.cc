#include "tokenizer/text_stream.h"

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status.h"

namespace trainctl::tokenizer {
namespace {

constexpr absl::string_view kReplacement = "\xEF\xBF\xBD";

// A character has at most four bytes, so that it is whole long before: these ids spell none.
constexpr size_t kMostIdsWaiting = 16;

}  // namespace

absl::Status TextStream::Begin(absl::Span<const int32_t> ids) {
  ids_.assign(ids.begin(), ids.end());
  num_before_ = ids_.size();
  TRAINCTL_ASSIGN_OR_RETURN(shown_, decode_(ids_));
  return absl::OkStatus();
}

absl::StatusOr<std::string> TextStream::Add(int32_t id) {
  ids_.push_back(id);
  return Show(ids_.size() - num_before_ > kMostIdsWaiting);
}

absl::StatusOr<std::string> TextStream::End() { return Show(/*is_last=*/true); }

absl::StatusOr<std::string> TextStream::Show(bool is_last) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string text, decode_(ids_));
  // The bytes of a character that is not whole are shown so, and are another text with the next id.
  absl::string_view known = text;
  while (!is_last && absl::ConsumeSuffix(&known, kReplacement)) {
  }
  const bool is_whole = known.size() == text.size();
  std::string added;
  if (absl::StartsWith(known, shown_)) {
    added = std::string(known.substr(shown_.size()));
    shown_ = std::string(known);
  } else if (is_whole) {  // the decoder has changed its mind about what was shown
    TRAINCTL_ASSIGN_OR_RETURN(added, decode_(absl::MakeConstSpan(ids_).subspan(num_before_)));
  }
  if (!is_whole) return added;
  ids_.erase(ids_.begin(), ids_.begin() + static_cast<ptrdiff_t>(num_before_));
  num_before_ = ids_.size();
  TRAINCTL_ASSIGN_OR_RETURN(shown_, decode_(ids_));
  return added;
}

}  // namespace trainctl::tokenizer
