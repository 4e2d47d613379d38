#include "trainer/run_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>

#include "base/files.h"
#include "base/json.h"
#include "model/presets.h"
#include "planner/make_plan.h"
#include "recipe/load.h"

namespace trainctl::trainer {
namespace {

using ::testing::HasSubstr;

TEST(StepTimes, TheFirstStepsDoNotCount) {
  StepTimes times;
  for (double seconds : {9.0, 9.0, 9.0}) times.Add(seconds, {{"optimizer step", 8}}, {});
  EXPECT_EQ(times.count(), 0);
  EXPECT_EQ(times.MedianSeconds(), 0);
  for (double seconds : {1.0, 5.0, 2.0}) {
    times.Add(seconds, {{"optimizer step", seconds / 2}}, {{"linear", seconds / 4}});
  }
  EXPECT_EQ(times.count(), 3);
  EXPECT_EQ(times.MedianSeconds(), 2);
  EXPECT_DOUBLE_EQ(times.MeanByName().at("linear"), 8.0 / 3 / 4);
}

// A plan of the smallest preset for one worker.
plan::Plan SomePlan(recipe::Recipe& recipe) {
  recipe.model.spec = *model::Preset("toy-1m");
  recipe.data.seq_len = 32;
  recipe.train.batch_sequences = 4;
  recipe.train.precision = "fp32";
  cluster::Host host;
  host.memory_total_bytes = host.memory_available_bytes = int64_t{8} << 30;
  const auto plan = planner::MakePlan(recipe, host);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *plan;
}

TEST(RunReport, ComparesMemoryAndEveryPartOfTheStep) {
  recipe::Recipe recipe;
  const plan::Plan plan = SomePlan(recipe);
  const plan::PlannedStep planned = plan::BuildStep(plan, recipe.model.spec);
  StepTimes times;
  for (int step = 0; step < 5; ++step) {
    times.Add(
        1.0, {{"optimizer step", 0.1}, {"forward", 0.5}, {"data", 0.05}},
        {{"linear", 0.3}, {"linear backward", 0.2}, {"attention", 0.1}, {"linear cross entropy", 0.15}});
  }
  const char* const tmp = std::getenv("TMPDIR");
  std::string path = absl::StrCat(tmp != nullptr ? tmp : "/tmp", "/report-XXXXXX");
  const int fd = mkstemp(path.data());
  ASSERT_GE(fd, 0);
  close(fd);
  const MeasuredMemory memory{.at_peak = {5, 4, 3, 2, 1}, .library_scratch_bytes = 7};
  const auto lines = WriteReport(path, plan, recipe.model.spec, planned, plan.step_hash, {memory}, times);
  ASSERT_TRUE(lines.ok()) << lines.status();
  const Json report = *ParseJson(*ReadFile(path), path);
  ASSERT_TRUE(RemoveAll(path).ok());

  EXPECT_EQ(report["step_hash"], plan.step_hash);
  EXPECT_EQ(report["measured_peak_bytes"], 15);
  EXPECT_EQ(report["library_scratch_bytes"], 7);
  EXPECT_EQ(report["ranks"].size(), 1u);
  EXPECT_EQ(report["measured_step_seconds"], 1.0);
  const Json& measured = report["measured_seconds"];
  EXPECT_DOUBLE_EQ(measured["linear layers"].get<double>(), 0.5);
  EXPECT_DOUBLE_EQ(measured["head and loss"].get<double>(), 0.15);
  EXPECT_NEAR(measured["communication and rest"].get<double>(), 1 - 0.5 - 0.1 - 0.15 - 0.1, 1e-12);
  // What is predicted of the parts is what is predicted of the step.
  double predicted = 0;
  for (const auto& [part, seconds] : report["predicted_seconds"].items()) predicted += seconds.get<double>();
  EXPECT_NEAR(predicted, report["predicted_step_seconds"].get<double>(), 1e-9);
  EXPECT_THAT(*lines, ::testing::Contains(HasSubstr("trainctl calibrate")));
}

// Of a pipeline each rank is held against what was predicted of its own stages.
TEST(RunReport, EachRankOfAPipelineHasItsOwnPrediction) {
  recipe::Recipe recipe;
  recipe.cluster.devices_per_node = 2;
  recipe.parallel.pp = 2, recipe.parallel.tp = 1;
  recipe.parallel.stage_layers = {{3, 1}};
  recipe.train.micro_batch = 1;
  const plan::Plan plan = SomePlan(recipe);
  const plan::PlannedStep planned = plan::BuildStep(plan, recipe.model.spec);
  std::vector<int64_t> peaks;
  std::vector<MeasuredMemory> measured(2);
  for (size_t rank = 0; rank < 2; ++rank) {
    peaks.push_back(simulate::SimulateMemory(planned.ProgramOf(static_cast<int>(rank))).peak_bytes);
    measured[rank].at_peak[0] = peaks[rank] + 1;
  }
  ASSERT_GT(std::abs(peaks[0] - peaks[1]), int64_t{2} << 20);
  const std::string path = ::testing::TempDir() + "pipeline-report";
  for (const bool is_met : {true, false}) {
    if (!is_met) std::swap(measured[0], measured[1]);  // the largest is as predicted, no rank is
    const auto lines =
        WriteReport(path, plan, recipe.model.spec, planned, plan.step_hash, measured, StepTimes());
    ASSERT_TRUE(lines.ok()) << lines.status();
    const Json report = *ParseJson(*ReadFile(path), path);
    EXPECT_EQ(report["peak_is_met"], is_met);
    EXPECT_EQ(report["ranks"][1]["predicted_peak_bytes"], peaks[1]);
    EXPECT_EQ(report["ranks"][1]["measured_peak_bytes"], peaks[is_met ? 1 : 0] + 1);
    EXPECT_THAT(*lines, ::testing::Contains(HasSubstr("tensor memory of pipeline rank 1: predicted")));
  }
  ASSERT_TRUE(RemoveAll(path).ok());
}

// The first of two replicas writes the checkpoint and has room for a copy of what it writes: master weights
// and AdamW's two moments.
TEST(RunReport, ARankThatWritesNoCheckpointNeedsNoCopyForIt) {
  recipe::Recipe recipe;
  recipe.cluster.devices_per_node = 2;
  recipe.parallel.pp = recipe.parallel.tp = 1;
  recipe.parallel.dp_shard = 1, recipe.parallel.zero_stage = 0;
  recipe.checkpoint.async = true;
  const plan::Plan plan = SomePlan(recipe);
  const plan::PlannedStep planned = plan::BuildStep(plan, recipe.model.spec);
  std::vector<MeasuredMemory> measured(2);
  measured[0].at_peak[0] = plan.predicted.peak_bytes;
  measured[1].at_peak[0] = plan.predicted.peak_bytes - 3 * 4 * model::NumParameters(recipe.model.spec);
  const std::string path = ::testing::TempDir() + "replicas-report";
  for (const bool is_met : {true, false}) {
    if (!is_met) measured[1] = measured[0];
    ASSERT_TRUE(
        WriteReport(path, plan, recipe.model.spec, planned, plan.step_hash, measured, StepTimes()).ok());
    const Json report = *ParseJson(*ReadFile(path), path);
    EXPECT_EQ(report["peak_is_met"], is_met) << report.dump(2);
  }
  ASSERT_TRUE(RemoveAll(path).ok());
}

// One step of five waited for the machine: the parts still add up to what they are parts of.
TEST(RunReport, ThePartsAddUpThoughOneStepWasSlow) {
  recipe::Recipe recipe;
  const plan::Plan plan = SomePlan(recipe);
  const plan::PlannedStep planned = plan::BuildStep(plan, recipe.model.spec);
  StepTimes times;
  for (int step = 0; step < 8; ++step) {
    const double seconds = step == 5 ? 11.0 : 1.0;
    times.Add(seconds, {{"optimizer step", 0.1}}, {{"linear", seconds - 0.2}});
  }
  std::string path = ::testing::TempDir() + "report-XXXXXX";
  const int fd = mkstemp(path.data());
  ASSERT_GE(fd, 0);
  close(fd);
  ASSERT_TRUE(
      WriteReport(path, plan, recipe.model.spec, planned, plan.step_hash, {MeasuredMemory()}, times).ok());
  const Json report = *ParseJson(*ReadFile(path), path);
  ASSERT_TRUE(RemoveAll(path).ok());
  EXPECT_EQ(report["measured_step_seconds"], 1.0);
  EXPECT_EQ(report["measured_mean_step_seconds"], 3.0);
  double measured = 0;
  for (const auto& [part, seconds] : report["measured_seconds"].items()) measured += seconds.get<double>();
  EXPECT_NEAR(measured, 3.0, 1e-12);
  EXPECT_NEAR(report["measured_seconds"]["communication and rest"].get<double>(), 0.1, 1e-12);
}

TEST(RunReport, ARunTooShortToTimeTellsItsMemoryAlone) {
  recipe::Recipe recipe;
  const plan::Plan plan = SomePlan(recipe);
  const plan::PlannedStep planned = plan::BuildStep(plan, recipe.model.spec);
  std::string path = "/tmp/report-XXXXXX";
  const int fd = mkstemp(path.data());
  ASSERT_GE(fd, 0);
  close(fd);
  const auto lines =
      WriteReport(path, plan, recipe.model.spec, planned, plan.step_hash, {MeasuredMemory()}, StepTimes());
  ASSERT_TRUE(lines.ok()) << lines.status();
  const Json report = *ParseJson(*ReadFile(path), path);
  ASSERT_TRUE(RemoveAll(path).ok());
  EXPECT_FALSE(report.contains("measured_step_seconds"));
}

}  // namespace
}  // namespace trainctl::trainer
