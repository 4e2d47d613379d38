// Finds prompts in JSONL files that are not read because a source does not set prompt_field. Thread-safe.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace trainctl::data {

// Returns the name of a field other than `text_field` that usually holds a prompt, such as "prompt" or
// "question", if the first line of the JSONL file has one. Empty if there is none, or if the file cannot be
// read.
std::string FindUnusedPrompt(const std::string& file, absl::string_view text_field);

}  // namespace trainctl::data
