// Enumerates and weighs the layouts of a data-parallel step. Internal to the planner. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/cost.h"
#include "planner/plan.h"

namespace trainctl::planner {

// A recipe with everything resolved but the layout. std::nullopt: free to choose.
struct Problem {
  const model::ModelSpec* spec = nullptr;
  int world_size = 1;
  int64_t batch_sequences = 1;  // a multiple of world_size
  int64_t seq_len = 1;
  DType compute_dtype = DType::kF32;
  bool prefetch = true;
  bool checkpoint_copy = false;
  bool on_device = false;
  int64_t threads = 1;
  int64_t memory_limit_bytes = 0;
  Rates rates;
  std::optional<int64_t> dp_replicate, dp_shard, zero_stage, micro_batch;
  std::optional<schedule::Recompute> recompute;
};

// Blocks run forward and backward in one step, at most: a schedule is a list in memory.
inline constexpr int64_t kMaxBlockRuns = int64_t{1} << 18;

// The layout's schedule options for at most `max_micro_batches`.
schedule::BuildOptions OptionsOf(const Problem& problem, const Layout& layout, int64_t max_micro_batches);

// Every strategy (mesh and stage) that the problem allows, in the order DDP, ZeRO-1, 2, 3 and of
// growing dp_shard, each with the variants (micro-batch, recompute) that were worth looking at: the
// smallest one alone where that does not fit. Nothing is chosen yet.
std::vector<Candidate> Weigh(const Problem& problem);

// Marks the chosen candidate and writes every reason. Among those within 3 % of the fastest: no
// recompute before recompute, then the lowest stage, then the least memory. Returns its index, -1
// when nothing fits.
int Choose(const Problem& problem, std::vector<Candidate>& candidates);

// The strategies that the recipe rules out, as the chosen layout's micro-batch and recompute would make
// them, for comparison: the reason names the setting.
std::vector<Candidate> RuledOut(const Problem& problem, const Layout& chosen);

// "needs 3.10 GiB of 2.00 GiB: optimizer 1.20 GiB, ..."
std::string WhyNotFits(const MemoryReport& memory, int64_t limit_bytes);

// The nearest recipe that fits, as text for an error; changes the fewest constraints first.
std::string NearestThatFits(const Problem& problem);

}  // namespace trainctl::planner
