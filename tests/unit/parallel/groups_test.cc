#include "parallel/groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "model/architecture.h"
#include "model/parameters.h"
#include "model/presets.h"
#include "schedule/build_step.h"
#include "tests/unit/comm/forked_ranks.h"

namespace trainctl::parallel {
namespace {

// Which ranks a group has, as they tell one another.
std::vector<int> Members(comm::Group& group, int rank) {
  std::vector<double> present(4);
  present[static_cast<size_t>(rank)] = 1;
  const absl::Status status = group.AllReduceScalars("members", absl::MakeSpan(present));
  EXPECT_TRUE(status.ok()) << status;
  std::vector<int> members;
  for (int r = 0; r < 4; ++r) {
    if (present[static_cast<size_t>(r)] > 0) members.push_back(r);
  }
  return members;
}

// Two stages of two data-parallel ranks each; the embedding's table is tied to the head's, so that the first
// and the last stage share a bucket.
TEST(Groups, AreThoseOfTheStepOnEveryRank) {
  model::Architecture spec = *model::Preset("toy-1m");
  spec.tie_embeddings = true;
  const layout::Mesh mesh{.pp = 2, .dp_shard = 2};
  const schedule::PipelineSchedule order =
      *schedule::BuildPipeline(schedule::PipelineKind::k1F1B, {.ranks = 2, .num_micro_batches = 4});
  const std::vector<int> stage_begin = {0, 2, model::HeadBlock(spec) + 1};
  const layout::Ledger ledger(model::Inventory(spec), mesh, 1, schedule::OwnersOf(order, stage_begin));
  const schedule::BuildOptions options{.num_micro_batches = 4, .setting = {.seq_len = 16}};
  const absl::StatusOr<schedule::Step> step =
      schedule::BuildStep(schedule::GraphOf(spec, ledger, options), ledger, options, order, stage_begin);
  ASSERT_TRUE(step.ok()) << step.status();
  const auto pipelines = [](const schedule::Group& group) { return group.axis == layout::Axis::kPp; };
  ASSERT_EQ(std::count_if(step->groups.begin(), step->groups.end(), pipelines),
            2);  // scalars, and the shared bucket

  comm::OnEveryRank(4, /*on_test_device=*/false, [&](comm::Rank& rank) {
    absl::StatusOr<Groups> groups = Groups::Make(rank.communicator, mesh, *step);
    ASSERT_TRUE(groups.ok()) << groups.status();
    for (const schedule::Group& group : step->groups)
      EXPECT_EQ(Members(groups->Of(group), rank.index), mesh.Group(rank.index, group.axis));
    EXPECT_TRUE(groups->Close().ok());
  });
}

}  // namespace
}  // namespace trainctl::parallel
