// Keeps the end-of-document token of runs that began before recipes had data.end_of_document.
#pragma once

#include <string>
#include <vector>

#include "recipe/recipe.h"

namespace trainctl::data {

// A run of that age stored no data.end_of_document, which now reads as "auto", and ended its documents with
// the token that the tokenizer's file defines. Sets data.end_of_document to that token, so that a resumed run
// continues to use it. Returns notes about the differences between the earlier and the later training data.
//
// Does nothing for other runs, which stored their token, and if tokens are bytes. Also does nothing if the
// tokenizer cannot be read, because opening the data reports that error.
std::vector<std::string> KeepEarlierEnd(recipe::DataConfig& data);

}  // namespace trainctl::data
