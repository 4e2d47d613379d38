// What a calibration found out about a machine with accelerators, as a file: multipliers for the catalogue's
// numbers, fitted to runs (calibrate.h). `trainctl calibrate FILE.csv` writes one, and `score` takes it with
// --profile. (What was measured of this machine's CPU is recipe/machine.h.) Pure; thread safe.
//
//   {"schema": "trainctl.profile.v1", "made_by": "trainctl calibrate runs.csv", "rows": 40,
//    "devices": ["a100-sxm-80gb"], "tuning": {"matmul_rate": 0.93, ...}}
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "frameworks/tuning.h"

namespace trainctl::frameworks {

struct HardwareProfile {
  std::string made_by;               // the command
  int64_t rows = 0;                  // runs that the multipliers were fitted to
  std::vector<std::string> devices;  // names in the catalogue of what they ran on
  Tuning tuning;
};

std::string ProfileToJson(const HardwareProfile& profile);

// `what` names the text in errors. BadDataError that names the field: not JSON, another schema or a newer
// version, an unknown field, a multiplier outside kLeastMultiplier to kMostMultiplier, a negative rate. What
// is missing is 1 (multipliers) or not measured (rates).
absl::StatusOr<HardwareProfile> ParseProfile(absl::string_view text, absl::string_view what);

}  // namespace trainctl::frameworks
