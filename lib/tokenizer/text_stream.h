// Text of token ids that come one at a time: whole characters, as soon as they are known. Not thread safe.
//
//   TextStream stream([&](auto ids) { return tokenizer->Decode(ids, /*skip_special=*/true); });
//   TRAINCTL_RETURN_IF_ERROR(stream.Begin(prompt_ids));
//   TRAINCTL_ASSIGN_OR_RETURN(const std::string text, stream.Add(id));  // "" while a character is not whole
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace trainctl::tokenizer {

class TextStream {
 public:
  // The text of some ids as valid UTF-8, U+FFFD for what is not; errors are passed on.
  using Decode = std::function<absl::StatusOr<std::string>(absl::Span<const int32_t> ids)>;
  explicit TextStream(Decode decode) : decode_(std::move(decode)) {}

  // Ids whose text the reader has already: what follows looks as it does behind them, not as it would at the
  // beginning of a text, where a tokenizer may leave a space out.
  absl::Status Begin(absl::Span<const int32_t> ids);
  // What is known now and was not before: valid UTF-8.
  absl::StatusOr<std::string> Add(int32_t id);
  // The rest, when no id follows: U+FFFD for a character that never became whole.
  absl::StatusOr<std::string> End();

 private:
  absl::StatusOr<std::string> Show(bool is_last);

  Decode decode_;
  // A decoder looks at neighbours only, so that this much is decoded again: the ids before the last place
  // where all was whole, and those behind it.
  std::vector<int32_t> ids_;
  size_t num_before_ = 0;
  std::string shown_;  // of ids_
};

}  // namespace trainctl::tokenizer
