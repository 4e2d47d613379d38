// The normalization table of a sentencepiece .model, which maps the longest known prefix of a text to its
// replacement. The table is a Darts-clone double array, followed by NUL-terminated replacements. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl::tokenizer {

class CharsMap {
 public:
  // Parses a table. An empty table replaces nothing. A BadDataError begins with `what`.
  static absl::StatusOr<CharsMap> Parse(absl::string_view bytes, absl::string_view what);

  // Returns the length of the longest known prefix of `text`, or 0 if there is none, and sets `replacement`.
  size_t Longest(absl::string_view text, absl::string_view* replacement) const;

 private:
  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace trainctl::tokenizer
