// Internal to lib/rpc: the header of each message, which identifies its job and launch. Pure functions;
// thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "proto/trainctl.pb.h"

namespace trainctl::rpc {

// One launch of a job.
struct Launch {
  std::string job;
  int64_t term = 0;
  friend bool operator==(const Launch&, const Launch&) = default;
};

// Makes the header of a message. `generation` and `incarnation` are 0 if the message has none.
v1::Header MakeHeader(const Launch& launch, int64_t generation, int64_t incarnation);
Launch LaunchOf(const v1::Header& header);
// Returns FailedPrecondition if the message is from another job or another launch of this job. The error
// names both launches.
absl::Status CheckHeader(const v1::Header& header, const Launch& own);

}  // namespace trainctl::rpc
