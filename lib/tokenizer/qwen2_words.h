// Checks whether a tokenizer.json splits texts into words as Qwen 2 does. AutoTokenizer in transformers 5
// assumes this for every folder whose config.json has the model_type "qwen2": its Qwen2Tokenizer takes the
// vocabulary, merges and added tokens from the file but uses Qwen's normalizer and pre-tokenizer. Pure
// function; thread-safe.
#pragma once

#include "absl/strings/string_view.h"

namespace trainctl::tokenizer {

// True if it splits like Qwen 2. Returns false if `tokenizer_json` is not JSON.
bool CutsAsQwen2(absl::string_view tokenizer_json);

}  // namespace trainctl::tokenizer
