#include "model/rope_scaling.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/status.h"

namespace trainctl::model {
namespace {

constexpr std::pair<RopeScalingKind, const char*> kNames[] = {
    {RopeScalingKind::kLlama3, "llama3"},   {RopeScalingKind::kLinear, "linear"},
    {RopeScalingKind::kYarn, "yarn"},       {RopeScalingKind::kLongRope, "longrope"},
    {RopeScalingKind::kDynamic, "dynamic"}, {RopeScalingKind::kNtkAlpha, "ntk_alpha"},
};

float Llama3Frequency(const RopeScaling& scaling, float frequency) {
  const auto factor = static_cast<float>(scaling.factor);
  const auto original = static_cast<double>(scaling.original_max_position);
  const float wavelength = 1 / frequency * static_cast<float>(2 * std::numbers::pi);
  if (wavelength > static_cast<float>(original / scaling.low_freq_factor)) return frequency / factor;
  if (wavelength < static_cast<float>(original / scaling.high_freq_factor)) return frequency;
  const float smooth =
      (1 / wavelength * static_cast<float>(original) - static_cast<float>(scaling.low_freq_factor)) /
      static_cast<float>(scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - smooth) * frequency / factor + smooth * frequency;
}

// The pairs between which the divisor rises from 1 to the factor.
struct Band {
  double low = 0, high = 0;
};

// "NTK-by-parts" of the paper (arXiv 2309.00071, section 3.2), with bounds in pairs instead of rotations.
Band YarnBand(const RopeScaling& scaling, double base, size_t num_pairs) {
  const double dim = 2 * static_cast<double>(num_pairs);
  // Returns the index, not rounded, of the pair that makes this many rotations in the original context.
  const auto pair_of = [&](double rotations) {
    const double tokens = static_cast<double>(scaling.original_max_position);
    return dim * std::log(tokens / (rotations * 2 * std::numbers::pi)) / (2 * std::log(base));
  };
  Band band{pair_of(scaling.beta_fast), pair_of(scaling.beta_slow)};
  if (scaling.truncate) band = {std::floor(band.low), std::ceil(band.high)};
  band = {std::max(band.low, 0.0), std::min(band.high, dim - 1)};
  if (band.low == band.high) band.high += 0.001;
  return band;
}

float YarnFrequency(double factor, const Band& band, size_t pair, float power) {
  const float ramp =
      (static_cast<float>(pair) - static_cast<float>(band.low)) / static_cast<float>(band.high - band.low);
  const float kept = 1 - std::clamp(ramp, 0.0f, 1.0f);
  return 1 / (static_cast<float>(factor) * power) * (1 - kept) + 1 / power * kept;
}

}  // namespace

const char* NameOf(RopeScalingKind kind) {
  for (const auto& [known, name] : kNames) {
    if (known == kind) return name;
  }
  return "";
}

std::optional<RopeScalingKind> FindRopeScalingKind(absl::string_view name) {
  for (const auto& [kind, known] : kNames) {
    if (known == name) return kind;
  }
  return std::nullopt;
}

double AttentionFactorOf(const RopeScaling& scaling) {
  if (scaling.attention_factor > 0) return scaling.attention_factor;
  return scaling.kind == RopeScalingKind::kYarn && scaling.factor > 1 ? 0.1 * std::log(scaling.factor) + 1
                                                                      : 1;
}

double LongRopeAttentionFactor(double factor, int64_t original_max_position) {
  if (factor <= 1) return 1;
  return std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(original_max_position)));
}

bool UsesLongFactor(const RopeScaling& scaling, int64_t seq_len) {
  return scaling.kind == RopeScalingKind::kLongRope && seq_len > scaling.original_max_position;
}

double RopeBase(const std::optional<RopeScaling>& scaling, double theta, int64_t rotated_dim) {
  if (!scaling.has_value() || scaling->kind != RopeScalingKind::kNtkAlpha) return theta;
  const auto dim = static_cast<double>(rotated_dim);
  return theta * std::pow(scaling->alpha, dim / (dim - 2));
}

std::vector<float> RopeFrequencies(const std::optional<RopeScaling>& scaling, double base,
                                   absl::Span<const float> powers, int64_t seq_len) {
  std::vector<float> frequencies(powers.size());
  const auto set = [&](auto frequency_of) {
    for (size_t i = 0; i < powers.size(); ++i) frequencies[i] = frequency_of(i, powers[i]);
    return frequencies;
  };
  const auto unscaled = [](size_t, float power) { return 1 / power; };
  if (!scaling.has_value()) return set(unscaled);
  const auto factor = static_cast<float>(scaling->factor);
  switch (scaling->kind) {
    case RopeScalingKind::kLlama3:
      return set([&](size_t, float power) { return Llama3Frequency(*scaling, 1 / power); });
    case RopeScalingKind::kLinear:
      return set([&](size_t, float power) { return 1 / power / factor; });
    case RopeScalingKind::kYarn: {
      const Band band = YarnBand(*scaling, base, powers.size());
      return set([&](size_t i, float power) { return YarnFrequency(scaling->factor, band, i, power); });
    }
    case RopeScalingKind::kLongRope: {
      const std::vector<double>& divisors =
          UsesLongFactor(*scaling, seq_len) ? scaling->long_factor : scaling->short_factor;
      TRAINCTL_CHECK(divisors.size() == powers.size());
      return set([&](size_t i, float power) { return 1 / (static_cast<float>(divisors[i]) * power); });
    }
    case RopeScalingKind::kDynamic:
    case RopeScalingKind::kNtkAlpha:
      return set(unscaled);
  }
  return frequencies;
}

}  // namespace trainctl::model
