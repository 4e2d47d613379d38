// Scaling of RoPE, for texts longer than those that a model was first trained on. The frequencies are those
// of modeling_rope_utils.py in transformers. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace trainctl::model {

// Which frequencies are divided, and by what. A pair of elements of a head has one frequency. Corresponds to
// `rope_type` in transformers.
enum class RopeScalingKind : uint8_t {
  kLlama3,    // the low ones by the factor (Llama 3.1)
  kLinear,    // all by the factor (position interpolation, arXiv 2306.15595)
  kYarn,      // the low ones by the factor (YaRN, arXiv 2309.00071)
  kLongRope,  // each by its own factor (LongRoPE, arXiv 2402.13753)
  // None up to `original_max_position` tokens. Longer sequences would have another base at each length, so
  // the model has to end there.
  kDynamic,
  kNtkAlpha  // the base is multiplied by alpha^(d / (d - 2)) for d rotated elements (HunYuan)
};

// Returns the name in transformers, such as "llama3".
const char* NameOf(RopeScalingKind kind);
// Returns nullopt if no kind has this name.
std::optional<RopeScalingKind> FindRopeScalingKind(absl::string_view name);

// A field keeps its default value if the kind of scaling does not use it.
struct RopeScaling {
  double factor = 8.0;  // not for kLongRope and kNtkAlpha
  // Only for kLlama3:
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  // Context length of the model without scaling, in tokens. Not for kLinear and kNtkAlpha.
  int64_t original_max_position = 8192;

  RopeScalingKind kind = RopeScalingKind::kLlama3;

  // Only for kYarn. A pair that makes more than `beta_fast` rotations in the original context keeps its
  // frequency. The frequency of a pair that makes less than `beta_slow` is divided by the factor.
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;  // whether the two bounds are rounded to whole pairs
  // Only for kYarn and kLongRope: factor of the rotated elements of queries and keys. 0 for 0.1 ln(factor) +
  // 1 (arXiv 2309.00071, section 3.4); kLongRope needs a value.
  double attention_factor = 0;
  // Only for kLongRope: the divisor of each frequency, for sequences of at most `original_max_position`
  // tokens and for longer ones.
  std::vector<double> short_factor;
  std::vector<double> long_factor;
  double alpha = 0;  // only for kNtkAlpha

  bool operator==(const RopeScaling&) const = default;
};

// Returns the factor of the rotated elements of queries and keys. Scores are multiplied by its square.
double AttentionFactorOf(const RopeScaling& scaling);

// Returns the attention factor of LongRoPE if config.json states none: sqrt(1 + ln(factor) /
// ln(original_max_position)), or 1 if `factor` is at most 1. `factor` is the ratio of the new context length
// to the original one.
double LongRopeAttentionFactor(double factor, int64_t original_max_position);

// Whether sequences of `seq_len` tokens have other frequencies than those of at most
// `original_max_position` tokens.
bool UsesLongFactor(const RopeScaling& scaling, int64_t seq_len);

// Returns the base of the powers that RopeFrequencies takes: theta, unless the kind of scaling changes it.
double RopeBase(const std::optional<RopeScaling>& scaling, double theta, int64_t rotated_dim);

// Returns the frequency of each pair of rotated elements, in radians per token. `powers` has base^(2 i / d)
// for each pair i of d rotated elements, with the base of RopeBase. Does the same fp32 operations as
// transformers, so that a frequency of equal powers has the same bits: at position 131,071 one bit is 0.008
// rad.
std::vector<float> RopeFrequencies(const std::optional<RopeScaling>& scaling, double base,
                                   absl::Span<const float> powers, int64_t seq_len);

}  // namespace trainctl::model
