// Who may write to a run. Each launch has a term, and each start of its workers a generation; both are on
// disk before anybody hears of them. What was granted to an older one is void: a process that stood still, or
// was cut off, while another launch took the run over finds that out before it commits, removes or logs.
//
// `<run>/terms/00000003`, made with O_EXCL by the launch of that term; its text is the generation. The
// largest name is the term in force. Thread safe.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trainctl::run {

struct Grant {
  int64_t term = 0;        // 0: of no launch
  int64_t generation = 0;  // 0: before its first
  auto operator<=>(const Grant&) const = default;
  // "3-7": in the names of what is written and not committed.
  std::string Tag() const;
};

// The next term, which no other launch gets, however many ask at once.
absl::StatusOr<int64_t> ClaimTerm(const std::string& run_path);
// Synced when it returns. Errors: as CheckGrant's, and those of writing a file.
absl::Status RecordGrant(const std::string& run_path, const Grant& grant);
// EnvironmentError: a later one is in force. A disk that does not answer says nothing.
absl::Status CheckGrant(const std::string& run_path, const Grant& grant);

}  // namespace trainctl::run
