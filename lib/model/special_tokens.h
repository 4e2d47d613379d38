// The ids that begin a text, end it and fill it up, as config.json and generation_config.json of a Hugging
// Face folder say them. They change nothing in training. Pure; thread safe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl::model {

struct SpecialTokens {
  // Several where a model has more than one, none where it says nothing.
  std::vector<int64_t> bos, eos, pad;
  bool operator==(const SpecialTokens&) const = default;
};

// `what` names the text in errors. BadDataError: a field is neither a whole number nor a list of them nor
// null.
absl::StatusOr<SpecialTokens> ReadSpecialTokens(absl::string_view json_text, absl::string_view what);

}  // namespace trainctl::model
