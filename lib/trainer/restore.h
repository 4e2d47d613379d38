// Restores a run from its newest good checkpoint. All ranks load it together: each rank reads and verifies
// only the data that it needs.
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
  std::string path;  // empty if there is no checkpoint; the state is then unchanged
  RunCounters counters;
  std::string description_json;  // DescribeNumerics of the process that saved it; may be empty
};

// Collective over `world`. Rank 0 chooses a checkpoint under `root` and announces it in `store`, under keys
// that begin with "start_checkpoint/". If a rank finds that it is damaged or that its weights are not finite,
// all ranks skip it and try the next older one. Rank 0 passes a warning about each skipped checkpoint to
// `warn`.
//
// Call this once per start; a second call would read the choices of the first from `store`.
//
// Returns BadDataError on rank 0 if there are checkpoints but none is good. Returns EnvironmentError on rank
// 0 at a checkpoint whose manifest cannot be read, because falling back to an older one would lose work. In
// both cases the other ranks wait until the job ends. A rank may also fail to load a checkpoint for another
// reason, such as a different model or optimizer. It then returns its own error, and the ranks without an
// error return WorkerError.
absl::StatusOr<Restored> RestoreNewest(const std::string& root, parallel::ShardedState& state,
                                       comm::Group& world, KeyValueStore& store,
                                       const std::function<void(const std::string&)>& warn);

}  // namespace trainctl::trainer
