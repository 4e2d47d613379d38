// Expands host lists in Slurm's notation (SLURM_JOB_NODELIST), for example "n[001-003,7]-ib[0-1],login".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl::cluster {

constexpr int64_t kMaxHosts = 65'536;
constexpr size_t kMaxHostName = 253;  // limit of DNS (RFC 1035)

// Returns the names in order. If a name has several brackets, the last one varies fastest. A range's numbers
// are padded to as many digits as its first number has. Returns BadDataError if `list` is malformed or has
// more than kMaxHosts names.
absl::StatusOr<std::vector<std::string>> ExpandHostlist(absl::string_view list);

}  // namespace trainctl::cluster
