// The files next to a tokenizer in a Hugging Face folder: tokenizer_config.json, generation_config.json and
// config.json. `file` is the tokenizer's (Tokenizer::FindFile). A file that does not exist or cannot be read
// is ignored.
#pragma once

#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace trainctl::tokenizer {

// BadDataError if one of these files is a Git LFS pointer.
absl::Status RefuseLfsPointersBeside(const std::string& file);

// The token with which the model ends a text: eos_token of tokenizer_config.json, else eos_token_id of
// generation_config.json, else of config.json. If there are several ids, it is the tokenizer's own end if
// that is among them, else the first. If no file names a token of the tokenizer, it is the tokenizer's own
// end.
int32_t EndOfDocumentBeside(const Tokenizer& tokenizer, const std::string& file);

// A sentence for each thing that the Python packages do by tokenizer_config.json and trainctl does not.
std::vector<std::string> DifferencesOfConfigBeside(const Tokenizer& tokenizer, const std::string& file);

}  // namespace trainctl::tokenizer
