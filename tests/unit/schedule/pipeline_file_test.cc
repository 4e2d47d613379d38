#include "schedule/pipeline_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/status.h"
#include "tests/unit/schedule/step_testing.h"

namespace trainctl::schedule {
namespace {

using ::testing::HasSubstr;

TEST(PipelineFile, EveryKindSurvivesARoundTrip) {
  for (PipelineKind kind : AllKinds()) {
    const PipelineLimits limits = LimitsOf(kind);
    for (int p : {1, 2, 4, 6}) {
      for (int m : {1, 2, 8, 13, 24}) {
        const absl::StatusOr<PipelineSchedule> built = BuildPipeline(kind, {p, m, limits.min_virtual_stages});
        if (!built.ok()) continue;
        const absl::StatusOr<PipelineSchedule> read = ReadPipeline(WritePipeline(*built), built->name);
        ASSERT_TRUE(read.ok()) << read.status();
        EXPECT_EQ(read->actions, built->actions);
        EXPECT_EQ(read->placement, built->placement);
        EXPECT_EQ(read->name, built->name);
      }
    }
  }
}

TEST(PipelineFile, IdleCellsBlanksAndLineEndsOfWindowsAreRead) {
  const absl::StatusOr<PipelineSchedule> read = ReadPipeline("0F0, ,,0B0 \r\n,1F0,1B0,\r\n\r\n", "x.csv");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(WritePipeline(*read), "0F0,0B0\n1F0,1B0\n");
}

// torch's test artifact zb1p_2rank_2stagep_compute.csv writes its input backwards as B.
TEST(PipelineFile, ABackwardBesideItsWeightBackwardIsOneOfTheInput) {
  const absl::StatusOr<PipelineSchedule> read = ReadPipeline("0F0,0F1,0B0,0B1,0W1\n", "x.csv");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(WritePipeline(*read), "0F0,0F1,0B0,0I1,0W1\n");
}

TEST(PipelineFile, ErrorsHaveLineAndColumn) {
  const auto complaint = [](absl::string_view text) {
    const absl::Status status = ReadPipeline(text, "my.csv").status();
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData) << text;
    return std::string(status.message());
  };
  EXPECT_THAT(complaint(""), HasSubstr("my.csv: is empty"));
  EXPECT_THAT(complaint("0F0,0B0\n ,,\n"), HasSubstr("my.csv:2:1: a rank without a pass"));
  EXPECT_THAT(complaint("\n \n"), HasSubstr("is empty"));
  EXPECT_THAT(complaint("0F0,0B0\n1F0,  1X0\n"), HasSubstr("my.csv:2:7: '1X0' is not a pass"));
  EXPECT_THAT(complaint("0F0,F0"), HasSubstr("my.csv:1:5: 'F0' is not a pass"));
  EXPECT_THAT(complaint("0F0,0F"), HasSubstr("my.csv:1:5: '0F' is not a pass"));
  EXPECT_THAT(complaint("0F-1"), HasSubstr("my.csv:1:1: '0F-1' is not a pass"));
  EXPECT_THAT(complaint("0F0 0B0"), HasSubstr("my.csv:1:1: '0F0 0B0' is not a pass"));
  EXPECT_THAT(complaint("99999999999F0"), HasSubstr("is not a pass"));
  EXPECT_THAT(complaint("0F0,0SEND_F0"), HasSubstr("my.csv:1:5: '0SEND_F0' is communication"));
  EXPECT_THAT(complaint("0F0,(0F1;0B0)"), HasSubstr("my.csv:1:5: '(0F1;0B0)' is not of the form"));
  EXPECT_THAT(complaint("0F0,(0F1,0B0)OVERLAP_F_B"), HasSubstr("my.csv:1:5"));
  EXPECT_THAT(complaint("(0B0;0F1)OVERLAP_F_B"), HasSubstr("is not a forward and a backward"));
  EXPECT_THAT(complaint("(0F0;)OVERLAP_F_B"), HasSubstr("my.csv:1:6: '' is not a pass"));
  EXPECT_THAT(complaint("0F0,0F0,0B0,0F1"), HasSubstr("has 3 forwards; 1 stages and 2 micro-batches"));
  EXPECT_THAT(complaint("0F0,0B0,0B0\n"),
              HasSubstr("my.csv:1:9: backward of stage 0, micro-batch 0 is there a second"));
  EXPECT_THAT(complaint("0F0,0B0,0F2\n"), HasSubstr("has 2 forwards; 1 stages and 3 micro-batches"));
  EXPECT_THAT(complaint("0B0\n"), HasSubstr("has 0 forwards"));
  // Sizes come from the numbers in the file only after they were counted.
  EXPECT_THAT(complaint("0F0,2147483646F0"), HasSubstr("has 2 forwards"));
  EXPECT_THAT(complaint("0F0,2147483647F2147483647"), HasSubstr("has 2 forwards"));
  EXPECT_THAT(complaint("0F0,0B0\n1F0\n1B0\n"),
              HasSubstr("my.csv:3:1: backward of stage 1, micro-batch 0 stands on "
                        "line 3 (rank 2), other passes of that stage on line 2"));
  EXPECT_THAT(complaint(absl::StrCat("0F0,", std::string(100000, '\x01'))), HasSubstr("'????"));
}

// Random damage to a good file gives an error or a schedule that goes through builder and checker
// without harm.
TEST(PipelineFile, DamagedFilesDoNoHarm) {
  std::mt19937 random(7);
  const absl::string_view alphabet = "0123456789FBIW(),;OVERLAP_\n -";
  int accepted = 0;
  for (PipelineKind kind : AllKinds()) {
    const std::string good = WritePipeline(*BuildPipeline(kind, {2, 4, LimitsOf(kind).min_virtual_stages}));
    for (int i = 0; i < 300; ++i) {
      std::string text = good;
      for (int hits = 1 + static_cast<int>(random() % 3); hits > 0; --hits) {
        text[random() % text.size()] = alphabet[random() % alphabet.size()];
      }
      const absl::StatusOr<PipelineSchedule> read = ReadPipeline(text, "x");
      if (!read.ok()) continue;
      const absl::StatusOr<Step> step = ExpandOrder(*read);
      accepted += step.ok() && Check(*step).ok() ? 1 : 0;
    }
  }
  EXPECT_LT(accepted, 12 * 300);
}

}  // namespace
}  // namespace trainctl::schedule
