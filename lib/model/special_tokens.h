// Reads the ids of the begin-of-text, end-of-text and padding tokens from the config.json or
// generation_config.json of a Hugging Face folder. They have no effect on training. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl::model {

struct SpecialTokens {
  // Each list has more than one id if the model has several such tokens, and is empty if the file has none.
  std::vector<int64_t> bos, eos, pad;
  bool operator==(const SpecialTokens&) const = default;
};

// Reads the ids from the text of either file. `what` names the text in errors. Returns BadDataError if the
// text is not a JSON object, or if a field is not an integer, a list of integers or null.
absl::StatusOr<SpecialTokens> ReadSpecialTokens(absl::string_view json_text, absl::string_view what);

}  // namespace trainctl::model
