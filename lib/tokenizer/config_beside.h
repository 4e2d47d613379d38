// What Hugging Face folders have beside a tokenizer: tokenizer_config.json, generation_config.json and
// config.json. `file` is the tokenizer's (Tokenizer::FindFile). A file that is not there, or cannot be read,
// says nothing.
#pragma once

#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace trainctl::tokenizer {

// BadDataError if one of these files is a Git LFS pointer.
absl::Status RefuseLfsPointersBeside(const std::string& file);

// The token with which the model ends a text: eos_token of tokenizer_config.json, else eos_token_id of
// generation_config.json, else of config.json. Of several ids the tokenizer's own end of a document, where it
// is one of them, else the first. The tokenizer's own where none of the files names one of its tokens.
int32_t EndOfDocumentBeside(const Tokenizer& tokenizer, const std::string& file);

// A sentence for each thing that the Python packages do by tokenizer_config.json and trainctl does not.
std::vector<std::string> DifferencesOfConfigBeside(const Tokenizer& tokenizer, const std::string& file);

}  // namespace trainctl::tokenizer
