#include "published/ranking.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/published/score_rows.h"

namespace trainctl::published {
namespace {

struct Job {
  const char* micro_batch;
  double measured;   // seconds; 0: it ran out of memory
  double predicted;  // seconds
  bool fits = true;
  const char* gpus = "64";
  const char* batch = "1024";
};

// A sweep of one model over micro-batches with prices that are made up.
Ranking Rank(const std::vector<Job>& jobs) {
  std::string text = Header();
  int id = 0;
  for (const Job& job : jobs) {
    const double tokens = 8192 * std::stod(job.batch) / std::stod(job.gpus);
    text += Row({{"id", absl::StrCat("job-", ++id)},
                 {"micro_batch", job.micro_batch},
                 {"n_gpus", job.gpus},
                 {"dp_shard", absl::StrCat("fsdp2(", job.gpus, ")")},
                 {"global_batch_seqs", job.batch},
                 {"settings", job.measured > 0 ? "" : "outcome=out-of-memory"},
                 {"tokens_per_sec_per_gpu", job.measured > 0 ? absl::StrCat(tokens / job.measured) : ""}});
  }
  const auto runs = ReadPublishedRuns(text, "r.csv");
  EXPECT_TRUE(runs.ok()) << runs.status();
  Score score = ScoreRuns(*runs);
  for (size_t i = 0; i < jobs.size(); ++i) {
    EXPECT_TRUE((*runs)[i].workload.has_value()) << (*runs)[i].reason;
    score.rows[i].predicted_step_seconds = jobs[i].predicted;
    score.rows[i].status = jobs[i].fits ? ScoreStatus::kScored : ScoreStatus::kRejected;
  }
  return RankSweeps(*runs, score);
}

Sweep OnlyMapping(const Ranking& ranking) {
  std::vector<Sweep> sweeps;
  for (const Sweep& sweep : ranking.sweeps) {
    if (sweep.kind == SweepKind::kMapping) sweeps.push_back(sweep);
  }
  EXPECT_EQ(sweeps.size(), 1u);
  return sweeps.empty() ? Sweep{} : sweeps[0];
}

TEST(Ranking, TheChosenOneIsHeldAgainstTheBestAndPairsAreCounted) {
  const Ranking ranking = Rank({{"1", 10, 9}, {"2", 10.4, 8}, {"4", 12, 11}, {"8", 15, 10}});
  const Sweep sweep = OnlyMapping(ranking);
  EXPECT_EQ(sweep.chosen, 1u);
  EXPECT_EQ(sweep.best, 0u);
  EXPECT_NEAR(sweep.regret_percent, 4, 1e-3);
  // 10 and 10.4 differ by less than 5 %; of the other five only 12 against 15 is the wrong way round.
  EXPECT_EQ(sweep.pairs, 5);
  EXPECT_EQ(sweep.concordant, 4);
  EXPECT_EQ(sweep.discordant, 1);
  EXPECT_EQ(sweep.candidates[3].mapping, "micro-batch 8");
  ASSERT_FALSE(ranking.summaries.empty());
  EXPECT_EQ(ranking.summaries[1].source, "all");
  EXPECT_NEAR(ranking.summaries[1].kendall_tau, 0.6, 1e-12);
  EXPECT_EQ(ranking.summaries[1].good, 0);
}

TEST(Ranking, WhatDoesNotFitByPriceIsNotChosen) {
  const Sweep sweep = OnlyMapping(Rank({{"1", 10, 9}, {"2", 11, 1, false}}));
  EXPECT_EQ(sweep.chosen, 0u);
  EXPECT_DOUBLE_EQ(sweep.regret_percent, 0);
  // Where nothing fits by price, all are candidates.
  EXPECT_EQ(OnlyMapping(Rank({{"1", 10, 9, false}, {"2", 11, 1, false}})).chosen, 1u);
}

TEST(Ranking, ChoosingOneThatRanOutOfMemoryIsTheWorstChoice) {
  const Sweep sweep = OnlyMapping(Rank({{"1", 10, 9}, {"2", 11, 10}, {"4", 0, 1}}));
  EXPECT_EQ(sweep.chosen, 2u);
  EXPECT_DOUBLE_EQ(sweep.regret_percent, 100);
  EXPECT_EQ(sweep.pairs, 1);  // it has no time to compare
}

TEST(Ranking, RepeatsOfOneMappingAreOneCandidateAndAlternativesOfItselfAreNoSweep) {
  const Sweep sweep = OnlyMapping(Rank({{"1", 8, 9}, {"1", 10, 9}, {"1", 18, 9}, {"2", 9, 12}}));
  ASSERT_EQ(sweep.candidates.size(), 2u);
  EXPECT_EQ(sweep.candidates[0].ids.size(), 3u);
  EXPECT_NEAR(sweep.candidates[0].measured, 10, 1e-9);
  EXPECT_TRUE(Rank({{"1", 8, 9}, {"1", 10, 9}}).sweeps.empty());
}

TEST(Ranking, OtherGpusOrBatchesAreComparedByGpuSecondsPerTokenAlone) {
  // 64 GPUs take 10 s for 1024 sequences; 32 take 12 s for 512, which is 1.2 times as much work a token.
  const Ranking ranking = Rank({{"1", 10, 12, true, "64", "1024"}, {"1", 12, 10, true, "32", "512"}});
  ASSERT_EQ(ranking.sweeps.size(), 1u);
  EXPECT_EQ(ranking.sweeps[0].kind, SweepKind::kEfficiency);
  EXPECT_NEAR(ranking.sweeps[0].regret_percent, 20, 1e-3);
  EXPECT_EQ(ranking.sweeps[0].discordant, 1);
  EXPECT_EQ(ranking.sweeps[0].candidates[0].mapping, "GPUs 64 group 64 batch 1024");
}

}  // namespace
}  // namespace trainctl::published
