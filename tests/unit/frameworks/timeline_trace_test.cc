// Timelines as traces.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/json.h"
#include "frameworks/timeline.h"
#include "plan_picture_util.h"
#include "report/trace.h"

namespace trainctl::frameworks {
namespace {

using schedule::PipelineKind;

Json Parsed(const std::string& text) {
  auto json = ParseJson(text, "trace");
  EXPECT_TRUE(json.ok()) << json.status();
  return json.ok() ? *json : Json();
}

// Back to whole nanoseconds: the text has three decimals of a microsecond.
int64_t Nanoseconds(const Json& microseconds) { return std::llround(microseconds.get<double>() * 1000); }

TEST(TimelineTrace, HasEverySpanOnceInOrderAndWithoutOverlap) {
  for (const auto& [kind, virtual_stages] :
       {std::pair(PipelineKind::k1F1B, 1), std::pair(PipelineKind::kZbv, 2),
        std::pair(PipelineKind::kInterleaved1F1B, 3), std::pair(PipelineKind::kDualPipe, 1)}) {
    const Timeline timeline = BuildTimeline(GptToDraw(kind, virtual_stages, 8, 16));
    const Json trace = Parsed(report::TraceJson(PictureOf(timeline), "GPT-3"));
    std::map<std::pair<int, int>, int64_t> ends, counts;
    std::map<int, int64_t> counter_times;
    int64_t latest = 0;
    for (const Json& event : trace["traceEvents"]) {
      const int rank = event["pid"];
      if (event["ph"] == "C") {
        EXPECT_GE(Nanoseconds(event["ts"]), counter_times[rank]);
        counter_times[rank] = Nanoseconds(event["ts"]);
        for (const auto& [name, bytes] : event["args"].items()) EXPECT_GE(bytes.get<double>(), 0) << name;
      }
      if (event["ph"] != "X") continue;
      const std::pair<int, int> thread = {rank, event["tid"].get<int>()};
      EXPECT_GE(Nanoseconds(event["ts"]), ends[thread]) << event.dump();
      EXPECT_GE(event["dur"].get<double>(), 0);
      ends[thread] = Nanoseconds(event["ts"]) + Nanoseconds(event["dur"]);
      latest = std::max(latest, ends[thread]);
      ++counts[thread];
    }
    for (size_t r = 0; r < timeline.ranks.size(); ++r) {
      for (size_t s = 0; s < timeline.ranks[r].streams.size(); ++s) {
        const std::pair<int, int> thread = {static_cast<int>(r), static_cast<int>(s) + 1};
        EXPECT_EQ(counts[thread], static_cast<int64_t>(timeline.ranks[r].streams[s].spans.size()));
        counts.erase(thread);
      }
    }
    EXPECT_TRUE(counts.empty());
    EXPECT_EQ(latest, std::llround(timeline.end_s * 1e9));
  }
}

TEST(TimelineTrace, NamesItsRanksAndStreams) {
  const Timeline timeline = BuildTimeline(GptToDraw(PipelineKind::k1F1B, 1, 4, 8));
  const Json trace = Parsed(report::TraceJson(PictureOf(timeline), "x"));
  std::set<std::string> names;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "M" && event["args"].contains("name")) names.insert(event["args"]["name"]);
  }
  EXPECT_THAT(names, ::testing::IsSupersetOf({"pipeline rank 0", "pipeline rank 3", "compute", "exchange",
                                              "send to rank 1", "data parallel"}));
}

}  // namespace
}  // namespace trainctl::frameworks
