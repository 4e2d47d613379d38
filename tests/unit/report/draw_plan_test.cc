#include "report/draw_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "absl/strings/str_split.h"
#include "base/json.h"
#include "model/presets.h"
#include "report/explain_plan.h"
#include "schedule/step_hash.h"

namespace trainctl::report {
namespace {

using ::testing::HasSubstr;

struct Planned {
  model::Architecture spec;
  plan::Plan plan;
};

// As a planner would make it, with the step's own memory and time.
Planned Plan(int stage, bool overlap) {
  Planned planned{*model::Preset("toy-1m"), {}};
  plan::Plan& plan = planned.plan;
  (stage == 0 ? plan.layout.mesh.dp_replicate : plan.layout.mesh.dp_shard) = 2;
  plan.layout.zero_stage = stage;
  plan.layout.micro_batch = 2;
  plan.layout.num_micro_batches = 3;
  plan.setting.seq_len = 64;
  plan.rates = simulate::CpuRates(1, DType::kF32, false);
  plan.rates.overlap = overlap;
  const plan::PlannedStep step = plan::BuildStep(plan, planned.spec);
  plan.step_hash = schedule::HashStep(step.step, step.ledger);
  plan.predicted = simulate::SimulateMemory(step.ProgramOf(0));
  plan::Candidate chosen{.layout = plan.layout, .memory = plan.predicted, .fits = true, .chosen = true};
  chosen.step_seconds = simulate::PriceStep(step.step, step.ledger, step.options, 3, plan.rates).seconds;
  plan.candidates.push_back(chosen);
  return planned;
}

TEST(DrawPlan, HasARowForEachStreamThatIsUsedInTheWidthThatIsAskedFor) {
  const Planned planned = Plan(3, true);
  const std::vector<std::string> lines =
      absl::StrSplit(DrawPlan(planned.plan, planned.spec, {.width = 60}), '\n');
  std::map<std::string, std::string> rows;
  for (const std::string& line : lines) {
    const size_t bar = line.find('|');
    if (bar != std::string::npos) rows[line.substr(0, line.find(' '))] = line.substr(bar + 1);
    EXPECT_LE(bar == std::string::npos ? 0 : line.size(), 60u);
  }
  ASSERT_EQ(rows.count("compute") + rows.count("gather") + rows.count("reduce"), 3u);
  EXPECT_THAT(rows["compute"], HasSubstr("F"));
  EXPECT_THAT(rows["compute"], HasSubstr("B"));
  // Nothing is backward before something was forward.
  EXPECT_LT(rows["compute"].find('F'), rows["compute"].find('B'));
  EXPECT_EQ(Plan(0, false).plan.layout.ToString().find("ZeRO"), std::string::npos);
  EXPECT_THAT(DrawPlan(Plan(0, false).plan, planned.spec), ::testing::Not(HasSubstr("gather  |")));
}

TEST(TraceOfPlan, HasEveryInstructionOnItsStreamInOrder) {
  for (const bool overlap : {false, true}) {
    const Planned planned = Plan(3, overlap);
    const plan::PlannedStep step = plan::BuildStep(planned.plan, planned.spec);
    const Json trace = *ParseJson(TraceOfPlan(planned.plan, planned.spec, "a \"title\" \xff"), "trace");
    EXPECT_EQ(trace["otherData"]["step_hash"], planned.plan.step_hash);
    size_t spans = 0;
    std::map<int, double> end;
    int64_t highest = 0;
    for (const Json& event : trace["traceEvents"]) {
      if (event["ph"] == "C") {
        int64_t sum = 0;
        for (const auto& [name, bytes] : event["args"].items()) sum += bytes.get<int64_t>();
        highest = std::max(highest, sum);
      }
      if (event["ph"] != "X") continue;
      EXPECT_EQ(event["name"], schedule::Describe(step.ProgramOf(0).instructions[spans++]));
      double& last = end[event["tid"].get<int>()];
      EXPECT_GE(event["ts"].get<double>(), last - 2e-3);  // both are rounded to nanoseconds
      last = event["ts"].get<double>() + event["dur"].get<double>();
    }
    EXPECT_EQ(spans, step.ProgramOf(0).instructions.size());
    EXPECT_EQ(highest, planned.plan.predicted.peak_bytes);
  }
}

TEST(ExplainPlan, TermsAddUp) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (const bool overlap : {false, true}) {
      const Planned planned = Plan(stage, overlap);
      const PlanExplanation explanation = ExplainPlan(planned.plan, planned.spec);
      int64_t bytes = 0;
      for (const simulate::LiveBytes& live : explanation.memory) bytes += live.bytes;
      EXPECT_EQ(bytes, planned.plan.predicted.peak_bytes);
      double seconds = -explanation.overlapped_seconds;
      for (const TimeTerm& term : explanation.time) seconds += term.seconds;
      EXPECT_NEAR(seconds, plan::Chosen(planned.plan).step_seconds, 1e-9);
      // Without overlap one stream has it all.
      EXPECT_EQ(overlap, explanation.overlapped_seconds > 0);
      EXPECT_EQ(explanation.bindings.size(), 2u);
    }
  }
}

}  // namespace
}  // namespace trainctl::report
