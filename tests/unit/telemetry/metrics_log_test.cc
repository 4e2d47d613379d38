#include "telemetry/metrics_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/counter_rng.h"
#include "base/files.h"
#include "base/status.h"
#include "telemetry/log_reader.h"
#include "telemetry/run_log.h"

namespace trainctl::telemetry {
namespace {

using testing::HasSubstr;

class MetricsLogTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/trainctl_metrics_XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    path_ = folder_ + "/metrics.jsonl";
  }
  void TearDown() override { (void)RemoveAll(folder_); }

  std::string Contents() const {
    auto contents = ReadFile(path_);
    return contents.ok() ? *contents : std::string(contents.status().message());
  }
  void WriteSteps(int64_t from, int64_t to, int64_t keep) {
    auto log = MetricsLog::Open(path_, keep);
    ASSERT_TRUE(log.ok()) << log.status();
    for (int64_t step = from; step <= to; ++step) ASSERT_TRUE(log->Append(Record(step)).ok());
  }
  static StepRecord Record(int64_t step) {
    StepRecord record;
    record.step = step;
    record.loss = RandomUniform(1, 2, static_cast<uint64_t>(step));
    record.grad_norm = RandomUniform(1, 3, static_cast<uint64_t>(step)) * 1e-300;
    record.lr = 3e-4 / static_cast<double>(step);
    record.tokens = step * 4096;
    record.batch_hash = RandomBits(1, 4, static_cast<uint64_t>(step));
    if (step % 3 == 0) record.eval = {{"held-out", 1.5 / static_cast<double>(step)}, {"a\"b\n", 2}};
    return record;
  }

  std::string folder_;
  std::string path_;
};

TEST_F(MetricsLogTest, ALineIsWhatTheHeaderShows) {
  auto log = MetricsLog::Open(path_, -1);
  ASSERT_TRUE(log.ok());
  StepRecord record{12, 2.5, 1.25, 0.0003, 98304, 0xf1, {{"held-out", 2.25}}};
  ASSERT_TRUE(log->Append(record).ok());
  EXPECT_EQ(Contents(),
            "{\"step\":12,\"loss\":2.5,\"grad_norm\":1.25,\"lr\":3e-04,\"tokens\":98304,"
            "\"batch_hash\":\"00000000000000f1\",\"eval\":{\"held-out\":2.25}}\n");
  path_ = folder_ + "/timings.jsonl";
  auto timings = TimingsLog::Open(path_, -1);
  ASSERT_TRUE(timings.ok());
  ASSERT_TRUE(
      timings->Append({12, 0.5, 9000, {{"forward", 0.2}}, {{"linear", 0.1}}, {{"parameters", 1024}}}).ok());
  EXPECT_EQ(Contents(),
            "{\"step\":12,\"seconds\":0.5,\"tokens_per_second\":9000,\"phases\":{\"forward\":0.2},"
            "\"operators\":{\"linear\":0.1},\"memory_bytes\":{\"parameters\":1024}}\n");
}

TEST_F(MetricsLogTest, WhatWasNotComputedIsNull) {
  StepRecord record{12, std::nullopt, 0, 0.0003, 98304, 0xf1, {{"e", std::nullopt}, {"h", 2.5}}};
  record.skipped = true;
  record.skipped_steps = 3;
  EXPECT_EQ(FormatFields(record),
            "\"loss\":null,\"grad_norm\":0,\"lr\":3e-04,\"tokens\":98304,\"batch_hash\":\"00000000000000f1\","
            "\"skipped\":true,\"skipped_steps\":3,\"eval\":{\"e\":null,\"h\":2.5}");
  const auto parsed = ParseLogLine("{\"step\":12," + FormatFields(record) + "}", LogKind::kMetrics, "a line");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(parsed->has_evaluation);
  EXPECT_TRUE(parsed->skipped);
  std::vector<std::string> tags;
  for (const Scalar& scalar : parsed->scalars) tags.push_back(scalar.tag);
  EXPECT_THAT(tags, testing::UnorderedElementsAre("train/grad_norm", "train/lr", "train/tokens",
                                                  "train/skipped_steps", "eval/h"));
}

