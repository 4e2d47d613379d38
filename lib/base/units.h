// Parses and formats numbers as people write them: bytes, counts, and durations. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace trainctl {

// Parses a size such as "512KiB", "80GB" (decimal), or "1.5GiB". A number without a unit is an error. The
// result must be an integer.
absl::StatusOr<int64_t> ParseBytes(absl::string_view text);
// Parses a count such as "10K", "2.5M", "100B", "1T" (decimal suffixes), or "10_000". The result must be an
// integer.
absl::StatusOr<int64_t> ParseCount(absl::string_view text);
// Parses a duration such as "30m", "1.5h", "250ms", or "3s". A number without a unit is an error.
absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text);

std::string FormatBytes(int64_t bytes);  // for example "1.50 GiB" or "812 B"
std::string FormatCount(int64_t count);  // for example "8.03B", "25.2M", or "512"
// Formats a number of things, for example "1 file" or "2 files". `noun` is the singular of a regular plural.
std::string FormatNumberOf(int64_t number, absl::string_view noun);

}  // namespace trainctl
