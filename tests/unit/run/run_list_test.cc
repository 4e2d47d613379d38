#include "run/run_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files.h"
#include "base/status.h"
#include "checkpoint/checkpoint_io.h"

namespace trainctl::run {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class RunListTest : public ::testing::Test {
 protected:
  RunListTest() {
    std::string folder = "/tmp/trainctl-run-list-XXXXXX";
    EXPECT_NE(::mkdtemp(folder.data()), nullptr);
    char resolved[PATH_MAX];
    EXPECT_NE(::realpath(folder.c_str(), resolved), nullptr);
    root_ = resolved;
  }
  ~RunListTest() override { (void)RemoveAll(root_); }

  void Write(const std::string& path, absl::string_view text) {
    const std::string full = absl::StrCat(root_, "/", path);
    ASSERT_TRUE(MakeDirs(full.substr(0, full.rfind('/'))).ok());
    ASSERT_TRUE(WriteFileAtomic(full, text).ok());
  }

  // The process that its journal names lives, as when its number was given to another. A run that was
  // launched at `hour` and has done `step` of 40 steps.
  void MakeRun(const std::string& name, int hour, int step) {
    Write(name + "/journal.jsonl",
          absl::StrCat("{\"v\":1,\"time\":\"2026-01-02T", hour,
                       ":00:00+00:00\",\"event\":\"launch\",\"world_size\":2,\"pid\":", ::getpid(), "}\n"));
    Write(name + "/recipe.json", "{\"train\": {\"steps\": 40}}");
    std::string metrics, timings;
    for (int i = 1; i <= step; ++i) {
      absl::StrAppend(&metrics, "{\"step\":", i, ",\"loss\":", 10.0 / i, "}\n");
      absl::StrAppend(&timings, "{\"step\":", i, ",\"tokens_per_second\":", 1000 + i, ",\"mfu\":", 0.001 * i,
                      "}\n");
    }
    Write(name + "/metrics.jsonl", metrics);
    Write(name + "/timings.jsonl", timings);
  }

  std::vector<RunSummary> List() {
    const auto runs = ListRuns(root_);
    EXPECT_TRUE(runs.ok()) << runs.status();
    return runs.value_or(std::vector<RunSummary>());
  }