TEST_F(MetricsLogTest, ARecordReadsBackExactly) {
  StepRecord record = Record(4);
  for (const std::optional<double> loss :
       {std::optional<double>(0.1), std::optional<double>(std::numeric_limits<double>::infinity()),
        std::optional<double>()}) {
    record.loss = loss;
    record.skipped = !record.skipped;
    ++record.skipped_steps;
    const auto back = ParseStepRecord("{" + FormatFields(record) + "}", "a record");
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(FormatFields(*back), FormatFields(record));
  }
  record.grad_norm = record.lr = std::nullopt;
  EXPECT_EQ(FormatFields(*ParseStepRecord("{" + FormatFields(record) + "}", "a record")),
            FormatFields(record));
  EXPECT_THAT(FormatFields(record), testing::HasSubstr("\"grad_norm\":null,\"lr\":null"));
  for (const char* damaged : {"", "{}", "[]", R"({"tokens":1,"batch_hash":"x"})"})
    EXPECT_EQ(ExitCodeFor(ParseStepRecord(damaged, "a record").status()), ExitCode::kBadData) << damaged;
}

// A line that was written without its evaluation is replaced.
TEST_F(MetricsLogTest, TheLineOfTheLastStepIsDroppedIfItIsAppendedAgain) {
  WriteSteps(1, 5, -1);
  const std::string whole = Contents();
  EXPECT_TRUE(HasEvaluation(path_, 3));
  EXPECT_FALSE(HasEvaluation(path_, 4));
  EXPECT_FALSE(HasEvaluation(path_, 6));
  TensorboardOptions events;
  events.metrics_path = path_;
  events.timings_path = folder_ + "/timings.jsonl";
  auto log = RunLog::Open(events, false, 4, /*drops_last_metrics=*/true);
  ASSERT_TRUE(log.ok()) << log.status();
  ASSERT_TRUE(log->Append(Record(4), 0).ok());
  ASSERT_TRUE(log->Append(Record(5), 0).ok());
  EXPECT_EQ(Contents(), whole);
}

TEST_F(MetricsLogTest, TheShareOfThePeakIsToldWhereThePeakIsKnown) {
  TensorboardOptions events;
  events.metrics_path = path_;
  events.timings_path = path_ = folder_ + "/timings.jsonl";
  auto log = RunLog::Open(events, false, -1);
  ASSERT_TRUE(log.ok()) << log.status();
  ASSERT_TRUE(log->Append(TimingRecord{1, 0.5, 9000, {}, {}, {}}).ok());
  log->set_peak_tokens_per_second(20000);
  ASSERT_TRUE(log->Append(TimingRecord{2, 0.5, 9000, {}, {}, {}}).ok());
  EXPECT_EQ(Contents(),
            "{\"step\":1,\"seconds\":0.5,\"tokens_per_second\":9000}\n"
            "{\"step\":2,\"seconds\":0.5,\"tokens_per_second\":9000,\"mfu\":0.45}\n");
  const auto parsed = ParseLogLine("{\"step\":2,\"mfu\":0.45}", LogKind::kTimings, "a line");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->scalars[0].tag, "speed/mfu");  // as TensorBoard shows it
}

