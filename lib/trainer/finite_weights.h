// Looks for weights that are not finite. Not thread-safe.
#pragma once

#include "absl/status/statusor.h"
#include "comm/group.h"
#include "parallel/sharded_state.h"

namespace trainctl::trainer {

// Collective over `world`. Returns whether every master weight of every rank is finite. Copies them to the
// host in pieces, so it is for runs that are about to fail.
absl::StatusOr<bool> AllWeightsAreFinite(const parallel::ShardedState& state, comm::Group& world);

}  // namespace trainctl::trainer
