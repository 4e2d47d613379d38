// The normalizer's table of a sentencepiece .model: the longest known beginning of a text, and what stands
// for it. The table is a double array as Darts-clone writes it, then texts that end with a zero byte. Thread
// safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl::tokenizer {

class CharsMap {
 public:
  // An empty table replaces nothing. BadDataError names `what`.
  static absl::StatusOr<CharsMap> Parse(absl::string_view bytes, absl::string_view what);

  // Length of the longest known beginning of `text` (0: none), and its replacement.
  size_t Longest(absl::string_view text, absl::string_view* replacement) const;

 private:
  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace trainctl::tokenizer
