// What a calibration found out about a machine, as a file: multipliers for the catalogue's numbers, fitted to
// runs (calibrate.h), and rates of the CPU where it was measured. `trainctl calibrate` writes one, and
// `score` and `plan` take it with --profile. Pure; thread safe.
//
//   {"schema": "trainctl.profile.v1", "made_by": "trainctl calibrate runs.csv", "rows": 40,
//    "devices": ["a100-sxm-80gb"], "tuning": {"matmul_rate": 0.93, ...}, "cpu": {...}}
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "pricing/tuning.h"

namespace trainctl::pricing {

// Of one worker on this machine's CPU; 0: not measured.
struct CpuRates {
  double fp32_flops_per_core = 0;  // FLOP/s of matrix products
  double bf16_flops_per_core = 0;
  double memory_bytes_per_core = 0;  // bytes/s, streaming
  double link_bytes_per_second = 0;  // to its peers, each direction
  double collective_seconds = 0;     // fixed cost of one collective
  double instruction_seconds = 0;    // fixed cost of one compute instruction
};

// Names in the file and where the values go; a new rate is one row here.
inline constexpr std::array<std::pair<const char*, double CpuRates::*>, 6> kCpuRates = {
    {{"fp32_flops_per_core", &CpuRates::fp32_flops_per_core},
     {"bf16_flops_per_core", &CpuRates::bf16_flops_per_core},
     {"memory_bytes_per_core", &CpuRates::memory_bytes_per_core},
     {"link_bytes_per_second", &CpuRates::link_bytes_per_second},
     {"collective_seconds", &CpuRates::collective_seconds},
     {"instruction_seconds", &CpuRates::instruction_seconds}}};

struct HardwareProfile {
  std::string made_by;               // the command
  int64_t rows = 0;                  // runs that the multipliers were fitted to
  std::vector<std::string> devices;  // names in the catalogue of what they ran on
  Tuning tuning;
  std::optional<CpuRates> cpu;
};

std::string ProfileToJson(const HardwareProfile& profile);

// `what` names the text in errors. BadDataError that names the field: not JSON, another schema or a newer
// version, an unknown field, a multiplier outside kLeastMultiplier to kMostMultiplier, a negative rate. What
// is missing is 1 (multipliers) or not measured (rates).
absl::StatusOr<HardwareProfile> ParseProfile(absl::string_view text, absl::string_view what);

}  // namespace trainctl::pricing
