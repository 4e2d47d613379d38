// The tokenizer_config.json that Hugging Face folders have beside a tokenizer: what the Python packages do by
// it and trainctl, which goes by the tokenizer's own file, does not.
#pragma once

#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace trainctl::tokenizer {

// A sentence for each difference; none where there is no such file, or it cannot be read. `file` is the
// tokenizer's (Tokenizer::FindFile).
std::vector<std::string> DifferencesOfConfigBeside(const Tokenizer& tokenizer, const std::string& file);

}  // namespace trainctl::tokenizer
