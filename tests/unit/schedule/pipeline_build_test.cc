// Names, shapes that are refused and the orders of small schedules.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "schedule/pipeline_file.h"
#include "tests/unit/schedule/step_testing.h"

namespace trainctl::schedule {
namespace {

using ::testing::HasSubstr;

std::string Refusal(PipelineKind kind, const PipelineShape& shape) {
  const absl::Status status = BuildPipeline(kind, shape).status();
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kUsage) << Name(kind, shape);
  return std::string(status.message());
}

std::string Rows(PipelineKind kind, const PipelineShape& shape) {
  const absl::StatusOr<PipelineSchedule> schedule = BuildPipeline(kind, shape);
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  return schedule.ok() ? WritePipeline(*schedule) : "";
}

TEST(PipelineBuild, NamesAreReadBack) {
  for (PipelineKind kind : AllKinds()) {
    const absl::StatusOr<PipelineKind> parsed = ParsePipelineKind(PipelineKindName(kind));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, kind);
  }
  const absl::Status unknown = ParsePipelineKind("1f2b").status();
  EXPECT_EQ(ExitCodeFor(unknown), ExitCode::kUsage);
  EXPECT_THAT(std::string(unknown.message()),
              HasSubstr(absl::StrCat("'1f2b'; there are: ", absl::StrJoin(PipelineKindNames(), ", "))));
  EXPECT_FALSE(ParsePipelineKind("").ok());
  EXPECT_FALSE(ParsePipelineKind(std::string(100000, 'x')).ok());
}

TEST(PipelineBuild, RefusalsSayWhatWouldDo) {
  EXPECT_THAT(Refusal(PipelineKind::k1F1B, {0, 4, 1}), HasSubstr("at least 1 rank, not 0"));
  EXPECT_THAT(Refusal(PipelineKind::k1F1B, {4, 0, 1}), HasSubstr("at least 1 micro-batch per step, not 0"));
  EXPECT_THAT(Refusal(PipelineKind::k1F1B, {4, -3, 1}), HasSubstr("not -3"));
  EXPECT_THAT(Refusal(PipelineKind::k1F1B, {4, 4, 2}), HasSubstr("one stage per rank, not 2; for several"));
  EXPECT_THAT(Refusal(PipelineKind::kInterleaved1F1B, {4, 4, 1}),
              HasSubstr("at least 2 stages per rank, not 1; "
                        "with 1 it is 1f1b"));
  EXPECT_THAT(Refusal(PipelineKind::kLoopedBreadthFirst, {4, 4, 1}), HasSubstr("with 1 it is gpipe"));
  EXPECT_THAT(Refusal(PipelineKind::kInterleavedZeroBubble, {4, 4, 0}),
              HasSubstr("at least 2 stages per rank, not 0"));
  EXPECT_THAT(Refusal(PipelineKind::kZbv, {4, 4, 3}), HasSubstr("exactly 2 stages per rank, not 3"));
  EXPECT_THAT(Refusal(PipelineKind::kDualPipe, {3, 8, 1}),
              HasSubstr("even number of ranks, not 3; 4 would do"));
  EXPECT_THAT(Refusal(PipelineKind::kDualPipe, {4, 6, 1}), HasSubstr("at least 8 micro-batches, not 6"));
  EXPECT_THAT(Refusal(PipelineKind::kDualPipe, {4, 9, 1}),
              HasSubstr("even number of micro-batches, not 9; 10"));
  EXPECT_THAT(Refusal(PipelineKind::kDualPipeV, {4, 7, 2}), HasSubstr("at least 8 micro-batches, not 7"));
  EXPECT_THAT(Refusal(PipelineKind::kGPipe, {INT_MAX, INT_MAX, 1}), HasSubstr("take fewer micro-batches"));
  EXPECT_THAT(Refusal(PipelineKind::kInterleaved1F1B, {INT_MAX, 1, 1 << 20}), HasSubstr("more than the"));
}

// Every kind but the DualPipes takes any number of micro-batches and of ranks.
TEST(PipelineBuild, TakesAnyNumberOfMicroBatches) {
  for (PipelineKind kind : AllKinds()) {
    const PipelineLimits limits = LimitsOf(kind);
    if (limits.micro_batches_per_rank > 0) continue;
    for (int p = 1; p <= 6; ++p) {
      for (int m = 1; m <= 14; ++m) {
        EXPECT_TRUE(BuildPipeline(kind, {p, m, limits.min_virtual_stages}).ok());
      }
    }
  }
}

