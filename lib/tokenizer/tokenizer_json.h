// Hugging Face's tokenizer.json.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tokenizer/tokenizer.h"

namespace trainctl::tokenizer {

// BadDataError: "<what>: <field> ...".
absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTokenizerJson(absl::string_view text, absl::string_view what);

}  // namespace trainctl::tokenizer
