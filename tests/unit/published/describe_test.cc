#include "published/describe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "published/score.h"
#include "tests/unit/published/score_rows.h"

namespace trainctl::published {
namespace {

using Cells = std::map<std::string, std::string>;

Score ScoreOf(const std::string& text) {
  const auto runs = ReadPublishedRuns(text, "r.csv");
  EXPECT_TRUE(runs.ok()) << runs.status();
  return runs.ok() ? ScoreRuns(*runs) : Score{};
}

std::string SomeRows() {
  const Cells bridge = {{"source", "NVIDIA-NeMo/Megatron-Bridge@1:x.md"},
                        {"model", "Qwen3 30B-A3B"},
                        {"layers", ""},
                        {"hidden", ""},
                        {"ffn", ""},
                        {"heads", ""},
                        {"kv_heads", ""},
                        {"vocab", ""},
                        {"ep", "8"},
                        {"dp_shard", ""},
                        {"activation_recompute", ""},
                        {"notes", "26.04 NeMo Container"},
                        {"peak_mem_gib", "60"}};
  Cells later = bridge;
  later["notes"] = "26.06 NeMo Container; another cluster";
  later["tokens_per_sec_per_gpu"] = "6000";
  return Header() + Row() + Row({{"id", "b"}, {"notes", "compile; OOM"}, {"tokens_per_sec_per_gpu", ""}}) +
         Row({{"id", "c"}, {"vocab", ""}}) + Row(bridge) + Row(later) +
         Row({{"id", "f"}, {"source", "mosaicml/llm-foundry@1:x"}, {"notes", "mp mode=PURE, \"fast\""}}) +
         Row({{"id", "g"},
              {"source", "bigscience-workshop/bigscience@1:x"},
              {"model", "GPT 104B"},
              {"gpu_type", "A100 80GB (Jean Zay)"},
              {"dp_shard", "zero1"},
              {"notes", "sect 3"}});
}

TEST(Describe, RowsInColumnsArePricedAsTheyWereInProse) {
  const absl::StatusOr<std::string> described = DescribeInColumns(SomeRows(), "r.csv");
  ASSERT_TRUE(described.ok()) << described.status();
  const Score prose = ScoreOf(SomeRows());
  const Score columns = ScoreOf(*described);
  ASSERT_EQ(prose.rows.size(), columns.rows.size());
  for (size_t r = 0; r < prose.rows.size(); ++r) {
    const ScoredRow& a = prose.rows[r];
    const ScoredRow& b = columns.rows[r];
    EXPECT_TRUE(a.from_prose);
    EXPECT_EQ(b.from_prose, b.status == ScoreStatus::kSkipped) << a.id;
    EXPECT_EQ(a.id, b.id);
    EXPECT_EQ(a.status, b.status) << a.id;
    EXPECT_EQ(a.predicted_memory_gib, b.predicted_memory_gib) << a.id;
    EXPECT_EQ(a.predicted_step_seconds, b.predicted_step_seconds) << a.id;
    EXPECT_EQ(a.measured_memory_gib, b.measured_memory_gib) << a.id;
    EXPECT_EQ(a.measured_step_seconds, b.measured_step_seconds) << a.id;
    EXPECT_EQ(a.metric, b.metric) << a.id;
    EXPECT_EQ(a.outcome, b.outcome) << a.id;
  }
  EXPECT_EQ(prose.num_from_prose(), 7);
  EXPECT_EQ(columns.num_from_prose(), 1);
}

TEST(Describe, RowsInColumnsStayAsTheyAre) {
  const absl::StatusOr<std::string> once = DescribeInColumns(SomeRows(), "r.csv");
  ASSERT_TRUE(once.ok());
  EXPECT_EQ(*DescribeInColumns(*once, "r.csv"), *once);
}

}  // namespace
}  // namespace trainctl::published