// Megatron-LM's figure 4 (arXiv 2104.04473), top: 4 ranks, 8 micro-batches.
TEST(PipelineBuild, OneForwardOneBackwardAsDrawn) {
  EXPECT_EQ(Rows(PipelineKind::k1F1B, {4, 8, 1}),
            "0F0,0F1,0F2,0F3,0B0,0F4,0B1,0F5,0B2,0F6,0B3,0F7,0B4,0B5,0B6,0B7\n"
            "1F0,1F1,1F2,1B0,1F3,1B1,1F4,1B2,1F5,1B3,1F6,1B4,1F7,1B5,1B6,1B7\n"
            "2F0,2F1,2B0,2F2,2B1,2F3,2B2,2F4,2B3,2F5,2B4,2F6,2B5,2F7,2B6,2B7\n"
            "3F0,3B0,3F1,3B1,3F2,3B2,3F3,3B3,3F4,3B4,3F5,3B5,3F6,3B6,3F7,3B7\n");
}

// The order of the same figure's bottom, for 2 ranks with 2 stages each and groups of 2 micro-batches.
TEST(PipelineBuild, InterleavedGoesThroughItsStagesGroupByGroup) {
  EXPECT_EQ(Rows(PipelineKind::kInterleaved1F1B, {2, 4, 2}),
            "0F0,0F1,2F0,2F1,0F2,2B0,0F3,2B1,2F2,0B0,2F3,0B1,2B2,2B3,0B2,0B3\n"
            "1F0,1F1,3F0,3B0,3F1,3B1,1F2,1B0,1F3,1B1,3F2,3B2,3F3,3B3,1B2,1B3\n");
}

// With m no multiple of p, groups stay at least as large as p: here 3 and 2 on 2 ranks.
TEST(PipelineBuild, InterleavedTakesUnevenGroups) {
  EXPECT_EQ(Rows(PipelineKind::kInterleaved1F1B, {2, 5, 2}),
            "0F0,0F1,0F2,2F0,2F1,2F2,2B0,0F3,2B1,0F4,2B2,2F3,0B0,2F4,0B1,0B2,2B3,2B4,0B3,0B4\n"
            "1F0,1F1,1F2,3F0,3B0,3F1,3B1,3F2,3B2,1F3,1B0,1F4,1B1,3F3,1B2,3F4,3B3,3B4,1B3,1B4\n");
}

// arXiv 2401.10241, figure 3 top: the last rank runs its first weight backward when it holds as
// many micro-batches as the first.
TEST(PipelineBuild, ZbH1AsDrawn) {
  EXPECT_EQ(Rows(PipelineKind::kZbH1, {2, 4, 1}),
            "0F0,0F1,0I0,0W0,0F2,0I1,0W1,0F3,0I2,0W2,0I3,0W3\n"
            "1F0,1I0,1F1,1I1,1W0,1F2,1I2,1W1,1F3,1I3,1W2,1W3\n");
}

// DualPipeV with 4 ranks and 10 micro-batches is drawn in deepseek-ai/DualPipe's README; rank 1.
TEST(PipelineBuild, DualPipeVAsDrawn) {
  const std::string rows = Rows(PipelineKind::kDualPipeV, {4, 10, 2});
  EXPECT_THAT(rows,
              HasSubstr("\n1F0,1F1,1F2,1F3,1F4,6F0,1F5,6F1,6I0,6W0,6F2,6I1,6W1,6F3,(1F6;6B2)OVERLAP_F_B,"
                        "(6F4;1B0)OVERLAP_F_B,"));
  EXPECT_THAT(rows, HasSubstr(",6B7,(6F9;1B5)OVERLAP_F_B,6B8,1B6,6I9,1I7,6W9,1I8,1W7,1I9,1W8,1W9\n"));
}

TEST(PipelineBuild, StagesLieWhereTheLayoutSays) {
  const auto ranks = [](PipelineKind kind, int v) {
    return BuildPipeline(kind, {4, 8, v})->placement.stage_ranks;
  };
  EXPECT_EQ(ranks(PipelineKind::kInterleaved1F1B, 2), (std::vector<int>{0, 1, 2, 3, 0, 1, 2, 3}));
  EXPECT_EQ(ranks(PipelineKind::kZbv, 2), (std::vector<int>{0, 1, 2, 3, 3, 2, 1, 0}));
  EXPECT_EQ(ranks(PipelineKind::kDualPipe, 1), (std::vector<int>{0, 1, 2, 3, 3, 2, 1, 0}));  // two copies
  const PipelinePlacement dual = BuildPipeline(PipelineKind::kDualPipe, {4, 8, 1})->placement;
  EXPECT_EQ(dual.RankOf(0, 3), 0);
  EXPECT_EQ(dual.RankOf(0, 4), 3);
}

}  // namespace
}  // namespace trainctl::schedule
