// A tokenizer.json, parsed: vocabulary and merges, which are nearly all of it, as lists, everything else as
// JSON. A document tree of the whole would take more time and memory than all that follows. For .cc files
// only.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl::tokenizer {

struct TokenizerFile {
  // Without the members of model.vocab where that is an object, and without the entries of model.merges where
  // that is a list: both are empty there.
  nlohmann::json rest;
  std::vector<std::pair<std::string, int64_t>> vocab;  // in the order of the file; a token may be there twice
  std::vector<std::pair<std::string, std::string>> merges;
};

// BadDataError: not JSON, a key that is given twice (but for tokens), an id that is no whole number of at
// least 0, a merge that is neither "a b" nor ["a", "b"]. `what` names the file.
absl::StatusOr<TokenizerFile> ParseTokenizerFile(absl::string_view text, absl::string_view what);

}  // namespace trainctl::tokenizer
