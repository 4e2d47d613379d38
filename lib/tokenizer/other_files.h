// Recognizes unsupported files that are found next to tokenizers or in place of one. The file's content
// identifies it, and the returned text suggests an alternative, so a user who chose the wrong file learns
// which one to use.
//
// Pure functions of the content; they load nothing.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/json_fwd.h"

namespace trainctl::tokenizer {

// Describes bytes that are not a JSON object, for example "is in tiktoken's format ..., use ...". Returns an
// empty string if the format is not recognized. `what` is the file's name, for use in suggested commands.
std::string DescribeOtherBytes(absl::string_view bytes, absl::string_view what);

// Describes JSON that is not a tokenizer.json because it lacks the "model" member. Never returns an empty
// string.
std::string DescribeOtherJson(const Json& root, absl::string_view what);

// Describes a folder that contains neither tokenizer.json nor tokenizer.model, based on the names of its
// files. Returns "; ..." with a suggestion which file to use or create, or an empty string if it recognizes
// none.
std::string DescribeOthersIn(const std::vector<std::string>& names, absl::string_view folder);

}  // namespace trainctl::tokenizer
