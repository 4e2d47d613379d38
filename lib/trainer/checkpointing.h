// State of a run to and from a checkpoint: which slices this rank holds, and its counters. The
// slices come from the ledger, so any layout reads what any other wrote.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "comm/communicator.h"
#include "parallel/sharded_state.h"
#include "recipe/recipe.h"

namespace trainctl::trainer {

// Everything that is not a tensor.
struct RunCounters {
  int64_t step = 0;     // steps done
  int64_t updates = 0;  // steps applied (not skipped as non-finite)
  int64_t tokens = 0;
  bool operator==(const RunCounters&) const = default;
};

struct SaveOptions {
  std::string root;  // "<run>/checkpoints"
  int64_t keep = 3;
  int64_t keep_every_steps = 0;
  std::string description_json;  // layout, threads, build: for people and for the resume warning
};

// Collective over `world`.
absl::Status SaveCheckpoint(const SaveOptions& options, const parallel::ShardedState& state,
                            const RunCounters& counters, comm::Group& world);

// Local. Fills the masters (and the moments, unless weights_only) and returns the counters.
absl::StatusOr<RunCounters> LoadCheckpoint(const std::string& path, parallel::ShardedState& state,
                                           bool weights_only, std::string* description_json);

// Local. Fills the masters from a Hugging Face folder.
absl::Status LoadModelFolder(const std::string& path, parallel::ShardedState& state);

}  // namespace trainctl::trainer
