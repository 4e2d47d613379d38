// Internal to lib/rpc: which job and launch each message belongs to. Pure; thread safe.
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

// 0: of no generation, or of no incarnation.
v1::Header MakeHeader(const Launch& launch, int64_t generation, int64_t incarnation);
Launch LaunchOf(const v1::Header& header);
// FailedPrecondition, with both, for a message of another job or of another launch of this one.
absl::Status CheckHeader(const v1::Header& header, const Launch& own);

}  // namespace trainctl::rpc
