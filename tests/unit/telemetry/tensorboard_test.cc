// TensorBoard events as bytes. That TensorBoard itself reads them is shown by tests/tensorboard.
#include "telemetry/tensorboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>

#include "absl/strings/escaping.h"
#include "base/files.h"
#include "base/status.h"
#include "telemetry/event_file.h"

namespace trainctl::telemetry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(EventFile, TheChecksumIsCastagnolis) {
  // RFC 3720, B.4, and the usual check value.
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
}

// Bytes made with TensorBoard 2.21: event_pb2.Event(...).SerializeToString() through its RecordWriter.
TEST(EventFile, RecordsAreTheBytesThatTensorBoardWrites) {
  EXPECT_EQ(absl::BytesToHexString(ScalarsEvent(1.5, 300, {{"train/loss", 2.5}, {"x", -0.25}})),
            "2b00000000000000861bc34b09000000000000f83f10ac022a1d0a110a0a747261696e2f6c6f737315000020"
            "400a080a017815000080beec94bbff");
  EXPECT_EQ(absl::BytesToHexString(TextEvent(1.5, 0, "recipe", "    a\n")),
            "31000000000000009d8383e909000000000000f83f2a260a240a067265636970654210080712041202080142"
            "0620202020610a4a080a060a0474657874c080b4ef");
  EXPECT_EQ(absl::BytesToHexString(EventFileStart(1.5, 0)),
            "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c0d000000"
            "000000003c37b83409000000000000f83f3a020801b718825c");
  EXPECT_EQ(ScalarsEvent(1.5, 300, {}), "");
}

// A reader of its own, of the few fields that matter here; numbers as doubles.
struct Event {
  double time = 0;
  int64_t step = 0;
  std::map<std::string, float> scalars;
};

uint64_t Varint(absl::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const uint8_t byte = static_cast<uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
}

template <typename Field>
void ForEachField(absl::string_view bytes, const Field& field) {
  while (!bytes.empty()) {
    const uint64_t key = Varint(bytes);
    const uint64_t type = key & 7;
    uint64_t number = 0;
    absl::string_view contents;
    if (type == 0) {
      number = Varint(bytes);
    } else {
      const size_t count = type == 1 ? 8 : type == 5 ? 4 : Varint(bytes);
      contents = bytes.substr(0, count);
      bytes.remove_prefix(count);
    }
    field(key >> 3, number, contents);
  }
}

std::vector<Event> ReadEvents(const std::string& path) {
  const std::string file = *ReadFile(path);
  std::vector<Event> events;
  for (size_t at = 0; at < file.size();) {
    uint64_t length = 0;
    std::memcpy(&length, &file[at], sizeof(length));
    Event event;
    ForEachField(absl::string_view(file).substr(at + 12, length),
                 [&](uint64_t field, uint64_t number, absl::string_view contents) {
                   if (field == 1) std::memcpy(&event.time, contents.data(), 8);
                   if (field == 2) event.step = static_cast<int64_t>(number);
                   if (field != 5) return;
                   ForEachField(contents, [&](uint64_t, uint64_t, absl::string_view value) {
                     std::string tag;
                     ForEachField(value, [&](uint64_t part, uint64_t, absl::string_view of_part) {
                       if (part == 1) tag = std::string(of_part);
                       if (part == 2) std::memcpy(&event.scalars[tag], of_part.data(), 4);
                     });
                   });
                 });
    events.push_back(event);
    at += length + 16;
  }
  return events;
}

class TensorboardTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/trainctl_events_XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    options_.folder = folder_ + "/tensorboard";
    options_.metrics_path = folder_ + "/metrics.jsonl";
    options_.timings_path = folder_ + "/timings.jsonl";
    options_.start_time_s = 1000;
    options_.now_s = 5000;
  }
  void TearDown() override { (void)RemoveAll(folder_); }

  // As a trainer does it: the logs are cut back to `keep`, then steps [keep + 1, to] are done.
  void Train(int64_t keep, int64_t to, double now_s) {
    auto metrics = MetricsLog::Open(options_.metrics_path, keep);
    auto timings = TimingsLog::Open(options_.timings_path, keep);
    ASSERT_TRUE(metrics.ok() && timings.ok());
    options_.now_s = now_s;
    auto events = TensorboardLog::Open(options_);
    ASSERT_TRUE(events.ok()) << events.status();
    for (int64_t step = std::max<int64_t>(keep, 0) + 1; step <= to; ++step) {
      StepRecord record;
      record.step = step;
      record.loss = 10.0 - static_cast<double>(step) + now_s / 1e6;  // tells the launches apart
      TimingRecord timing{step, 0.5, 100, {{"forward", 0.25}}, {}, {{"tensor_peak", 4096}}, now_s + 1};
      ASSERT_TRUE(metrics->Append(record).ok() && timings->Append(timing).ok());
      ASSERT_TRUE(events->Append(record, now_s + 1).ok() && events->Append(timing, now_s + 1).ok());
    }
  }

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(options_.folder)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  // Of all files together.
  std::vector<Event> Events() const {
    std::vector<Event> all;
    for (const std::string& name : Names()) {
      const std::vector<Event> events = ReadEvents(options_.folder + "/" + name);
      all.insert(all.end(), events.begin(), events.end());
    }
    return all;
  }

  std::string folder_;
  TensorboardOptions options_;
};

