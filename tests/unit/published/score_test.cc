#include "published/score.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "frameworks/operator_time.h"
#include "frameworks/price_memory.h"
#include "frameworks/price_time.h"
#include "tests/unit/published/score_rows.h"

namespace trainctl::published {
namespace {

using ::testing::HasSubstr;

PublishedRun Read(const std::map<std::string, std::string>& changes = {}) {
  const auto runs = ReadPublishedRuns(Header() + Row(changes), "r.csv");
  EXPECT_TRUE(runs.ok()) << runs.status();
  return runs.ok() ? (*runs)[0] : PublishedRun{};
}

frameworks::Workload Priced(const std::map<std::string, std::string>& changes = {}) {
  const PublishedRun run = Read(changes);
  EXPECT_TRUE(run.workload.has_value()) << run.reason;
  return run.workload.value_or(frameworks::Workload{});
}

TEST(PublishedRuns, ARowIsReadAsItStands) {
  const PublishedRun run = Read();
  ASSERT_TRUE(run.workload.has_value()) << run.reason;
  EXPECT_EQ(run.workload->mesh.data_degree(), 64);
  EXPECT_EQ(run.workload->zero_stage, 3);
  EXPECT_EQ(run.workload->num_micro_batches(), 1);
  EXPECT_STREQ(run.workload->framework->name, "torchtitan");
  EXPECT_STREQ(run.workload->device->name, "h100-sxm-80gb");
  EXPECT_DOUBLE_EQ(run.measured_step_seconds, 64 * 8192 / (5000.0 * 64));
}

TEST(PublishedRuns, ADeviceAndItsNodeAreReadByName) {
  EXPECT_STREQ(Priced({{"gpu_type", "B200"}}).device->name, "b200-sxm-180gb");
  EXPECT_STREQ(Priced({{"gpu_type", "b200-sxm-180gb-750w"}}).device->name, "b200-sxm-180gb-750w");
  EXPECT_EQ(Priced({{"gpu_type", "A100-80GB"}}).node->name, "dgx-a100");
  EXPECT_EQ(Priced({{"gpu_type", "A100-80GB"}, {"settings", "node=p4de.24xlarge"}}).node->name,
            "p4de.24xlarge");
}

TEST(PublishedRuns, WhatIsMissingIsFilledInOrSaid) {
  EXPECT_THAT(Read({{"ffn", ""}}).reason, HasSubstr("ffn = 11008"));
  EXPECT_THAT(Read({{"activation_recompute", ""}}).reason, HasSubstr("recompute = selective (torchtitan)"));
  const std::pair<const char*, const char*> kNeeded[] = {
      {"hidden", "hidden is not stated"},           {"tp", "tp is not stated"},
      {"micro_batch", "micro_batch is not stated"}, {"gpu_type", "gpu_type is not stated"},
      {"framework", "framework is not stated"},     {"vocab", "vocab is not stated"}};
  for (const auto& [column, reason] : kNeeded) {
    const PublishedRun run = Read({{column, ""}});
    EXPECT_FALSE(run.workload.has_value()) << column;
    EXPECT_EQ(run.reason, reason);
  }
  EXPECT_THAT(Read({{"global_batch_seqs", "63"}}).reason, HasSubstr("63 sequences is not a multiple"));
  EXPECT_THAT(Read({{"gpu_type", "H101"}}).reason, HasSubstr("h100"));
  EXPECT_THAT(Read({{"tp", "5"}}).reason, HasSubstr("does not divide 64 GPUs"));
  // Without a batch: one micro-batch per rank, or four for each stage of a pipeline.
  EXPECT_EQ(Read({{"global_batch_seqs", ""}}).workload->num_micro_batches(), 1);
  const std::map<std::string, std::string> pipeline = {
      {"global_batch_seqs", ""}, {"n_gpus", "8"}, {"pp", "4"}, {"dp_shard", ""}};
  EXPECT_EQ(Read(pipeline).workload->num_micro_batches(), 16);
  EXPECT_THAT(Read({{"global_batch_seqs", ""}, {"micro_batch", "1e9"}, {"n_gpus", "6.4e8"}}).reason,
              HasSubstr("a batch that no run had"));
}

TEST(PublishedRuns, AFileThatIsWrongIsNamedWithLinesAndColumns) {
  const auto columns = ReadPublishedRuns("id,model\nx,y\n", "r.csv");
  EXPECT_THAT(std::string(columns.status().message()), HasSubstr("r.csv:1: missing columns: source"));
  const auto words = ReadPublishedRuns(Header() + Row({{"tp", "eight"}}) + Row({{"pp", "-1"}}), "r.csv");
  EXPECT_THAT(std::string(words.status().message()), HasSubstr("r.csv:2: tp is 'eight', not a number"));
  EXPECT_THAT(std::string(words.status().message()),
              HasSubstr("r.csv:3: pp is '-1', which cannot be negative"));
  const auto odd = ReadPublishedRuns(Header() + Row({{"layers", "0"}}) + Row({{"tp", "2.5"}}) +
                                         Row({{"seq_len", "inf"}}) + Row({{"n_gpus", "1e30"}}),
                                     "r.csv");
  for (const char* message :
       {"r.csv:2: layers is '0', which is at least 1", "r.csv:3: tp is '2.5', which is a whole",
        "r.csv:4: seq_len is 'inf', not a number", "r.csv:5: n_gpus is '1e30', more than"}) {
    EXPECT_THAT(std::string(odd.status().message()), HasSubstr(message));
  }
  // None of something is no mistake.
  const PublishedRun none = Read({{"vpp", "0"}, {"cp", "0"}, {"ep", "0"}, {"kv_heads", "0"}, {"ffn", "0"}});
  ASSERT_TRUE(none.workload.has_value()) << none.reason;
  EXPECT_EQ(none.workload->mesh.cp, 1);
  EXPECT_EQ(AttentionOf(none.workload->model).kv_heads, 32);
  EXPECT_FALSE(ReadPublishedRuns("", "r.csv").ok());
  EXPECT_FALSE(ReadPublishedRuns(Header() + "a,b\n", "r.csv").ok());
}

TEST(Score, ErrorsAreSignedAndRepeatsShareTheirMedian) {
  const auto runs = ReadPublishedRuns(Header() + Row({{"id", "a"}, {"tokens_per_sec_per_gpu", "4000"}}) +
                                          Row({{"id", "b"}, {"tokens_per_sec_per_gpu", "5000"}}) +
                                          Row({{"id", "c"}, {"tokens_per_sec_per_gpu", "8000"}}) +
                                          Row({{"id", "d"}, {"hidden", ""}}),
                                      "r.csv");
  ASSERT_TRUE(runs.ok()) << runs.status();
  const Score score = ScoreRuns(*runs);
  ASSERT_EQ(score.rows.size(), 4u);
  for (int i = 0; i < 3; ++i) EXPECT_DOUBLE_EQ(score.rows[i].measured_step_seconds, 8192 / 5000.0);
  EXPECT_EQ(score.rows[3].status, ScoreStatus::kSkipped);
  const ScoredRow& row = score.rows[0];
  EXPECT_DOUBLE_EQ(row.time_error_percent, 100 * (row.predicted_step_seconds - row.measured_step_seconds) /
                                               row.measured_step_seconds);
  EXPECT_TRUE(std::isnan(row.memory_error_percent));
  EXPECT_EQ(score.sources.back().source, "all");
  EXPECT_EQ(score.sources.back().skipped, 1);
}

TEST(Score, SummariesAreThoseOfTheirDefinitions) {
  const ErrorSummary summary = Summarize({-10, 20, 5, -1});
  EXPECT_EQ(summary.count, 4);
  EXPECT_DOUBLE_EQ(summary.mean_absolute, 9);
  EXPECT_DOUBLE_EQ(summary.mean, 3.5);
  EXPECT_DOUBLE_EQ(summary.median, 2);
  EXPECT_DOUBLE_EQ(summary.worst, 20);
  EXPECT_DOUBLE_EQ(summary.percentile_95, 20);
}

std::vector<PublishedRun> ReadAll(const std::string& rows) {
  const auto runs = ReadPublishedRuns(Header() + rows, "r.csv");
  EXPECT_TRUE(runs.ok()) << runs.status();
  return runs.ok() ? *runs : std::vector<PublishedRun>{};
}

TEST(Score, ListedRowsThatAreSkippedAreAHundredPercentOff) {
  const std::vector<PublishedRun> runs =
      ReadAll(Row({{"id", "a"}, {"peak_mem_gib", "40"}}) +
              Row({{"id", "b"}, {"hidden", ""}, {"peak_mem_gib", "40"}}) +
              Row({{"id", "c"}, {"hidden", ""}, {"tokens_per_sec_per_gpu", ""}, {"peak_mem_gib", "40"}}) +
              Row({{"id", "d"}, {"hidden", ""}}));
  const Score listed = ScoreRuns(runs, {.complete_ids = {"a", "b", "c", "elsewhere"}, .tuning = {}});
  EXPECT_EQ(listed.complete.rows, 3);
  EXPECT_EQ(listed.complete.absent, 1);
  const double memory = std::abs(listed.rows[0].memory_error_percent);
  const double time = std::abs(listed.rows[0].time_error_percent);
  EXPECT_EQ(listed.complete.all().memory.count, 3);
  EXPECT_NEAR(listed.complete.all().memory.mean_absolute, (memory + 200) / 3, 1e-9);
  EXPECT_EQ(listed.complete.all().time.count, 2);  // c published no time
  EXPECT_NEAR(listed.complete.all().time.mean_absolute, (time + 100) / 2, 1e-9);
  // Without a list the rows count that can be priced; the table of sources is of every row either way.
  const Score unlisted = ScoreRuns(runs);
  EXPECT_EQ(unlisted.complete.rows, 1);
  EXPECT_EQ(unlisted.complete.all().memory.count, 1);
  EXPECT_EQ(listed.sources.back().skipped, 3);
  EXPECT_EQ(listed.sources.back().memory.count, 1);
}

TEST(Score, TheUpperBoundIsHeldAgainstWhatWasMeasured) {
  const double upper = ScoreRuns(ReadAll(Row())).rows[0].upper_memory_gib;
  const Score score = ScoreRuns(ReadAll(
      Row({{"id", "a"}, {"peak_mem_gib", absl::StrCat(upper / 1.25)}}) +
      Row({{"id", "b"}, {"micro_batch", "2"}, {"global_batch_seqs", "128"}, {"peak_mem_gib", "10000"}})));
  EXPECT_EQ(score.complete.covered, 1);
  EXPECT_EQ(score.complete.above, std::vector<std::string>{"b"});
  const double headroom_b = 100 * (score.rows[1].upper_memory_gib / 10000 - 1);
  EXPECT_NEAR(score.complete.mean_headroom_percent, (25 + headroom_b) / 2, 1e-2);
}

// A full A100 of 79.3 GiB is printed as 80 by whole units; ten layers of BLOOM's width on eight of them fill
// it (train/tr11-176B-ml/chronicles-prequel.md:660).
TEST(Score, AFullDeviceMayBePrintedRoundedUp) {
  const Score score = ScoreRuns(ReadAll(Row({{"framework", "megatron-deepspeed"},
                                             {"model", "GPT/BLOOM-proto 18B"},
                                             {"layers", "10"},
                                             {"hidden", "14336"},
                                             {"ffn", "57344"},
                                             {"heads", "64"},
                                             {"kv_heads", "64"},
                                             {"vocab", "250000"},
                                             {"seq_len", "2048"},
                                             {"gpu_type", "A100-80GB"},
                                             {"n_gpus", "8"},
                                             {"tp", "8"},
                                             {"dp_shard", "zero1"},
                                             {"global_batch_seqs", "512"},
                                             {"precision", "fp16"},
                                             {"peak_mem_gib", "80"}})));
  EXPECT_EQ(score.rows[0].status, ScoreStatus::kScored);
  EXPECT_DOUBLE_EQ(score.rows[0].upper_memory_gib, 80);
  EXPECT_LT(score.rows[0].predicted_memory_gib, 80);
}

TEST(Score, RowsThatRanOutOfMemoryAndRowsThatRanAreJudged) {
  const std::map<std::string, std::string> oom = {{"tokens_per_sec_per_gpu", ""},
                                                  {"settings", "outcome=out-of-memory"}};
  const auto with = [](std::map<std::string, std::string> cells, const std::string& id,
                       const char* micro_batch, const char* batch) {
    cells["id"] = id;
    cells["micro_batch"] = micro_batch;
    cells["global_batch_seqs"] = batch;
    return Row(cells);
  };
  const Score score = ScoreRuns(ReadAll(
      with(oom, "rejected", "4096", "262144") + with(oom, "missed", "1", "64") + with({}, "ran", "1", "64") +
      with({}, "ran too", "1", "64") + with({}, "refused", "4096", "262144") +
      // Neither measured nor out of memory: it says nothing.
      with({{"tokens_per_sec_per_gpu", ""}, {"notes", "OOM"}}, "unknown", "1", "64") +
      with({{"tokens_per_sec_per_gpu", ""}, {"peak_mem_gib", "70"}, {"settings", "outcome=unknown"}}, "both",
           "1", "64")));
  EXPECT_EQ(score.rows[0].status, ScoreStatus::kRejected);
  EXPECT_EQ(score.sources.back().out_of_memory, 2);
  EXPECT_EQ(score.sources.back().missed, 1);
  EXPECT_EQ(score.complete.missed, std::vector<std::string>{"missed"});
  EXPECT_EQ(score.complete.rejected, std::vector<std::string>{"refused"});
  EXPECT_EQ(score.sources.back().ran, 3);
  EXPECT_EQ(score.sources.back().wrongly_rejected, 1);
}

TEST(Score, ListsOfIdsAreReadWithTheirComments) {
  const auto ids = ReadIdList("# first\na\n\n  b # why\nc", "l.txt");
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(*ids, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_THAT(std::string(ReadIdList("a\nb\na\n", "l.txt").status().message()),
              HasSubstr("l.txt:3: a is listed twice"));
  EXPECT_THAT(std::string(ReadIdList("# none\n", "l.txt").status().message()), HasSubstr("lists no row"));
}

// "Reducing Activation Recomputation in Large Transformer Models", arXiv 2205.05198, and the same derived for
// Llama: per layer sb(12h + 4h kv/a + 6f) bytes and four for each head's log-sum.
TEST(PriceMemory, ActivationsAreThePublishedFormula) {
  frameworks::Workload w =
      Priced({{"activation_recompute", "none"}, {"micro_batch", "2"}, {"global_batch_seqs", "128"}});
  const frameworks::LayerWork work = frameworks::WorkOfLayer(w, 0);
  const double h = 4096, f = 14336, kv_share = 8.0 / 32, tokens = 2 * 8192;
  EXPECT_DOUBLE_EQ(frameworks::SavedBytes(work, w), tokens * (12 * h + 4 * h * kv_share + 6 * f + 4 * 32));
  w.recompute = frameworks::RecomputeKind::kFull;
  EXPECT_DOUBLE_EQ(frameworks::SavedBytes(work, w), tokens * 2 * h);
}

// Megatron-LM's README: 18 bytes per parameter, 6 + 12/d with the distributed optimizer.
TEST(PriceMemory, StatesAreThePublishedBytesPerParameter) {
  for (int64_t dp : {1, 8, 64}) {
    frameworks::Workload w = Priced({{"framework", "megatron-core"},
                                     {"dp_shard", ""},
                                     {"n_gpus", absl::StrCat(dp)},
                                     {"global_batch_seqs", absl::StrCat(dp)}});
    w.framework = frameworks::FindFramework("megatron-core");
    w.model.vocab = 128;  // not padded
    const frameworks::MemoryPrice price = frameworks::PriceMemory(w);
    const double states = price.parts[0] + price.parts[1] + price.parts[2];
    const double parameters =
        static_cast<double>(NumParameters(w.model)) - static_cast<double>(w.model.hidden);
    EXPECT_NEAR(states / parameters, 6 + 12.0 / static_cast<double>(dp), 0.01);
  }
}

TEST(PriceMemory, InFlightMicroBatchesAreThoseOfTheSchedules) {
  frameworks::Workload w =
      Priced({{"n_gpus", "8"}, {"pp", "8"}, {"dp_shard", ""}, {"global_batch_seqs", "64"}});
  EXPECT_DOUBLE_EQ(frameworks::MicroBatchesInFlight(w, 0), 8);
  EXPECT_DOUBLE_EQ(frameworks::MicroBatchesInFlight(w, 7), 1);
  // Megatron-LM: p (1 + (p - 1) / (p v)) for the first stage.
  w.virtual_stages = 4;
  EXPECT_DOUBLE_EQ(frameworks::MicroBatchesInFlight(w, 0), 8 * (1 + 7.0 / (8 * 4)) - 0.0);
  w.global_batch = 2;
  w.virtual_stages = 1;
  EXPECT_DOUBLE_EQ(frameworks::MicroBatchesInFlight(w, 0), 2);
}

TEST(PriceMemory, CategoriesSumAndLayersAreAllThere) {
  frameworks::Workload w =
      Priced({{"n_gpus", "6"}, {"pp", "6"}, {"dp_shard", ""}, {"global_batch_seqs", "12"}});
  for (int64_t virtual_stages : {1, 2, 3}) {
    w.virtual_stages = virtual_stages;
    std::vector<int> seen(32, 0);
    for (int64_t rank = 0; rank < 6; ++rank) {
      for (int64_t layer : frameworks::LayersOfRank(w, rank)) ++seen[static_cast<size_t>(layer)];
    }
    EXPECT_EQ(seen, std::vector<int>(32, 1));
  }
  w.virtual_stages = 1;
  const frameworks::MemoryPrice price = frameworks::PriceMemory(w);
  double sum = 0;
  for (double part : price.parts) sum += part;
  EXPECT_NEAR(sum - price.parts[static_cast<size_t>(frameworks::MemoryPart::kOutside)], price.allocated_bytes,
              1);
}

TEST(PriceTime, PartsSumAndABubbleIsThePublishedOne) {
  // Equal stages without transfers that matter: (p - 1) / m of the compute.
  frameworks::Workload w =
      Priced({{"n_gpus", "4"}, {"pp", "4"}, {"dp_shard", ""}, {"global_batch_seqs", "16"}, {"vocab", "8"}});
  const frameworks::TimePrice price = frameworks::PriceTime(w);
  const double sum = price.compute_seconds + price.recompute_seconds + price.tensor_seconds +
                     price.expert_seconds + price.context_seconds + price.pipeline_seconds +
                     price.data_seconds + price.optimizer_seconds;
  EXPECT_NEAR(sum, price.step_seconds, 1e-12);
  EXPECT_NEAR(price.pipeline_seconds / (price.compute_seconds + price.recompute_seconds), 3.0 / 16, 0.01);
}

// Products of such sizes are beyond 64 bits, and a loop over such layers does not end. Rows as this are what
// fuzzing found.
TEST(PublishedRuns, SizesThatNoModelHasAreRefused) {
  const std::vector<std::map<std::string, std::string>> rows = {
      {{"hidden", "941033664"}, {"ffn", ""}},
      {{"hidden", "999999999"}, {"layers", ""}, {"n_params_b", "8"}},
      {{"layers", "564444444"}},
      {{"layers", ""}, {"n_params_b", "900000000000000"}},
      {{"tp", "1000000000"}, {"pp", "1000000000"}, {"cp", "1000000000"}}};
  for (const auto& row : rows) {
    const PublishedRun run = Read(row);
    EXPECT_FALSE(run.workload.has_value());
    EXPECT_FALSE(run.reason.empty());
  }
  EXPECT_THAT(Read({{"layers", "564444444"}}).reason,
              HasSubstr("layers = 564444444 is out of range: 1 to 16384"));
}

// Jobs at the edges of what can be described: a reason or a price, never a crash or a NaN.
TEST(PriceTime, OddJobsArePricedOrRefused) {
  int priced = 0;
  for (const char* gpus : {"1", "2", "6", "64", "100000", "1000000000"}) {
    for (const char* pp : {"1", "2", "3", "1000000000"}) {
      for (const char* vpp : {"", "1", "2", "40", "1000000000"}) {
        for (const char* batch : {"1", "2", "64", "1000000000"}) {
          const PublishedRun run = Read({{"n_gpus", gpus},
                                         {"pp", pp},
                                         {"vpp", vpp},
                                         {"global_batch_seqs", batch},
                                         {"dp_shard", ""},
                                         {"framework", "megatron-core"}});
          if (!run.workload.has_value()) {
            EXPECT_FALSE(run.reason.empty());
            continue;
          }
          ++priced;
          const double seconds = frameworks::PriceTime(*run.workload).step_seconds;
          EXPECT_TRUE(std::isfinite(seconds) && seconds > 0)
              << gpus << " " << pp << " " << vpp << " " << batch;
          EXPECT_TRUE(std::isfinite(frameworks::PriceMemory(*run.workload).upper_bytes));
        }
      }
    }
  }
  EXPECT_GT(priced, 20);
}

}  // namespace
}  // namespace trainctl::published
