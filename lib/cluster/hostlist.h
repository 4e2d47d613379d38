// Names of hosts in the notation of Slurm (SLURM_JOB_NODELIST): "n[001-003,7]-ib[0-1],login".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl::cluster {

constexpr int64_t kMaxHosts = 65'536;
constexpr size_t kMaxHostName = 253;  // of a name in DNS (RFC 1035)

// The names in their order; of several brackets in a name the last one counts fastest. The first number of a
// range says to how many digits zeros are put before its numbers. BadDataError for what is no such list, and
// for more than kMaxHosts names.
absl::StatusOr<std::vector<std::string>> ExpandHostlist(absl::string_view list);

}  // namespace trainctl::cluster
