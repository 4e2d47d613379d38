// Decodes token ids that arrive one at a time, and returns each character as soon as it is complete. Not
// thread-safe.
//
//   TextStream stream([&](auto ids) { return tokenizer->Decode(ids, /*skip_special=*/true); });
//   TRAINCTL_RETURN_IF_ERROR(stream.Begin(prompt_ids));
//   TRAINCTL_ASSIGN_OR_RETURN(const std::string text, stream.Add(id));  // "" until a character is complete
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
  // Decodes ids to valid UTF-8, with U+FFFD for invalid bytes. TextStream returns its errors to the caller.
  using Decode = std::function<absl::StatusOr<std::string>(absl::Span<const int32_t> ids)>;
  explicit TextStream(Decode decode) : decode_(std::move(decode)) {}

  // Starts after `ids`, whose text the reader already has. Later ids are then decoded as a continuation,
  // rather than as the beginning of a text, where a tokenizer may omit a space.
  absl::Status Begin(absl::Span<const int32_t> ids);
  // Adds an id and returns the text that it completes, as valid UTF-8.
  absl::StatusOr<std::string> Add(int32_t id);
  // Ends the stream and returns the remaining text, with U+FFFD for an incomplete character.
  absl::StatusOr<std::string> End();

 private:
  absl::StatusOr<std::string> Show(bool is_last);

  Decode decode_;
  // The ids to decode again: a few before and all after the last position at which every character was
  // complete. This suffices because a decoder only looks at neighboring tokens.
  std::vector<int32_t> ids_;
  size_t num_before_ = 0;
  std::string shown_;  // text of ids_ that was already returned
};

}  // namespace trainctl::tokenizer