// Launched, changed after step 2 and after step 4; killed later and resumed.
TEST_F(MetricsLogTest, WhatAResumeChangedStandsInTheFirstRecordAfterIt) {
  TensorboardOptions events;
  events.metrics_path = path_;
  events.timings_path = folder_ + "/timings.jsonl";
  const std::vector<RunChange> changes = {{2, "lr is 1 and was 2"}, {4, "lr is \"x\""}, {4, "b"}};
  const auto write = [&](int64_t keep, int64_t to, size_t num_changes) {
    auto log = RunLog::Open(events, false, keep);
    ASSERT_TRUE(log.ok()) << log.status();
    log->NoteChanges(absl::MakeSpan(changes).first(num_changes));
    for (int64_t step = std::max<int64_t>(keep, 0) + 1; step <= to; ++step)
      ASSERT_TRUE(log->Append(Record(step), 0).ok());
  };
  write(-1, 2, 0);
  write(2, 4, 1);
  write(4, 7, 3);
  const std::string whole = Contents();
  std::vector<int64_t> marked;
  for (int64_t step = 1; step <= 7; ++step) {
    const auto line = whole.find(absl::StrCat("{\"step\":", step, ","));
    const std::string text = whole.substr(line, whole.find('\n', line) - line);
    if (nlohmann::json::parse(text).contains("changed")) marked.push_back(step);
  }
  EXPECT_EQ(marked, (std::vector<int64_t>{3, 5}));
  EXPECT_THAT(whole, HasSubstr(",\"changed\":[\"lr is \\\"x\\\"\",\"b\"]}\n{\"step\":6,"));
  for (const int64_t keep : {4, 5, 6}) {
    write(keep, 7, 3);
    EXPECT_EQ(Contents(), whole) << keep;
  }
  // From an older checkpoint, as the newer one is damaged: it is changed from there on.
  write(3, 7, 3);
  EXPECT_THAT(Contents(), HasSubstr(",\"changed\":[\"lr is \\\"x\\\"\",\"b\"]}\n{\"step\":5,"));
}

TEST_F(MetricsLogTest, EveryDoubleReadsBackExactly) {
  for (uint64_t i = 0; i < 100'000; ++i) {
    const uint64_t bits = RandomBits(7, 7, i);
    double value;
    static_assert(sizeof value == sizeof bits);
    std::memcpy(&value, &bits, sizeof value);
    if (!std::isfinite(value)) continue;
    const std::string text = JsonNumber(value);
    const double back = std::strtod(text.c_str(), nullptr);
    ASSERT_EQ(std::memcmp(&back, &value, sizeof value), 0) << text;
    ASSERT_TRUE(nlohmann::json::accept(text)) << text;
  }
  EXPECT_EQ(JsonNumber(0.1), "0.1");
  EXPECT_EQ(JsonNumber(-0.0), "-0");
  EXPECT_EQ(JsonNumber(std::numeric_limits<double>::quiet_NaN()), "\"nan\"");
  EXPECT_EQ(JsonNumber(-std::numeric_limits<double>::infinity()), "\"-inf\"");
}

TEST_F(MetricsLogTest, ARunThatWasCutBackAtAnyPlaceEndsWithTheSameBytes) {
  WriteSteps(1, 13, -1);
  const std::string undisturbed = Contents();
  ASSERT_EQ(std::count(undisturbed.begin(), undisturbed.end(), '\n'), 13);
  const size_t end_of_10 = undisturbed.find("{\"step\":11,");
  // A crash at any byte after the checkpoint of step 10.
  for (size_t length = end_of_10; length <= undisturbed.size(); ++length) {
    ASSERT_TRUE(WriteFileAtomic(path_, undisturbed.substr(0, length)).ok());
    WriteSteps(11, 13, 10);
    ASSERT_EQ(Contents(), undisturbed) << "crash after byte " << length;
  }
}

TEST_F(MetricsLogTest, StartingAnewEmptiesTheFile) {
  WriteSteps(1, 5, -1);
  WriteSteps(1, 2, -1);
  EXPECT_EQ(MetricsLog::Open(path_, 100)->last_step(), 2);
}

TEST_F(MetricsLogTest, AProcessOfBeforeAddsNothingToTheLogOfItsSuccessor) {
  auto former = MetricsLog::Open(path_, -1);
  ASSERT_TRUE(former.ok());
  for (int64_t step = 1; step <= 3; ++step) ASSERT_TRUE(former->Append({.step = step}).ok());
  auto next = MetricsLog::Open(path_, 2);
  ASSERT_TRUE(next.ok());
  ASSERT_TRUE(former->Append({.step = 4}).ok());
  ASSERT_TRUE(next->Append({.step = 3, .loss = 5}).ok());
  const std::string text = *ReadFile(path_);
  EXPECT_THAT(text, testing::EndsWith(FormatFields(StepRecord{.step = 3, .loss = 5}) + "}\n"));
  EXPECT_THAT(text, testing::Not(HasSubstr("\"step\":4")));
}

