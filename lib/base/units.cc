#include "base/units.h"

#include <array>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"

namespace trainctl {
namespace {

struct Suffix {
  absl::string_view name;
  double factor;
};
constexpr std::array kByteSuffixes = {
    Suffix{"KiB", 0x1p10}, Suffix{"MiB", 0x1p20}, Suffix{"GiB", 0x1p30}, Suffix{"TiB", 0x1p40},
    Suffix{"KB", 1e3},     Suffix{"MB", 1e6},     Suffix{"GB", 1e9},     Suffix{"TB", 1e12},
};
constexpr std::array kCountSuffixes = {Suffix{"K", 1e3}, Suffix{"M", 1e6}, Suffix{"B", 1e9},
                                       Suffix{"T", 1e12}, Suffix{"", 1}};
constexpr std::array kDurationSuffixes = {Suffix{"ms", 1e-3}, Suffix{"s", 1}, Suffix{"m", 60},
                                          Suffix{"h", 3600}};

template <typename Suffixes>
absl::StatusOr<double> ParseSuffixed(absl::string_view text, const Suffixes& suffixes,
                                     absl::string_view expected) {
  for (const Suffix& suffix : suffixes) {
    if (!absl::EndsWith(text, suffix.name)) continue;
    std::string digits(text.substr(0, text.size() - suffix.name.size()));
    while (!digits.empty() && digits.back() == ' ') digits.pop_back();
    if (digits.empty() || digits.find_first_not_of("0123456789._") != std::string::npos) continue;
    double value = 0;
    if (!absl::SimpleAtod(absl::StrReplaceAll(digits, {{"_", ""}}), &value)) continue;
    return value * suffix.factor;
  }
  return UsageError(absl::StrCat("'", text, "' is not ", expected));
}

absl::StatusOr<int64_t> Whole(absl::StatusOr<double> value, absl::string_view text) {
  if (!value.ok()) return value.status();
  if (*value < 0 || *value > 9e18) return UsageError(absl::StrCat("'", text, "' is out of range"));
  if (*value != std::floor(*value)) return UsageError(absl::StrCat("'", text, "' is not a whole number"));
  return static_cast<int64_t>(*value);
}

}  // namespace

absl::StatusOr<int64_t> ParseBytes(absl::string_view text) {
  return Whole(ParseSuffixed(text, kByteSuffixes, "a size with a unit, such as \"80GB\" or \"512MiB\""),
               text);
}

absl::StatusOr<int64_t> ParseCount(absl::string_view text) {
  return Whole(ParseSuffixed(text, kCountSuffixes, "a count, such as \"2M\" or \"100B\""), text);
}

absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text) {
  TRAINCTL_ASSIGN_OR_RETURN(
      const double seconds,
      ParseSuffixed(text, kDurationSuffixes, "a duration with a unit (ms, s, m or h), such as \"30m\""));
  if (seconds > 1e9) return UsageError(absl::StrCat("'", text, "' is out of range"));
  return absl::Seconds(seconds);
}

std::string FormatBytes(int64_t bytes) {
  constexpr std::array<absl::string_view, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (std::abs(value) >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrFormat("%d B", bytes) : absl::StrFormat("%.2f %s", value, kUnits[unit]);
}

std::string FormatCount(int64_t count) {
  constexpr std::array<absl::string_view, 5> kUnits = {"", "K", "M", "B", "T"};
  double value = static_cast<double>(count);
  size_t unit = 0;
  while (std::abs(value) >= 1000 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  return unit == 0 ? absl::StrFormat("%d", count) : absl::StrFormat("%.3g%s", value, kUnits[unit]);
}

}  // namespace trainctl