TEST_F(TensorboardTest, EveryNumberOfALineIsAScalar) {
  const auto metrics =
      ParseLogLine(R"({"step":7,"loss":2.5,"lr":"nan","batch_hash":"00ff","eval":{"held-out":"inf","b":1}})",
                   LogKind::kMetrics, "m");
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  ASSERT_EQ(metrics->scalars.size(), 4u);
  EXPECT_EQ(metrics->scalars[0].tag, "train/loss");
  EXPECT_EQ(metrics->scalars[0].value, 2.5);
  EXPECT_TRUE(std::isnan(metrics->scalars[1].value));
  EXPECT_EQ(metrics->scalars[2].tag, "eval/held-out");
  EXPECT_EQ(metrics->scalars[2].value, std::numeric_limits<double>::infinity());
  const auto before =
      ParseLogLine(R"({"step":0,"loss":0,"lr":0,"eval":{"held-out":5.5}})", LogKind::kMetrics, "m");
  ASSERT_EQ(before->scalars.size(), 1u) << "before training there is no loss of a step";
  const auto timings =
      ParseLogLine(R"({"step":7,"seconds":0.5,"phases":{"wait":0.1},"time":99.5})", LogKind::kTimings, "t");
  EXPECT_EQ(timings->time_s, 99.5);
  ASSERT_EQ(timings->scalars.size(), 2u);
  EXPECT_EQ(timings->scalars[1].tag, "phases/wait");
}

TEST_F(TensorboardTest, ALaunchWritesAsItLogsAndAResumeLeavesEveryStepOnce) {
  Train(-1, 6, 2000);
  ASSERT_EQ(Events().size(), 2u + 12u);
  Train(4, 5, 1000);  // taken back to step 4; the clock was set back too
  const std::vector<std::string> names = Names();
  ASSERT_EQ(names.size(), 2u);
  EXPECT_THAT(names[0], HasSubstr("events.out.tfevents.0000002000."));
  EXPECT_EQ(*FileBytes(options_.folder + "/" + names[0]), 0) << "for readers at work";
  EXPECT_THAT(names[1], HasSubstr("events.out.tfevents.0000002001."))
      << "sorts behind the file that it replaces";
  std::map<int64_t, int> losses;
  std::map<int64_t, float> loss;
  for (const Event& event : Events()) {
    const auto found = event.scalars.find("train/loss");
    if (found == event.scalars.end()) continue;
    ++losses[event.step];
    loss[event.step] = found->second;
  }
  EXPECT_EQ(losses, (std::map<int64_t, int>{{1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}}));
  EXPECT_EQ(loss[4], static_cast<float>(6.002));
  EXPECT_EQ(loss[5], static_cast<float>(5.001)) << "of the launch that did it last";
  Train(5, 6, 3000);
  EXPECT_EQ(Names().size(), 2u);
  EXPECT_EQ(Names()[0], names[1]);
}

// Two at once would remove each other's file, or build one together.
// As it is appended, and as it is read back from metrics.jsonl.
TEST_F(TensorboardTest, WhatAResumeChangedIsATextAtItsStep) {
  const std::string text = "optimizer.lr is 1e-4 and was 1e-3";
  for (const bool from_log : {false, true}) {
    auto metrics = MetricsLog::Open(options_.metrics_path, from_log ? 2 : -1);
    ASSERT_TRUE(metrics.ok());
    options_.now_s += 1;
    auto events = TensorboardLog::Open(options_);
    ASSERT_TRUE(events.ok()) << events.status();
    for (int64_t step = 1; step <= 2 && !from_log; ++step) {
      StepRecord record;
      record.step = step;
      if (step == 2) record.changed = {text};
      ASSERT_TRUE(metrics->Append(record).ok() && events->Append(record, 1).ok());
    }
    const std::string bytes = *ReadFile(events->path());
    EXPECT_EQ(bytes.find(text), bytes.rfind(text));
    EXPECT_THAT(bytes, HasSubstr(text));
    std::vector<int64_t> texts;
    for (const Event& event : ReadEvents(events->path())) {
      if (event.scalars.count("train/loss") == 0 && event.step > 0) texts.push_back(event.step);
    }
    EXPECT_THAT(texts, ElementsAre(2));
  }
}

