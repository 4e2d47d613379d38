// Reads the files next to a tokenizer in a Hugging Face folder: tokenizer_config.json,
// special_tokens_map.json, generation_config.json and config.json. `file` is the tokenizer's own file (see
// Tokenizer::FindFile). A file that does not exist or cannot be read is ignored.
#pragma once

#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace trainctl::tokenizer {

// Returns BadDataError if any of these files is a Git LFS pointer.
absl::Status RefuseLfsPointersBeside(const std::string& file);

// Returns the token with which the model ends a text. This is the eos_token of tokenizer_config.json, else
// that of special_tokens_map.json, else the eos_token_id of generation_config.json, else that of config.json.
// If eos_token_id lists several ids, returns the tokenizer's end_of_document_id() if it is among them, and
// the first one otherwise. Also returns end_of_document_id() if none of the files names a token of the
// tokenizer.
int32_t EndOfDocumentBeside(const Tokenizer& tokenizer, const std::string& file);

// Returns one sentence for each setting in tokenizer_config.json that the Python packages apply but trainctl
// does not.
std::vector<std::string> DifferencesOfConfigBeside(const Tokenizer& tokenizer, const std::string& file);

}  // namespace trainctl::tokenizer
