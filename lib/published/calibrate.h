// Fits the few multipliers of a Tuning to runs that were measured, so that a machine which is slower or
// faster than its data sheet is priced as it is. The search is deterministic and robust: it minimises the sum
// over configurations of |log(predicted / measured)|, in which one odd row counts as one row, plus a pull
// toward the data sheet that counts as much as kPriorRows rows for each constant. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "frameworks/hardware_profile.h"
#include "published/runs.h"
#include "published/score.h"

namespace trainctl::published {

inline constexpr double kPriorRows = 2;

struct Calibration {
  frameworks::HardwareProfile profile;
  // Configurations (repeats are one) with a measured time, and with a measured memory beyond the tensors: the
  // latter alone decide reserved_share.
  int64_t timed = 0, reserved = 0;
  ErrorSummary time_before, time_after;
  ErrorSummary memory_before, memory_after;
};

// UsageError when no row can be priced and has a measured value.
absl::StatusOr<Calibration> Calibrate(absl::Span<const PublishedRun> runs);

// For each source: its errors under the data sheet, and under the multipliers that all other sources give.
// Sources without a priced measurement are left out.
struct LeftOut {
  std::string source;         // or "all": the errors of all left-out rows together
  frameworks::Tuning tuning;  // fitted to the others; of "all" fitted to every row
  ErrorSummary time_before, time_after;
  ErrorSummary memory_before, memory_after;
};
std::vector<LeftOut> LeaveOneSourceOut(absl::Span<const PublishedRun> runs);

}  // namespace trainctl::published