  std::string root_;
};

TEST_F(RunListTest, ARunIsToldFromItsFiles) {
  MakeRun("a", 12, 25);
  checkpoint::CheckpointWriter writer(root_ + "/a/checkpoints", 20, 0, 1);
  ASSERT_TRUE(writer.Begin().ok());
  ASSERT_TRUE(writer.Write({}, nullptr).ok());
  ASSERT_TRUE(writer.Commit({.step = 20}).ok());
  ASSERT_TRUE(MakeDirs(root_ + "/a/checkpoints/step-00000010").ok());
  auto launch = std::make_optional(FileLock::TryLock(root_ + "/a/lock"));
  ASSERT_TRUE((*launch).ok());
  const std::vector<RunSummary> runs = List();
  ASSERT_THAT(runs, SizeIs(1));
  EXPECT_EQ(runs[0].name, "a");
  EXPECT_EQ(runs[0].path, root_ + "/a");
  EXPECT_EQ(runs[0].status, "running");
  EXPECT_EQ(runs[0].started, absl::FromUnixSeconds(1767355200));  // date -u -d 2026-01-02T12:00Z +%s
  EXPECT_EQ(runs[0].progress.step, 25);
  EXPECT_EQ(runs[0].progress.total_steps, 40);
  EXPECT_EQ(runs[0].progress.loss, 0.4);
  // The last 20 of 25: 1006 to 1025, the upper of the two in the middle.
  EXPECT_EQ(runs[0].progress.tokens_per_second, 1016);
  EXPECT_EQ(runs[0].progress.mfu, 0.016);
  EXPECT_EQ(runs[0].checkpoint_step, 20);
  EXPECT_EQ(runs[0].problem, "");
  EXPECT_EQ(runs[0].launches, 1);
  ASSERT_TRUE(MakeDirs(root_ + "/a/checkpoints/step-00000030").ok());
  EXPECT_EQ(List()[0].checkpoint_step, 20);
  EXPECT_THAT(List()[0].problem, HasSubstr("checkpoint at step 30 is damaged"));
  launch.reset();
  EXPECT_EQ(List()[0].status, "interrupted");
}

TEST_F(RunListTest, OfARunThatMayRunElsewhereItsLauncherIsAsked) {
  MakeRun("a", 12, 3);
  MakeRun("b", 11, 3);
  Write("a/lock", "12 node1 another-boot pid:[1] 2026-01-02T12:00:00+00:00\n");
  const std::string a = root_ + "/a";
  std::string asked;
  const auto answers = [&](bool answer) {
    return [&asked, answer](const RunFolder& run, const RunState& state) {
      absl::StrAppend(&asked, run.path(), " ", state.world_size, "\n");
      return answer;
    };
  };
  EXPECT_EQ((*ListRuns(root_, answers(true)))[0].status, "running");
  EXPECT_EQ((*ListRuns(root_, answers(false)))[0].status, "unreachable");
  EXPECT_EQ(asked, absl::StrCat(a, " 2\n", a, " 2\n")) << "the lock of b tells";
  EXPECT_EQ((*ListRuns(root_))[0].status, "unreachable");
  EXPECT_EQ((*ListRuns(root_))[1].status, "interrupted");
}

TEST_F(RunListTest, TheNewestComesFirstAndLatestIsNotListedTwice) {
  MakeRun("older", 10, 1);
  MakeRun("newer", 14, 1);
  ASSERT_EQ(::symlink("newer", (root_ + "/latest").c_str()), 0);
  Write("notes.txt", "no run");
  ASSERT_TRUE(MakeDirs(root_ + "/empty").ok());
  const std::vector<RunSummary> runs = List();
  ASSERT_THAT(runs, SizeIs(2));
  EXPECT_EQ(runs[0].name, "newer");
  EXPECT_EQ(runs[1].name, "older");
}

TEST_F(RunListTest, WhatIsDamagedIsToldAndHidesNothing) {
  MakeRun("good", 10, 3);
  MakeRun("bad", 11, 3);
  Write("bad/journal.jsonl", "no json\n");
  Write("bad/recipe.json", "[1, 2");
  Write("bad/metrics.jsonl", "{\"step\":1,\"loss\":\"nan\"}\n{\"step\":2,\"lo");
  Write("bad/timings.jsonl", std::string(1 << 20, 'x'));
  ASSERT_EQ(::unlink((root_ + "/good/timings.jsonl").c_str()), 0);
  ASSERT_EQ(::mkfifo((root_ + "/good/timings.jsonl").c_str(), 0600), 0);
  const std::vector<RunSummary> runs = List();
  ASSERT_THAT(runs, SizeIs(2));
  EXPECT_EQ(runs[0].name, "good");
  EXPECT_FALSE(runs[0].progress.tokens_per_second.has_value());
  EXPECT_EQ(runs[1].status, "damaged");
  EXPECT_THAT(runs[1].problem, HasSubstr("journal.jsonl:1"));
  EXPECT_EQ(runs[1].progress.step, 1);
  EXPECT_TRUE(std::isnan(runs[1].progress.loss.value_or(0)));
  EXPECT_EQ(runs[1].progress.total_steps, -1);
}

TEST_F(RunListTest, OnlyTheEndOfALongLogIsRead) {
  MakeRun("long", 10, 1);
  std::string metrics;
  for (int i = 1; i <= 20000; ++i) absl::StrAppend(&metrics, "{\"step\":", i, ",\"loss\":1.5}\n");
  Write("long/metrics.jsonl", metrics);
  EXPECT_EQ(List()[0].progress.step, 20000);
}

// Launched at 12:00; the workers that are at work were started at 13:00 and have done steps 3 to 6, a step in
// 2 s but the last, of an evaluation, in 5.
TEST_F(RunListTest, SpeedAndTimeLeftAreOfTheWorkersThatAreAtWork) {
  MakeRun("a", 12, 2);
  Write("a/journal.jsonl", absl::StrCat(*ReadFile(root_ + "/a/journal.jsonl"),
                                        "{\"v\":1,\"time\":\"2026-01-02T13:00:00+00:00\",\"event\":"
                                        "\"generation\",\"generation\":2,\"world_size\":2}\n"));
  const double started = 1767358800;  // date -u -d 2026-01-02T13:00Z +%s
  std::string timings;
  int step = 0;
  for (const double at : {-60.0, -50.0, 4.0, 6.0, 8.0, 13.0}) {
    ++step;
    absl::StrAppendFormat(
        &timings,
        "{\"step\":%d,\"tokens_per_second\":%d,\"mfu\":0.%d,\"memory_bytes\":{\"tensor_peak\":%d},"
        "\"time\":%.3f}\n",
        step, at < 0 ? 900 : 10, at < 0 ? 9 : 1, 100 + step, started + at);
    if (step > 2) continue;
    Write("a/timings.jsonl", timings);
    const RunProgress before = List()[0].progress;
    EXPECT_EQ(before.step, 2);
    EXPECT_EQ(before.tokens_per_second, std::nullopt) << "the steps so far are of other workers";
    EXPECT_EQ(before.mfu, std::nullopt);
  }
  Write("a/timings.jsonl", timings);
  auto launch = std::make_optional(FileLock::TryLock(root_ + "/a/lock"));
  RunProgress at = List()[0].progress;
  EXPECT_EQ(at.step, 6);
  EXPECT_EQ(at.loss_step, 2) << "metrics.every_steps may leave steps out";
  EXPECT_EQ(at.loss, 5);
  EXPECT_EQ(at.memory_bytes, 106);
  ASSERT_TRUE(at.done.has_value());
  EXPECT_EQ(absl::ToUnixSeconds(*at.done), 1767358813);
  EXPECT_EQ(at.tokens_per_second, 10);
  EXPECT_EQ(at.mfu, 0.1);
  EXPECT_EQ(at.per_step, absl::Seconds(3));  // 9 s from step 3 to step 6
  EXPECT_EQ(at.time_left, absl::Seconds(3) * (40 - 6));
  Write("a/journal.jsonl",
        absl::StrCat(*ReadFile(root_ + "/a/journal.jsonl"),
                     "{\"v\":1,\"time\":\"2026-01-02T14:00:00+00:00\",\"event\":\"launch\",\"pid\":",
                     ::getpid(), "}\n"));
  EXPECT_EQ(List()[0].progress.tokens_per_second, std::nullopt) << "the new launch has no workers yet";
  EXPECT_EQ(List()[0].progress.per_step, std::nullopt);
  launch.reset();
  EXPECT_FALSE(List()[0].progress.time_left.has_value()) << "nobody works on it";
}

TEST_F(RunListTest, ARunFolderItselfIsAListOfOne) {
  MakeRun("a", 10, 3);
  const auto runs = ListRuns(root_ + "/a");
  ASSERT_TRUE(runs.ok());
  ASSERT_THAT(*runs, SizeIs(1));
  EXPECT_EQ((*runs)[0].name, "a");
}

TEST_F(RunListTest, AFolderWithoutRunsIsEmptyAndNoFolderIsAnError) {
  EXPECT_THAT(List(), IsEmpty());
  const auto runs = ListRuns(root_ + "/absent");
  EXPECT_EQ(ExitCodeFor(runs.status()), ExitCode::kUsage);
  EXPECT_THAT(std::string(runs.status().message()), HasSubstr("/absent is not a directory"));
}

}  // namespace
}  // namespace trainctl::run
