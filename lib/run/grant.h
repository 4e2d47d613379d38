// Controls which process may write to a run. Each launch has a term, and each start of its workers has a
// generation. Both are on disk before any other process learns of them, and a newer grant voids all older
// ones. A process that hung or lost its connection while another launch took over the run therefore finds out
// before it commits, removes, or logs anything.
//
// The launch with term 3 creates `<run>/terms/00000003` with O_EXCL; the file contains the generation. The
// file with the highest number is the current term. Thread-safe.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trainctl::run {

struct Grant {
  int64_t term = 0;        // 0 if the run has never been launched
  int64_t generation = 0;  // 0 before the launch starts its first generation
  auto operator<=>(const Grant&) const = default;
  // Returns a tag for the names of uncommitted files, such as "3-7".
  std::string Tag() const;
};

// Claims the next term. Concurrent callers receive different terms.
absl::StatusOr<int64_t> ClaimTerm(const std::string& run_path);
// Writes the grant to disk and syncs it. Returns the errors of CheckGrant, or an error if the file cannot be
// written.
absl::Status RecordGrant(const std::string& run_path, const Grant& grant);
// Returns EnvironmentError if a later grant has been recorded. Returns OK if the recorded grants cannot be
// read.
absl::Status CheckGrant(const std::string& run_path, const Grant& grant);

}  // namespace trainctl::run
