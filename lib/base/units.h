// Numbers as people write them: bytes, counts, durations. Pure; thread safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace trainctl {

// "512KiB", "80GB" (decimal), "1.5GiB"; a bare number is an error. Must come out whole.
absl::StatusOr<int64_t> ParseBytes(absl::string_view text);
// "10K", "2.5M", "100B", "1T", "10_000" (decimal suffixes). Must come out whole.
absl::StatusOr<int64_t> ParseCount(absl::string_view text);
// "30m", "1.5h", "250ms", "3s"; a bare number is an error.
absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text);

std::string FormatBytes(int64_t bytes);  // "1.50 GiB", "812 B"
std::string FormatCount(int64_t count);  // "8.03B", "25.2M", "512"

}  // namespace trainctl
