// What a file is that lies beside tokenizers, or stands for one, and is not read here: told by its content,
// with what to do instead, so that a person who took the wrong file learns which is the right one.
//
// Pure functions of the bytes; nothing is loaded.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainctl::tokenizer {

// Of bytes that are no JSON object: "is in tiktoken's format ..., use ...". Empty: not known.
// `what` is the file's name, for a command that is told.
std::string DescribeOtherBytes(absl::string_view bytes, absl::string_view what);

// Of a JSON value that has no "model", as each tokenizer.json has: the same. Never empty.
std::string DescribeOtherJson(const nlohmann::json& root, absl::string_view what);

// Of a folder without tokenizer.json and tokenizer.model, which has files of these names: "; ..." with what
// to take or make. Empty: nothing there is known.
std::string DescribeOthersIn(const std::vector<std::string>& names, absl::string_view folder);

}  // namespace trainctl::tokenizer
