#include "frameworks/neighbours.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "frameworks/price_memory.h"
#include "frameworks/price_time.h"
#include "plan_picture_util.h"

namespace trainctl::frameworks {
namespace {

using schedule::PipelineKind;
using ::testing::HasSubstr;
using ::testing::Not;

const report::Alternative* Find(const std::vector<report::Alternative>& rows, const std::string& name) {
  for (const report::Alternative& row : rows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

TEST(Neighbours, ArePricedAsTheJobsThatTheyAre) {
  const Workload w = GptToDraw(PipelineKind::k1F1B, 1, 8, 32);
  const std::vector<report::Alternative> rows = NeighboursOf(w, 0);
  // 128 GPUs stay 128: with half the tensor parallelism twice the data parallelism, half the micro-batches
  // each.
  Workload half = w;
  half.mesh.tp = 4;
  half.mesh.dp_shard = 4;
  const report::Alternative* row = Find(rows, "tp 8 \u2192 4");
  ASSERT_NE(row, nullptr);
  EXPECT_DOUBLE_EQ(row->step_seconds, PriceTime(half).step_seconds);
  EXPECT_DOUBLE_EQ(row->device_bytes, PriceMemory(half).device_bytes);

  Workload kept = w;
  kept.recompute = RecomputeKind::kNone;
  row = Find(rows, "recompute full \u2192 none");
  ASSERT_NE(row, nullptr);
  EXPECT_DOUBLE_EQ(row->step_seconds, PriceTime(kept).step_seconds);
  EXPECT_THAT(row->reason, HasSubstr("recompute \u2212"));
  EXPECT_THAT(row->reason, HasSubstr("memory +"));
}

TEST(Neighbours, AreValidOfOneNameEachAndInOrder) {
  for (const int64_t pp : {1, 8}) {
    const Workload w = GptToDraw(PipelineKind::k1F1B, 1, pp, 32);
    const std::vector<report::Alternative> rows = NeighboursOf(w, 60e9);
    EXPECT_GT(rows.size(), 5U);
    std::set<std::string> names;
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_TRUE(names.insert(rows[i].name).second) << rows[i].name;
      EXPECT_GT(rows[i].step_seconds, 0);
      EXPECT_GT(rows[i].device_bytes, 0);
      EXPECT_FALSE(rows[i].reason.empty()) << rows[i].name;
      if (i == 0) continue;
      EXPECT_GE(rows[i - 1].fits, rows[i].fits);
      if (rows[i].fits) {
        EXPECT_LE(rows[i - 1].step_seconds, rows[i].step_seconds);
      }
    }
  }
}

TEST(Neighbours, OneThatDoesNotFitSaysWhatItNeeds) {
  const Workload w = GptToDraw(PipelineKind::k1F1B, 1, 8, 32);
  const double all = PriceMemory(w).upper_bytes;
  const std::vector<report::Alternative> rows = NeighboursOf(w, all);
  const report::Alternative* row = Find(rows, "pp 8 \u2192 4");
  ASSERT_NE(row, nullptr);
  EXPECT_FALSE(row->fits);
  EXPECT_THAT(row->reason, HasSubstr("needs up to "));
  EXPECT_THAT(row->reason, HasSubstr("parameters "));
  row = Find(rows, "pp 8 \u2192 16");
  ASSERT_NE(row, nullptr);
  EXPECT_TRUE(row->fits);
}

// As the search has it.
TEST(Neighbours, LeaveOutWhatNobodyWouldHave) {
  Workload w = GptToDraw(PipelineKind::kInterleaved1F1B, 6, 16, 32);
  EXPECT_EQ(Find(NeighboursOf(w, 0), "pp 16 \u2192 32"), nullptr);  // 192 stages of 96 layers
  EXPECT_EQ(Find(NeighboursOf(w, 0), "tp 8 \u2192 16"), nullptr);   // of 8 GPUs in a node
  w.virtual_stages = 3;
  EXPECT_NE(Find(NeighboursOf(w, 0), "pp 16 \u2192 32"), nullptr);
}

// One GPU has no neighbours in its degrees, and all of its others.
TEST(Neighbours, AreOfWhatTheFrameworkHas) {
  Workload w = GptToDraw(PipelineKind::k1F1B, 1, 1, 32);
  w.framework = FindFramework("torchtune");  // one device, or all states sharded
  w.mesh = {.dp_shard = w.mesh.world_size()};
  w.zero_stage = 3;
  const std::vector<report::Alternative> rows = NeighboursOf(w, 0);
  EXPECT_NE(Find(rows, "micro-batch 1 \u2192 2"), nullptr);
  for (const report::Alternative& row : rows) {
    for (const char* const lacking : {"tp ", "pp ", "cp ", "ZeRO-1", "ZeRO-2"}) {
      EXPECT_THAT(row.name, Not(HasSubstr(lacking)));
    }
  }
}

TEST(Neighbours, OneDeviceHasSomeToo) {
  Workload w = GptToDraw(PipelineKind::k1F1B, 1, 1, 4);
  SetNumLayers(w.model, 12);
  w.mesh = {};
  w.zero_stage = 0;
  w.global_batch = 4;
  const std::vector<report::Alternative> rows = NeighboursOf(w, 0);
  EXPECT_EQ(Find(rows, "tp 1 \u2192 2"), nullptr);
  EXPECT_NE(Find(rows, "micro-batch 1 \u2192 2"), nullptr);
  EXPECT_NE(Find(rows, "recompute full \u2192 selective"), nullptr);
}

}  // namespace
}  // namespace trainctl::frameworks
