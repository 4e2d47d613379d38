// Checks that prepared tokens were produced by the recipe's tokenizer, fit its model, and end as its model
// ends a text. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "recipe/recipe.h"
#include "tokenizer/tokenizer.h"

namespace trainctl::data {

// Compares the tokenizer file of `data` with the one recorded by `trainctl data prepare` in each indexed
// dataset's PREFIX.json. Returns UsageError if they differ; the message names both. Skips the "byte"
// tokenizer, datasets from other tools, which have no PREFIX.json, and a PREFIX.json that belongs to a
// different PREFIX.bin.
absl::Status CheckPreparedTokenizer(const recipe::DataConfig& data);

// Returns UsageError if a dataset's PREFIX.json states more ids than the model's `vocab`. Otherwise, a run
// could fail days later, at the first id out of range. Skips datasets without a PREFIX.json.
absl::Status CheckPreparedVocab(const recipe::DataConfig& data, int64_t vocab);

struct PreparedEnd {
  std::string file;  // PREFIX.bin
  int32_t id = -1;   // special token with which its documents end
};
// Returns the indexed datasets whose documents, as far as a sample shows, all end with the same special token
// of `tokenizer`. Skips datasets that cannot be read.
std::vector<PreparedEnd> FindPreparedEnds(const recipe::DataConfig& data,
                                          const tokenizer::Tokenizer& tokenizer);

}  // namespace trainctl::data