TEST_F(TensorboardTest, AFolderHasOneWriter) {
  ASSERT_TRUE(WriteFileAtomic(options_.metrics_path, "{\"step\":1,\"loss\":3}\n").ok());
  {
    const auto first = TensorboardLog::Open(options_);
    ASSERT_TRUE(first.ok()) << first.status();
    const std::vector<std::string> names = Names();
    const absl::Status second = TensorboardLog::Open(options_).status();
    EXPECT_EQ(ExitCodeFor(second), ExitCode::kEnvironment);
    EXPECT_THAT(std::string(second.message()), HasSubstr("another process writes events into"));
    EXPECT_EQ(Names(), names);
  }
  EXPECT_TRUE(TensorboardLog::Open(options_).ok());
}

TEST_F(TensorboardTest, WhoMayWriteToTheRunTakesTheFolderAndTheFormerOneIsNotSeen) {
  ASSERT_TRUE(WriteFileAtomic(options_.metrics_path, "{\"step\":1,\"loss\":3}\n").ok());
  auto former = TensorboardLog::Open(options_);
  ASSERT_TRUE(former.ok()) << former.status();
  options_.takes_folder = true;
  const auto next = TensorboardLog::Open(options_);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_TRUE(former->Append({.step = 2, .loss = 99}, 1.0).ok());
  for (const std::string& name : Names()) {
    for (const Event& event : ReadEvents(options_.folder + "/" + name)) EXPECT_LT(event.step, 2) << name;
  }
}

TEST_F(TensorboardTest, TimesAreThoseOfTheLogOrSumsOfItsSeconds) {
  ASSERT_TRUE(
      WriteFileAtomic(options_.metrics_path, "{\"step\":1,\"loss\":3}\n{\"step\":3,\"loss\":1}\n").ok());
  ASSERT_TRUE(WriteFileAtomic(options_.timings_path,
                              "{\"step\":1,\"seconds\":2}\n{\"step\":2,\"seconds\":3,\"time\":1500.25}\n"
                              "{\"step\":3,\"seconds\":4}\n{\"step\":4,\"sec")
                  .ok());
  const auto log = TensorboardLog::Open(options_);
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ(log->num_steps(), 3);
  EXPECT_EQ(log->num_scalars(), 5);
  EXPECT_EQ(log->last_step(), 3);
  std::vector<double> times;
  for (const Event& event : Events()) {
    if (!event.scalars.empty()) times.push_back(event.time);
  }
  EXPECT_THAT(times, ElementsAre(1002.0, 1500.25, 1504.25));
}

TEST_F(TensorboardTest, FilesOfOthersStayAndDamageLeavesTheOldFile) {
  Train(-1, 3, 2000);
  const std::string other = options_.folder + "/events.out.tfevents.1.somebody";
  ASSERT_TRUE(WriteFileAtomic(other, "x").ok());
  const std::vector<std::string> before = Names();
  struct Case {
    const char* metrics;
    const char* message;
  };
  for (const Case& c : {Case{"{\"step\":1}\nrubbish\n", "metrics.jsonl:2: damaged: not a line"},
                        Case{"{\"loss\":1}\n", "metrics.jsonl:1: field 'step'"},
                        Case{"{\"step\":2}\n{\"step\":2}\n", "metrics.jsonl:2: step 2 follows step 2"},
                        Case{"{\"step\":-1}\n", "metrics.jsonl:1: step -1 is negative"},
                        Case{"[1]\n", "metrics.jsonl:1: field 'step'"}}) {
    ASSERT_TRUE(WriteFileAtomic(options_.metrics_path, c.metrics).ok());
    const absl::Status status = TensorboardLog::Open(options_).status();
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
    EXPECT_EQ(Names(), before);
  }
  options_.folder = options_.metrics_path + "/x";
  EXPECT_EQ(ExitCodeFor(TensorboardLog::Open(options_).status()), ExitCode::kEnvironment);
}

}  // namespace
}  // namespace trainctl::telemetry
