// Where a run goes on: all ranks together load its newest good checkpoint. Each verifies what it reads, and
// nobody reads it all.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "base/key_value_store.h"
#include "comm/communicator.h"
#include "parallel/sharded_state.h"
#include "trainer/checkpointing.h"

namespace trainctl::trainer {

struct Restored {
  std::string path;  // "": there is no checkpoint, and the state is as it was
  RunCounters counters;
  std::string description_json;  // of who saved it
};

// Collective over `world`; rank 0 chooses, by `store`, which no other call uses with the same keys. A
// checkpoint that is damaged, or whose weights are not finite, is passed over by all ranks for the next older
// one, which is told to `warn` on rank 0. BadDataError on rank 0 when no one is good; of what fits neither
// model nor optimizer on all.
absl::StatusOr<Restored> RestoreNewest(const std::string& root, parallel::ShardedState& state,
                                       comm::Group& world, KeyValueStore& store,
                                       const std::function<void(const std::string&)>& warn);

}  // namespace trainctl::trainer
