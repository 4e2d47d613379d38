// Converts tokens back to text: the "decoder" of a tokenizer.json. Thread-safe.
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

// The steps, in order. The tokens that result from the last step are concatenated. If there are no steps,
// tokens are joined with spaces.
using Decoder = std::vector<std::unique_ptr<DecoderStep>>;

// Parses a decoder of type Sequence, ByteLevel, Metaspace, Replace, ByteFallback, Fuse or Strip, or null.
// Returns a BadDataError that names any other type.
absl::StatusOr<Decoder> ParseDecoder(const JsonPart& part);

}  // namespace trainctl::tokenizer
