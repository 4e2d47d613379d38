#include "base/units.h"

#include <array>
#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "base/status.h"

namespace trainctl {
namespace {

struct Suffix {
  absl::string_view name;
  int64_t factor;
};
constexpr std::array kByteSuffixes = {
    Suffix{"KiB", int64_t{1} << 10},
    Suffix{"MiB", int64_t{1} << 20},
    Suffix{"GiB", int64_t{1} << 30},
    Suffix{"TiB", int64_t{1} << 40},
    Suffix{"KB", 1'000},
    Suffix{"MB", 1'000'000},
    Suffix{"GB", 1'000'000'000},
    Suffix{"TB", 1'000'000'000'000},
};
constexpr std::array kCountSuffixes = {Suffix{"K", 1'000}, Suffix{"M", 1'000'000}, Suffix{"B", 1'000'000'000},
                                       Suffix{"T", 1'000'000'000'000}, Suffix{"", 1}};
constexpr std::array kNanosecondSuffixes = {Suffix{"ms", 1'000'000}, Suffix{"s", 1'000'000'000},
                                            Suffix{"m", 60'000'000'000}, Suffix{"h", 3'600'000'000'000}};

// digits / 10^num_decimals, exact: "1.001K" is 1001, which no double product gives.
struct Decimal {
  __extension__ unsigned __int128 digits = 0;
  int num_decimals = 0;
  bool too_long = false;
};

// Digits with at most one point and with "_" between digits only.
bool ParseDecimal(absl::string_view text, Decimal& decimal) {
  constexpr int kMaxDigits = 25;  // times the largest factor stays below 2^127
  bool has_point = false;
  bool after_digit = false;
  int num_digits = 0;
  int num_zeros = 0;  // trailing ones after the point do not count
  for (const char c : text) {
    if (c >= '0' && c <= '9') {
      after_digit = true;
      if (has_point && c == '0') {
        ++num_zeros;
        continue;
      }
      for (; num_zeros >= 0 && !decimal.too_long; --num_zeros) {
        decimal.digits = decimal.digits * 10 + (num_zeros == 0 ? static_cast<unsigned>(c - '0') : 0U);
        decimal.num_decimals += has_point ? 1 : 0;
        num_digits += decimal.digits == 0 ? 0 : 1;
        decimal.too_long = num_digits > kMaxDigits || decimal.num_decimals > kMaxDigits;
      }
      num_zeros = 0;
    } else if (c == '_' && after_digit) {
      after_digit = false;
    } else if (c == '.' && after_digit && !has_point) {
      has_point = true;
      after_digit = false;
    } else {
      return false;
    }
  }
  return after_digit;
}

// The value in units of the factors; an error when it is not whole, unless `round_down`.
template <typename Suffixes>
absl::StatusOr<int64_t> ParseSuffixed(absl::string_view text, const Suffixes& suffixes,
                                      absl::string_view expected, bool round_down) {
  for (const Suffix& suffix : suffixes) {
    if (!absl::EndsWith(text, suffix.name)) continue;
    const absl::string_view number =
        absl::StripTrailingAsciiWhitespace(text.substr(0, text.size() - suffix.name.size()));
    Decimal decimal;
    if (!ParseDecimal(number, decimal)) continue;
    if (decimal.too_long) return UsageError(absl::StrCat("'", text, "' is out of range"));
    __extension__ unsigned __int128 value = decimal.digits * static_cast<uint64_t>(suffix.factor);
    for (int i = 0; i < decimal.num_decimals; ++i) {
      if (value % 10 != 0 && !round_down) {
        return UsageError(absl::StrCat("'", text, "' is not a whole number"));
      }
      value /= 10;
    }
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return UsageError(absl::StrCat("'", text, "' is out of range"));
    }
    return static_cast<int64_t>(value);
  }
  return UsageError(absl::StrCat("'", text, "' is not ", expected));
}

}  // namespace

absl::StatusOr<int64_t> ParseBytes(absl::string_view text) {
  return ParseSuffixed(text, kByteSuffixes, "a size with a unit, such as \"80GB\" or \"512MiB\"", false);
}

absl::StatusOr<int64_t> ParseCount(absl::string_view text) {
  return ParseSuffixed(text, kCountSuffixes, "a count, such as \"2M\" or \"100B\"", false);
}

absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text) {
  TRAINCTL_ASSIGN_OR_RETURN(const int64_t nanoseconds,
                            ParseSuffixed(text, kNanosecondSuffixes,
                                          "a duration with a unit (ms, s, m or h), such as \"30m\"", true));
  return absl::Nanoseconds(nanoseconds);
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

std::string FormatNumberOf(int64_t number, absl::string_view noun) {
  return absl::StrFormat("%d %s%s", number, noun, number == 1 ? "" : "s");
}

}  // namespace trainctl
