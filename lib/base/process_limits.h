// The limits that the system sets to this process (getrlimit), and what reaching one looks like.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainctl {

// The limits that are set, as the shell's ulimit names them: "ulimit -v: 488.28 MiB, ulimit -n: 1024".
std::string LimitsText();

// EnvironmentError with LimitsText if `error` is what a library throws when the system refuses memory, a
// thread or a descriptor; nothing for any other exception.
std::optional<absl::Status> RefusedResource(const std::exception& error);

// EnvironmentError for an allocation of `bytes` that failed, with LimitsText. `purpose`: "for reading a
// checkpoint".
absl::Status NoMemoryError(int64_t bytes, absl::string_view purpose);

// Writes beyond `ulimit -f` fail with EFBIG afterwards. By default they kill the process. Call before other
// threads.
void ReportFileSizeLimit();

}  // namespace trainctl
