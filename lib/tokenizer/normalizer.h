// What is done to a text before it is cut into words: the "normalizer" of a tokenizer.json. Thread safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tokenizer/json_fields.h"
#include "tokenizer/model.h"

namespace trainctl::tokenizer {

class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  // Rewrites valid UTF-8.
  virtual absl::Status Apply(std::string& text, Scratch& scratch) const = 0;
  // A text may lose characters at its beginning.
  virtual bool MayRemoveFront() const { return false; }
};

// In their order; empty: the text stays as it is.
using Normalizer = std::vector<std::unique_ptr<NormalizerStep>>;

// Sequence, NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip, or null; BadDataError names any other.
absl::StatusOr<Normalizer> ParseNormalizer(const JsonPart& part);

absl::Status Normalize(const Normalizer& normalizer, std::string& text, Scratch& scratch);

bool MayRemoveFront(const Normalizer& normalizer);

// Puts `content` in the place of each match.
absl::Status ReplaceMatches(const Pattern& pattern, absl::string_view content, std::string& text,
                            Scratch& scratch);

// The member "pattern" of a part: {"Regex": ...} or {"String": ...}.
absl::StatusOr<Pattern> ParsePattern(const JsonPart& part);

}  // namespace trainctl::tokenizer
