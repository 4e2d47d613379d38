// Parses a tokenizer.json. The vocabulary and merges, which make up most of the file, are returned as lists,
// and the rest is returned as JSON. A JSON tree of the whole file would cost more time and memory than all
// later steps combined. Include only from .cc files.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/json.h"

namespace trainctl::tokenizer {

struct TokenizerFile {
  // The file, except that model.vocab is empty if it is an object and model.merges is empty if it is a list.
  Json rest;
  std::vector<std::pair<std::string, int64_t>> vocab;  // tokens and ids in file order; may contain duplicates
  std::vector<std::pair<std::string, std::string>> merges;
};

// Returns BadDataError if the text is not JSON or contains a duplicate key (other than a token), an id that
// is not a non-negative integer, or a merge that is neither "a b" nor ["a", "b"]. `what` names the file in
// errors.
absl::StatusOr<TokenizerFile> ParseTokenizerFile(absl::string_view text, absl::string_view what);

}  // namespace trainctl::tokenizer
