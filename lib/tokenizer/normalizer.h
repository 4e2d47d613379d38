// Rewrites a text before it is split into words: the "normalizer" of a tokenizer.json. Thread-safe.
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
  // Rewrites `text`, which must be valid UTF-8.
  virtual absl::Status Apply(std::string& text, Scratch& scratch) const = 0;
  // Whether the normalizer may remove characters from the start of a text.
  virtual bool MayRemoveFront() const { return false; }
};

// The steps, in order. If there are none, the text is unchanged.
using Normalizer = std::vector<std::unique_ptr<NormalizerStep>>;

// Parses a normalizer of type Sequence, NFC, NFD, NFKC, NFKD, Prepend, Replace or Strip, or null. Returns a
// BadDataError that names any other type.
absl::StatusOr<Normalizer> ParseNormalizer(const JsonPart& part);

absl::Status Normalize(const Normalizer& normalizer, std::string& text, Scratch& scratch);

bool MayRemoveFront(const Normalizer& normalizer);

// Replaces each match with `content`.
absl::Status ReplaceMatches(const Pattern& pattern, absl::string_view content, std::string& text,
                            Scratch& scratch);

// Parses the member "pattern" of a part: {"Regex": ...} or {"String": ...}.
absl::StatusOr<Pattern> ParsePattern(const JsonPart& part);

}  // namespace trainctl::tokenizer
