#include "published/calibrate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"
#include "frameworks/price_memory.h"
#include "frameworks/price_time.h"
#include "tests/unit/published/score_rows.h"

namespace trainctl::published {
namespace {

using ::testing::HasSubstr;

std::vector<PublishedRun> ReadRows(const std::string& rows) {
  const auto runs = ReadPublishedRuns(Header() + rows, "r.csv");
  EXPECT_TRUE(runs.ok()) << runs.status();
  return runs.ok() ? *runs : std::vector<PublishedRun>{};
}

// Jobs in which products, memory traffic and links matter differently.
std::vector<PublishedRun> SomeJobs(const std::string& source = "pytorch/torchtitan@1") {
  std::string rows;
  for (const char* gpus : {"8", "64", "512"}) {
    for (const char* tp : {"1", "8"}) {
      for (const char* seq_len : {"1024", "8192"}) {
        for (const char* hidden : {"1024", "4096"}) {
          rows += Row({{"source", source},
                       {"n_gpus", gpus},
                       {"tp", tp},
                       {"hidden", hidden},
                       {"dp_shard", "fsdp2"},
                       {"seq_len", seq_len},
                       {"global_batch_seqs", gpus}});
        }
      }
    }
  }
  return ReadRows(rows);
}

// As if they had been measured on a machine with these multipliers.
void MeasureOn(const frameworks::Tuning& tuning, std::vector<PublishedRun>& runs) {
  for (PublishedRun& run : runs) {
    frameworks::Workload w = *run.workload;
    const frameworks::TunedMachine machine(tuning, *w.device, *w.node);
    machine.Apply(w);
    run.measured_step_seconds = frameworks::PriceTime(w).step_seconds;
    run.measured_memory_gib = frameworks::PriceMemory(w).Of(run.metric) / (1024.0 * 1024 * 1024);
  }
}

TEST(Calibrate, FindsTheMachineThatTheRunsWereMeasuredOn) {
  std::vector<PublishedRun> runs = SomeJobs();
  const frameworks::Tuning truth = {
      .matmul_rate = 0.8, .memory_bandwidth = 0.9, .link_bandwidth = 0.6, .reserved_share = 2};
  MeasureOn(truth, runs);
  const auto found = Calibrate(runs);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_GT(found->time_before.mean_absolute, 10);
  EXPECT_LT(found->time_after.mean_absolute, 1.5);
  EXPECT_LT(found->memory_after.mean_absolute, 0.5);
  const frameworks::Tuning& tuning = found->profile.tuning;
  EXPECT_NEAR(tuning.matmul_rate, truth.matmul_rate, 0.05);
  EXPECT_NEAR(tuning.link_bandwidth, truth.link_bandwidth, 0.05);
  EXPECT_NEAR(tuning.reserved_share, truth.reserved_share, 0.1);
  EXPECT_EQ(found->profile.devices, std::vector<std::string>{"h100-sxm-80gb"});
  EXPECT_EQ(found->timed, 24);
}

TEST(Calibrate, OneOddRowMovesNothingAndTheOrderOfRowsNeitherDoes) {
  std::vector<PublishedRun> runs = SomeJobs();
  MeasureOn({.matmul_rate = 0.8}, runs);
  const frameworks::Tuning without = Calibrate(runs)->profile.tuning;
  runs[0].measured_step_seconds *= 20;
  const frameworks::Tuning with = Calibrate(runs)->profile.tuning;
  std::reverse(runs.begin(), runs.end());
  const frameworks::Tuning reversed = Calibrate(runs)->profile.tuning;
  for (const auto& [name, member] : frameworks::TuningConstants()) {
    EXPECT_NEAR(with.*member / without.*member, 1, 0.05) << name;
    EXPECT_EQ(with.*member, reversed.*member) << name;
  }
}

TEST(Calibrate, WhereNothingIsKnownTheDataSheetStays) {
  std::vector<PublishedRun> runs = SomeJobs();
  MeasureOn({}, runs);
  // A single row that is 30 % slower does not outweigh the pull toward the data sheet.
  std::vector<PublishedRun> one = {runs[0]};
  one[0].measured_step_seconds *= 1.3;
  for (const std::vector<PublishedRun>& rows : {runs, one}) {
    const auto found = Calibrate(rows);
    ASSERT_TRUE(found.ok()) << found.status();
    for (const auto& [name, member] : frameworks::TuningConstants())
      EXPECT_EQ(found->profile.tuning.*member, 1) << name;
  }
  const auto nothing = Calibrate(ReadRows(Row({{"tokens_per_sec_per_gpu", ""}})));
  EXPECT_THAT(std::string(nothing.status().message()), HasSubstr("no row can be priced"));
}

TEST(Calibrate, ASourceIsJudgedByWhatTheOthersGive) {
  std::vector<PublishedRun> runs = SomeJobs("me/fast@1");
  MeasureOn({}, runs);
  std::vector<PublishedRun> slow = SomeJobs("me/slow@1");
  MeasureOn({.matmul_rate = 0.7, .memory_bandwidth = 0.7, .link_bandwidth = 0.7}, slow);
  for (PublishedRun& run : slow) {
    run.configuration += "slow";
    runs.push_back(run);
  }
  const std::vector<LeftOut> left = LeaveOneSourceOut(runs);
  ASSERT_EQ(left.size(), 3u);
  EXPECT_EQ(left[0].source, "me/fast");
  // Fitted to the slow machine, so too slow for the fast one, which the data sheet had right.
  EXPECT_LT(left[0].time_before.mean_absolute, 1e-6);
  EXPECT_GT(left[0].time_after.mean_absolute, 15);
  EXPECT_EQ(left[0].time_after.count, 24);
  EXPECT_DOUBLE_EQ(left[1].time_after.mean_absolute, left[1].time_before.mean_absolute);
  EXPECT_EQ(left[2].source, "all");
  EXPECT_EQ(left[2].time_after.count, 48);
}

TEST(TunedMachine, AtOneItIsTheDataSheetAndSlowerPartsAreSlowerJobs) {
  const std::vector<PublishedRun> runs = SomeJobs();
  std::map<std::string, double> slowdown;
  for (const PublishedRun& run : runs) {
    const auto seconds_on = [&](const frameworks::Tuning& tuning) {
      frameworks::Workload w = *run.workload;
      const frameworks::TunedMachine machine(tuning, *w.device, *w.node);
      machine.Apply(w);
      return frameworks::PriceTime(w, {.contention = false}).step_seconds;
    };
    const double plain = frameworks::PriceTime(*run.workload, {.contention = false}).step_seconds;
    EXPECT_DOUBLE_EQ(seconds_on({}), plain);
    EXPECT_DOUBLE_EQ(seconds_on({.reserved_share = 4}), plain);
    for (const auto& [name, member] : frameworks::TuningConstants()) {
      frameworks::Tuning slower;
      slower.*member = 0.5;
      // Slower products may hide behind links or memory.
      EXPECT_GE(seconds_on(slower), plain * (1 - 1e-9)) << name;
      slowdown[name] += seconds_on(slower) / plain - 1;
    }
  }
  EXPECT_GT(slowdown["matmul_rate"], 1);
  EXPECT_GT(slowdown["memory_bandwidth"], 1);
  EXPECT_GT(slowdown["link_bandwidth"], 1);
}

TEST(HardwareProfile, IsReadAsItWasWritten) {
  frameworks::HardwareProfile profile;
  profile.made_by = "trainctl calibrate \"odd name\".csv";
  profile.rows = 17;
  profile.devices = {"a100-sxm-80gb", "h100-sxm-80gb"};
  profile.tuning = {
      .matmul_rate = 0.91, .memory_bandwidth = 1.07, .link_bandwidth = 0.5, .reserved_share = 3};
  const auto read = frameworks::ParseProfile(frameworks::ProfileToJson(profile), "p.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->made_by, profile.made_by);
  EXPECT_EQ(read->rows, 17);
  EXPECT_EQ(read->devices, profile.devices);
  EXPECT_EQ(read->tuning, profile.tuning);
}

TEST(HardwareProfile, AFileThatIsWrongIsNamedWithItsField) {
  const std::pair<const char*, const char*> kWrong[] = {
      {"", "p.json"},
      {"[1]", "field 'schema' is missing"},
      {"{}", "field 'schema' is missing"},
      {R"({"schema": "trainctl.plan.v1"})", "it is not a hardware profile"},
      {R"({"schema": "trainctl.profile.vX"})", "it is not a hardware profile"},
      {R"({"schema": "trainctl.profile.v2"})", "is version 2 of the profile; this program reads 1"},
      {R"({"schema": "trainctl.profile.v1", "tunning": {}})", "'tunning' is not a field of a profile"},
      {R"({"schema": "trainctl.profile.v1", "tuning": {"matmul": 1}})",
       "p.json: tuning: 'matmul' is not a field"},
      {R"({"schema": "trainctl.profile.v1", "tuning": {"matmul_rate": "fast"}})",
       "tuning: field 'matmul_rate' is missing or not a number"},
      {R"({"schema": "trainctl.profile.v1", "tuning": {"matmul_rate": 0}})",
       "tuning: matmul_rate is 0; it is between 0.25 and 4"},
      {R"({"schema": "trainctl.profile.v1", "tuning": {"link_bandwidth": -1}})", "link_bandwidth is -1"},
      {R"({"schema": "trainctl.profile.v1", "tuning": 3})", "tuning: must be an object"},
      {R"({"schema": "trainctl.profile.v1", "rows": -1})", "rows is -1"},
      {R"({"schema": "trainctl.profile.v1", "devices": "h100"})", "devices must be a list of names"},
      {R"({"schema": "trainctl.profile.v1", "tuning": {"matmul_rate": 1, "matmul_rate": 1}})",
       "is given twice"}};
  for (const auto& [text, message] : kWrong) {
    const auto read = frameworks::ParseProfile(text, "p.json");
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_THAT(std::string(read.status().message()), HasSubstr(message)) << text;
    EXPECT_EQ(ExitCodeFor(read.status()), ExitCode::kBadData) << text;
  }
  EXPECT_TRUE(frameworks::ParseProfile(R"({"schema": "trainctl.profile.v1"})", "p.json").ok());
}

}  // namespace
}  // namespace trainctl::published
