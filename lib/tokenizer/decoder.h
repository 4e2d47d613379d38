// From the tokens of ids back to text: the "decoder" of a tokenizer.json. Thread safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tokenizer/json_fields.h"
#include "tokenizer/model.h"

namespace trainctl::tokenizer {

class DecoderStep {
 public:
  virtual ~DecoderStep() = default;
  virtual absl::Status Apply(std::vector<std::string>& tokens, Scratch& scratch) const = 0;
};

// In their order; what is left is one behind the other. Empty: tokens with a space between them.
using Decoder = std::vector<std::unique_ptr<DecoderStep>>;

// Sequence, ByteLevel, Metaspace, Replace, ByteFallback, Fuse, Strip, or null; BadDataError names any other.
absl::StatusOr<Decoder> ParseDecoder(const JsonPart& part);

}  // namespace trainctl::tokenizer
