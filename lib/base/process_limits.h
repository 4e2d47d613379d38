// Reports the system's limits for this process (getrlimit) and the errors that result from reaching one.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainctl {

// The minimum address space of a worker. With less, a worker of any size fails at once or hangs, waiting for
// a library thread that could not be started. For example, a model with 1 M parameters failed with 1.14 GiB
// but ran with 1.9 GiB.
inline constexpr int64_t kLeastAddressBytes = int64_t{3} << 29;

// The minimum data segment and stack of a worker. A run of a tiny model on one core failed with 146
// MiB of data but ran with 195 MiB; a run crashed with a stack of 96 KiB but ran with 128 KiB.
inline constexpr int64_t kLeastDataBytes = int64_t{176} << 20;
inline constexpr int64_t kLeastStackBytes = int64_t{256} << 10;

// Resources that a part of a program needs, in addition to those in use.
struct ResourceNeeds {
  int64_t num_threads = 0;
  int64_t num_files = 0;  // descriptors
  int64_t bytes = 0;      // of memory
};

// Returns the limits that are set, with the names of the shell's ulimit: "ulimit -v: 488.28 MiB, ulimit -n:
// 1024".
std::string LimitsText();

// Returns EnvironmentError with LimitsText if `error` is an exception that a library throws when the system
// refuses memory, a thread, or a descriptor. Returns nullopt for any other exception.
std::optional<absl::Status> RefusedResource(const std::exception& error);

// Returns EnvironmentError with LimitsText for a failed allocation of `bytes` bytes. `purpose` is, for
// example, "for reading a checkpoint".
absl::Status NoMemoryError(int64_t bytes, absl::string_view purpose);

// Returns EnvironmentError, naming the limit and how to raise it, if this process's limits on address space,
// data segment or stack are too low for a worker to load its libraries. Such a worker ends without a reason.
absl::Status CheckWorkerLimits();

// Takes the resources all at once and returns them, because libraries abort or hang if the system refuses
// them one later. Takes about a millisecond. Returns EnvironmentError, naming the limit, if the system
// refuses one. `user` is the part that needs them: "the launcher".
absl::Status TryResources(const ResourceNeeds& needs, absl::string_view user);

// Makes writes beyond the file size limit (`ulimit -f`) fail with EFBIG instead of killing the process. Call
// this before starting other threads.
void ReportFileSizeLimit();

}  // namespace trainctl
