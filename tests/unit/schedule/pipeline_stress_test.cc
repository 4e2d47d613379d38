// Random schedules through builder, lowering, checker and simulator. The count is small by default;
// TRAINCTL_PIPELINE_CASES=100000 runs the whole on two threads (about half a minute). The time is
// printed and asserts nothing.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <thread>

#include "tests/unit/schedule/pipeline_testing.h"

namespace trainctl::schedule {
namespace {

struct Tally {
  std::vector<int64_t> num_instructions;  // by case
  std::string failure;
};

// A schedule of random kind, 1 to 16 ranks, 1 to 64 micro-batches, 1 to 4 stages per rank, as far as
// the kind allows.
void DrawCase(std::mt19937& random, PipelineKind& kind, PipelineShape& shape) {
  while (true) {
    kind = static_cast<PipelineKind>(random() % kNumPipelineKinds);
    const PipelineLimits limits = LimitsOf(kind);
    shape.ranks = 1 + static_cast<int>(random() % 16);
    shape.num_micro_batches = 1 + static_cast<int>(random() % 64);
    shape.virtual_stages =
        std::clamp(1 + static_cast<int>(random() % 4), limits.min_virtual_stages, limits.max_virtual_stages);
    if (CheckPipelineShape(kind, shape).ok()) return;
  }
}

std::string RunCase(std::mt19937& random, PipelineKind kind, const PipelineShape& shape, Tally& tally) {
  const absl::StatusOr<PipelineSchedule> schedule = BuildPipeline(kind, shape);
  if (!schedule.ok()) return schedule.status().ToString();
  const absl::StatusOr<LoweredPipeline> lowered = LowerPipeline(*schedule);
  if (!lowered.ok()) return lowered.status().ToString();
  const absl::StatusOr<PipelineProof> proof = CheckPipeline(*lowered);
  if (!proof.ok()) return proof.status().ToString();
  tally.num_instructions.push_back(proof->num_instructions);
  const auto draw = [&] { return 1 + static_cast<double>(random() % 8); };
  PipelineCosts costs;
  double work = 0;  // of the busiest rank, at least
  std::vector<double> of_rank(static_cast<size_t>(shape.ranks), 0);
  for (int s = 0; s < schedule->placement.num_stages; ++s) {
    costs.stages.push_back({draw(), draw(), draw()});
    const StageCosts& c = costs.stages.back();
    for (int copy = 0; copy < schedule->placement.num_copies; ++copy) {
      const size_t at = static_cast<size_t>(copy * schedule->placement.num_stages + s);
      of_rank[static_cast<size_t>(schedule->placement.stage_ranks[at])] +=
          (c.forward_s + c.input_backward_s + c.weight_backward_s) * shape.num_micro_batches /
          schedule->placement.num_copies;
    }
  }
  work = *std::max_element(of_rank.begin(), of_rank.end());
  const absl::StatusOr<PipelineTimes> times = SimulatePipeline(*lowered, costs);
  if (!times.ok()) return times.status().ToString();
  if (times->makespan_s < work) return "is faster than its busiest rank";
  for (size_t r = 0; r < of_rank.size(); ++r) {
    if (times->busy_s[r] != of_rank[r]) return absl::StrCat("rank ", r, " does not do its work");
    if (times->peak_in_flight[r] != lowered->num_slots[r]) return absl::StrCat("rank ", r, " wastes slots");
  }
  return "";
}

void RunCases(uint32_t seed, int count, Tally& tally) {
  std::mt19937 random(seed);
  for (int i = 0; i < count && tally.failure.empty(); ++i) {
    PipelineKind kind;
    PipelineShape shape;
    DrawCase(random, kind, shape);
    const std::string failure = RunCase(random, kind, shape, tally);
    if (!failure.empty()) tally.failure = absl::StrCat(Name(kind, shape), ": ", failure);
  }
}

TEST(PipelineStress, RandomSchedulesAreProvenAndPlayed) {
  const char* wanted = std::getenv("TRAINCTL_PIPELINE_CASES");
  const int count = wanted != nullptr ? std::max(2, std::atoi(wanted)) : 2000;
  const auto start = std::chrono::steady_clock::now();
  std::vector<Tally> tallies(2);
  std::thread other(RunCases, 1u, count / 2, std::ref(tallies[0]));
  RunCases(2u, count - count / 2, tallies[1]);
  other.join();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::vector<int64_t> sizes;
  for (const Tally& tally : tallies) {
    EXPECT_EQ(tally.failure, "");
    sizes.insert(sizes.end(), tally.num_instructions.begin(), tally.num_instructions.end());
  }
  ASSERT_EQ(sizes.size(), static_cast<size_t>(count));
  std::nth_element(sizes.begin(), sizes.begin() + count / 2, sizes.end());
  const int64_t median = sizes[static_cast<size_t>(count / 2)];
  EXPECT_GE(median, 500);
  std::printf("%d schedules of %lld instructions (median) in %.2f s on 2 threads: %.0f a minute\n", count,
              static_cast<long long>(median), seconds, 60 * count / seconds);
}

}  // namespace
}  // namespace trainctl::schedule