TEST_F(MetricsLogTest, MissingLinesAreSeenInLastStep) {
  WriteSteps(1, 5, -1);
  EXPECT_EQ(MetricsLog::Open(path_, 9)->last_step(), 5);
  EXPECT_EQ(MetricsLog::Open(path_, 3)->last_step(), 3);
  EXPECT_EQ(MetricsLog::Open(folder_ + "/none.jsonl", 3)->last_step(), -1);
}

TEST_F(MetricsLogTest, ATailOfZerosAfterAPowerFailureIsCutOff) {
  WriteSteps(1, 5, -1);
  const std::string good = Contents();
  ASSERT_TRUE(AppendFile(path_, std::string(5000, '\0')).ok());
  ASSERT_TRUE(MetricsLog::Open(path_, 9).ok());
  EXPECT_EQ(Contents(), good);
}

TEST_F(MetricsLogTest, DamageBeforeALineToKeepIsNamedAndNothingIsChanged) {
  WriteSteps(1, 5, -1);
  std::string damaged = Contents();
  damaged[damaged.find("{\"step\":3") + 2] = 'X';
  ASSERT_TRUE(WriteFileAtomic(path_, damaged).ok());
  const auto log = MetricsLog::Open(path_, 5);
  EXPECT_EQ(ExitCodeFor(log.status()), ExitCode::kBadData);
  EXPECT_THAT(std::string(log.status().message()), HasSubstr("metrics.jsonl:3:"));
  EXPECT_EQ(Contents(), damaged);
}

TEST_F(MetricsLogTest, AFileOfAnotherKindIsNotCut) {
  const std::string other(17 << 20, 'x');
  ASSERT_TRUE(WriteFileAtomic(path_, other).ok());
  EXPECT_EQ(ExitCodeFor(MetricsLog::Open(path_, 5).status()), ExitCode::kBadData);
  EXPECT_EQ(*FileBytes(path_), static_cast<int64_t>(other.size()));
}

TEST_F(MetricsLogTest, StepsMustRise) {
  auto log = MetricsLog::Open(path_, -1);
  ASSERT_TRUE(log->Append(Record(4)).ok());
  EXPECT_EQ(ExitCodeFor(log->Append(Record(4))), ExitCode::kInternal);
  EXPECT_TRUE(log->Append(Record(5)).ok());
}

TEST_F(MetricsLogTest, LinesThatDoNotFitAreKeptAndWrittenLater) {
  auto log = MetricsLog::Open(path_, -1);
  ASSERT_TRUE(log->Append(Record(1)).ok());
  const std::string before = Contents();
  rlimit saved;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &saved), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit = saved;
  limit.rlim_cur = before.size() + 20;  // the second line ends in the middle
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const absl::Status second = log->Append(Record(2)), third = log->Append(Record(3));
  const absl::Status trouble = log->trouble(), synced = log->Sync();
  const std::string meanwhile = Contents();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &saved), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_TRUE(second.ok()) << second;
  EXPECT_TRUE(third.ok()) << third;
  EXPECT_EQ(meanwhile, before) << "no half of a line";
  for (const absl::Status& status : {trouble, synced}) {
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kEnvironment) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
  }
  ASSERT_TRUE(log->Append(Record(4)).ok());
  EXPECT_TRUE(log->trouble().ok());
  EXPECT_TRUE(log->Sync().ok());
  const std::string all = Contents();
  auto undisturbed = MetricsLog::Open(path_, -1);
  for (int step = 1; step <= 4; ++step) ASSERT_TRUE(undisturbed->Append(Record(step)).ok());
  EXPECT_EQ(all, Contents());
}

TEST_F(MetricsLogTest, WhileOneThreadAppendsAnotherMaySync) {
  constexpr int kSteps = 5000;
  auto log = MetricsLog::Open(path_, -1);
  std::atomic<bool> ends = false;
  std::thread syncs([&] {
    while (!ends) EXPECT_TRUE(log->Sync().ok());
  });
  for (int step = 1; step <= kSteps; ++step) EXPECT_TRUE(log->Append(Record(step)).ok());
  ends = true;
  syncs.join();
  EXPECT_EQ(MetricsLog::Open(path_, kSteps)->last_step(), kSteps);
  const std::string all = Contents();
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), kSteps);
}

}  // namespace
}  // namespace trainctl::telemetry
