// Recorded steps, and the ranks of a run side by side.
#include "telemetry/step_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "base/files.h"
#include "base/json.h"
#include "base/status.h"

namespace trainctl::telemetry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Span {
  int64_t pid;
  int64_t tid;
  double ts;
  double dur;
  std::string name;
  bool operator==(const Span&) const = default;
};
void PrintTo(const Span& span, std::ostream* out) {
  *out << span.pid << "/" << span.tid << " " << span.ts << "+" << span.dur << " " << span.name;
}

std::vector<Span> SpansOf(const std::string& json) {
  const auto trace = ParseJson(json, "trace");
  EXPECT_TRUE(trace.ok()) << trace.status();
  std::vector<Span> spans;
  for (const Json& event : (*trace)["traceEvents"]) {
    if (event["ph"] != "X") continue;
    spans.push_back({event["pid"], event["tid"], event["ts"], event["dur"], event["name"]});
  }
  return spans;
}

class StepTraceTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/trainctl_traces_XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { (void)RemoveAll(folder_); }

  // A file as another machine could have written it.
  void Write(int64_t step, int rank, int world_size, const std::string& boot, int64_t monotonic_ns,
             int64_t unix_ns, const std::string& events) const {
    const std::string text = absl::StrCat(
        R"({"schema":"trainctl.trace.v1","step":)", step, R"(,"rank":)", rank, R"(,"world_size":)",
        world_size, R"(,"host":"h)", rank, R"(","boot_id":")", boot, R"(","monotonic_ns":)", monotonic_ns,
        R"(,"unix_ns":)", unix_ns, R"(,"streams":["compute","reduce"],"traceEvents":[)", events, "]}");
    ASSERT_TRUE(WriteFileAtomic(absl::StrCat(folder_, "/step-", step, "-rank-", rank, ".json"), text).ok());
  }
  static std::string Event(int tid, double ts, double dur, const std::string& name) {
    return absl::StrCat(R"({"ph":"X","pid":0,"tid":)", tid, R"(,"ts":)", ts, R"(,"dur":)", dur,
                        R"(,"name":")", name, R"("})");
  }
  absl::StatusOr<MergedTrace> Merge(int64_t step = -1) const { return MergeTraces(folder_, step, {}, "t"); }

  std::string folder_;
};

TEST_F(StepTraceTest, WhatIsAddedByAnyThreadIsMergedUnderItsName) {
  for (int rank = 0; rank < 2; ++rank) {
    StepRecorder recorder(
        {{"forward \"block\" 0", 0}, {"backward block 0", 0}, {"reduce gradient bucket 0", 1}},
        {"compute", "reduce"}, rank, 2);
    recorder.Begin();
    recorder.Add(1, 5, 7);  // of a step before
    recorder.Begin();
    const int64_t now = MonotonicNanoseconds();
    recorder.Add(0, now, now + 1500);
    std::thread([&] { recorder.Add(2, now + 1000, now + 4000); }).join();
    ASSERT_TRUE(recorder.Write(folder_, 10).ok());
  }
  const auto merged = Merge();
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_THAT(merged->notes, ElementsAre());
  const std::vector<Span> spans = SpansOf(merged->json);
  ASSERT_EQ(spans.size(), 4u) << "an instruction that did not run is not there";
  EXPECT_EQ(spans[0].ts, 0);
  EXPECT_EQ(spans[0].dur, 1.5);
  EXPECT_EQ(spans[0].name, "forward \"block\" 0");
  EXPECT_EQ(spans[1], (Span{0, 2, 1.0, 3.0, "reduce gradient bucket 0"}));
  EXPECT_EQ(spans[2].pid, 1);
  EXPECT_GE(spans[2].ts, 0) << "recorded later, on the same clock";
  ASSERT_EQ(merged->steps.size(), 1u);
  EXPECT_EQ(merged->steps[0].step, 10);
  EXPECT_EQ(merged->steps[0].num_ranks, 2);
  for (const ClockOffset& clock : merged->steps[0].clocks) EXPECT_TRUE(clock.same_clock);
  EXPECT_NEAR(merged->steps[0].seconds, (spans[3].ts + spans[3].dur) / 1e6, 1e-9);
}

// Rank 1 is another machine, started 2 s later by the wall clock, whose step began 1 ms after rank 0's.
TEST_F(StepTraceTest, MachinesAreSetByTheirWallClocks) {
  Write(3, 0, 3, "a", 5000000000, 105000000000, Event(1, 10, 20, "x"));
  Write(3, 1, 3, "b", 3001000000, 105001000000, Event(1, 10, 20, "x"));
  Write(3, 2, 3, "a", 5000500000, 999, Event(2, 0, 1, "y"));
  const auto merged = Merge();
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_THAT(SpansOf(merged->json),
              ElementsAre(Span{0, 1, 0, 20, "x"}, Span{1, 1, 1000, 20, "x"}, Span{2, 2, 490, 1, "y"}));
  EXPECT_EQ(merged->steps[0].clocks[1].offset_us, 2e6);
  EXPECT_FALSE(merged->steps[0].clocks[1].same_clock);
  EXPECT_TRUE(merged->steps[0].clocks[2].same_clock) << "one boot has one clock, whatever its wall clock did";
  EXPECT_NEAR(merged->steps[0].seconds, 1020e-6, 1e-12);
  const auto json = ParseJson(merged->json, "merged");
  EXPECT_EQ((*json)["otherData"]["clocks"][1]["basis"], "wall clocks");
  EXPECT_EQ((*json)["otherData"]["clocks"][1]["offset_us"], 2e6);
}

