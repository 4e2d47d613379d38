// Finds out before the first step whether a source can train or evaluate anything. Thread-safe.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "data/document_set.h"
#include "data/sequences.h"

namespace trainctl::data {

inline constexpr char kNoTargetsCause[] = "the data has no completions, or prompts fill data.seq_len";

// Returns whether any target in `documents` counts toward the loss. Usually reads the first document only,
// and never more than about 64M tokens, after which the answer is true. `cuts` says whether kWhole keeps the
// first `seq_len` tokens of longer documents. Returns the errors of DocumentSet::Read.
absl::StatusOr<bool> HasCountedTarget(const DocumentSet& documents, Packing packing, int64_t seq_len,
                                      bool cuts);

// Returns how many documents with more than `seq_len` tokens have no target that counts in their first
// `seq_len` tokens, because their prompt fills them. Reads about 64M tokens at most. Returns the errors of
// DocumentSet::Read.
absl::StatusOr<int64_t> CountCutToPrompts(const DocumentSet& documents, int64_t seq_len);

}  // namespace trainctl::data