TEST_F(StepTraceTest, ThePredictionBeginsWithEachStep) {
  Write(1, 0, 1, "a", 1000000, 0, Event(1, 0, 100, "x"));
  Write(2, 0, 1, "a", 2000000, 0, Event(1, 50, 100, "x"));
  const PredictedRanks prediction{
      "each rank", {"compute", "gather"}, {{"x", 0, 0, 80e-6}, {"z", 1, 10e-6, 90e-6}}};
  const auto merged = MergeTraces(folder_, -1, {prediction}, "t");
  ASSERT_TRUE(merged.ok()) << merged.status();
  const std::vector<Span> spans = SpansOf(merged->json);
  ASSERT_EQ(spans.size(), 6u);
  const int64_t predicted = spans[1].pid;
  EXPECT_THAT(spans, ElementsAre(Span{0, 1, 0, 100, "x"}, Span{predicted, 1, 0, 80, "x"},
                                 Span{predicted, 2, 10, 80, "z"}, Span{0, 1, 1050, 100, "x"},
                                 Span{predicted, 1, 1050, 80, "x"}, Span{predicted, 2, 1060, 80, "z"}));
  EXPECT_EQ(SpansOf(MergeTraces(folder_, 2, {}, "t")->json).size(), 1u);
  EXPECT_THAT(merged->json, HasSubstr("predicted, each rank"));
}

TEST_F(StepTraceTest, MissingRanksAndOtherWorldsAreTold) {
  Write(1, 0, 3, "a", 0, 0, Event(1, 0, 1, "x"));
  Write(1, 2, 3, "a", 0, 0, Event(1, 0, 1, "x"));
  Write(1, 3, 4, "a", 0, 0, Event(1, 0, 1, "old"));
  ASSERT_TRUE(WriteFileAtomic(folder_ + "/step-1-rank-x.json", "not ours").ok());
  const auto merged = Merge();
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_THAT(merged->notes,
              ElementsAre("step 1: 1 file(s) of a run with another number of workers than 3 are left out",
                          "step 1: the trace of rank 1 is not there"));
  EXPECT_EQ(SpansOf(merged->json).size(), 2u);
}

TEST_F(StepTraceTest, WhatIsNoTraceIsNamed) {
  EXPECT_THAT(std::string(Merge().status().message()), HasSubstr("has no trace; metrics.trace_steps"));
  EXPECT_EQ(ExitCodeFor(MergeTraces(folder_ + "/none", 7, {}, "t").status()), ExitCode::kBadData);
  Write(1, 0, 1, "a", 0, 0, "");
  EXPECT_TRUE(Merge().ok());
  EXPECT_THAT(std::string(Merge(7).status().message()), HasSubstr("no trace of step 7"));
  struct Case {
    const char* from;
    const char* to;
    const char* message;
  };
  for (const Case& c :
       {Case{"trainctl.trace.v1", "trainctl.trace.v2", "schema trainctl.trace.v2"},
        Case{"\"rank\":0", "\"rank\":5", "rank 5 of 1"}, Case{"\"step\":1", "\"step\":\"1\"", "field 'step'"},
        Case{"[\"compute\",\"reduce\"]", "[]", "field 'streams'"},
        Case{"[\"compute\",\"reduce\"]", "[1]", "field 'streams'"},
        Case{"\"monotonic_ns\":0", "\"monotonic_ns\":9223372036854775807", "out of range"},
        Case{"\"traceEvents\":[]", "\"traceEvents\":{}", "field 'traceEvents'"},
        Case{"\"traceEvents\":[]", "\"traceEvents\":[5]", "event 0: field 'ph'"},
        Case{"\"traceEvents\":[]",
             "\"traceEvents\":[{\"ph\":\"X\",\"name\":\"x\",\"tid\":3,\"ts\":0,\"dur\":1}]",
             "tid 3 is none of the 2 streams"},
        Case{"\"traceEvents\":[]",
             "\"traceEvents\":[{\"ph\":\"X\",\"name\":\"x\",\"tid\":1,\"ts\":1e300,\"dur\":1}]",
             "no time of a step"},
        Case{"{\"schema\"", "{{", "not valid JSON"}}) {
    Write(1, 0, 1, "a", 0, 0, "");
    std::string text = *ReadFile(folder_ + "/step-1-rank-0.json");
    const size_t at = text.find(c.from);
    ASSERT_NE(at, std::string::npos) << c.from;
    text.replace(at, std::string(c.from).size(), c.to);
    ASSERT_TRUE(WriteFileAtomic(folder_ + "/step-1-rank-0.json", text).ok());
    const absl::Status status = Merge().status();
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
    EXPECT_THAT(std::string(status.message()), HasSubstr("step-1-rank-0.json"));
  }
}

}  // namespace
}  // namespace trainctl::telemetry
