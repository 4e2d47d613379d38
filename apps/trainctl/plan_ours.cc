#include "apps/trainctl/plan_ours.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "apps/trainctl/host_of_run.h"
#include "apps/trainctl/plan_explain.h"
#include "apps/trainctl/plan_json.h"
#include "apps/trainctl/plan_outputs.h"
#include "apps/trainctl/plan_table.h"
#include "apps/trainctl/text_table.h"
#include "apps/trainctl/timeout_table.h"
#include "base/json.h"
#include "base/output_file.h"
#include "base/units.h"
#include "cluster/host.h"
#include "data/batch_source.h"
#include "data/data_record.h"
#include "launcher/printable_text.h"
#include "plan/precision_text.h"
#include "plan/utilization.h"
#include "planner/advice.h"
#include "planner/make_plan.h"
#include "planner/run_estimate.h"
#include "report/draw_plan.h"
#include "report/explain_plan.h"
#include "report/page.h"
#include "report/plan_page.h"

namespace trainctl::cli {
namespace {

std::string MiB(int64_t bytes) { return absl::StrFormat("%.1f", static_cast<double>(bytes) / (1 << 20)); }

// A change and its effect per line.
void PrintChanges(const plan::Plan& plan, const recipe::Recipe& recipe,
                  const std::vector<planner::Change>& changes) {
  if (!planner::TriesChanges(recipe, plan)) {
    std::printf(
        "\nChanges that would make it faster or smaller were not searched, because the search would take "
        "minutes for this model\n");
  }
  if (changes.empty()) return;
  std::printf("\nChanges that would make it faster or smaller:\n");
  size_t width = 0;
  for (const planner::Change& change : changes) width = std::max(width, change.setting.size());
  for (const planner::Change& change : changes) {
    std::printf("  %-*s  %s\n", static_cast<int>(width), change.setting.c_str(),
                planner::EffectOf(change, plan).c_str());
  }
}

void Print(const plan::Plan& plan, const recipe::LoadedRecipe& loaded,
           const std::vector<planner::Change>& changes, const PlanTableOptions& options) {
  const recipe::Recipe& recipe = loaded.recipe;
  std::printf("%s: %s parameters, %s, %d worker%s, %d sequences of %d tokens per step\n",
              recipe.run.name.c_str(), FormatCount(plan.num_parameters).c_str(),
              plan::PrecisionText(plan.setting.types), static_cast<int>(plan.layout.mesh.world_size()),
              plan.layout.mesh.world_size() == 1 ? "" : "s", static_cast<int>(recipe.train.batch_sequences),
              static_cast<int>(plan.setting.seq_len));
  std::printf("%s; each worker has %s for tensors:\n\n",
              options.all ? "Every layout considered" : "The best layout of each family",
              FormatBytes(plan.memory_limit_bytes).c_str());
  PrintPlanTable(plan, recipe, options);
  if (plan::HasTimes(plan)) {
    std::printf("\n%s\n",
                planner::AnswerOf(planner::EstimateRun(plan, plan::Chosen(plan), recipe), recipe).c_str());
    std::printf("  %s\n", report::TrustInTime(plan).c_str());
  } else {
    std::printf("\n%s\n", report::TrustInTime(plan).c_str());
  }
  PrintChanges(plan, recipe, changes);
  std::printf("\nChosen: %s, accumulation %d; peak %s in %s\n", plan.layout.ToString().c_str(),
              static_cast<int>(plan.layout.num_micro_batches), FormatBytes(plan.predicted.peak_bytes).c_str(),
              plan.predicted.peak_where.c_str());
  for (const std::vector<std::string>* notes : {&plan.notes, &loaded.notes}) {
    for (const std::string& note : *notes) std::printf("  %s\n", note.c_str());
  }
  if (const auto uses = data::FindUsesQuickly(recipe); !uses.empty()) {
    std::printf("  %s\n", data::FormatUses(uses, recipe.train.steps).c_str());
  }
  for (const std::string& lacks : loaded.missing) std::printf("  missing for a launch: %s\n", lacks.c_str());
  if (recipe.launch.backend == "local") std::printf("  %s\n", SumUpTimeouts(recipe.launch).c_str());
  std::printf("  step hash %s\n", plan.step_hash.c_str());
}

// "0, 2, 4, 6", "0, 8, ... 56".
std::string RanksOf(const simulate::AxisVolume& axis) {
  constexpr int kMostShown = 4;
  std::string text = "0";
  const int shown = axis.ranks <= kMostShown ? axis.ranks : 2;
  for (int i = 1; i < shown; ++i) absl::StrAppend(&text, ", ", i * axis.stride);
  if (shown < axis.ranks) absl::StrAppend(&text, ", ... ", (axis.ranks - 1) * axis.stride);
  return text;
}

// Ranks fill one machine after the other.
std::string PlaceOf(const simulate::AxisVolume& axis, const plan::Plan& plan) {
  const int64_t span = static_cast<int64_t>(axis.ranks) * axis.stride;
  if (span <= plan.devices_per_node) return "within a machine";
  return axis.stride >= plan.devices_per_node ? "one per machine" : "across machines";
}

void PrintSearch(const plan::SearchCounts& search, absl::Duration time, absl::Duration changes_time,
                 bool color) {
  PrintTitle("How the layout was found", color);
  std::printf("  %s strategies (meshes with a ZeRO stage) yield %s layouts; bounds rule out %s of them\n",
              FormatCount(search.strategies).c_str(), FormatCount(search.bounded).c_str(),
              FormatCount(search.pruned).c_str());
  std::printf("  simulated %s layouts and tried %s counts of recomputed layers\n",
              FormatCount(search.folded + search.whole).c_str(), FormatCount(search.tried).c_str());
  std::printf("  planned in %s; searched for changes in %s\n",
              planner::FormatSeconds(absl::ToDoubleSeconds(time)).c_str(),
              planner::FormatSeconds(absl::ToDoubleSeconds(changes_time)).c_str());
}

void PrintExplanation(const plan::Plan& plan, const report::PlanExplanation& explanation, bool color) {
  PrintTitle("Peak memory of one worker", color);
  TextTable memory({"value", "category", "MiB", "share"}, {0, 1});
  for (const simulate::LiveBytes& live : explanation.memory) {
    memory.Add({live.name, std::string(schedule::CategoryName(live.category)), MiB(live.bytes),
                absl::StrFormat("%.1f %%", static_cast<double>(live.bytes) /
                                               static_cast<double>(plan.predicted.peak_bytes) * 100)});
  }
  memory.Add({"peak", "", MiB(plan.predicted.peak_bytes), ""}, true);
  memory.Add({"limit", "", MiB(plan.memory_limit_bytes), ""});
  memory.Print(color);
  if (!explanation.axes.empty()) {
    PrintTitle("Data each worker sends per step, by axis", color);
    TextTable axes({"axis", "ranks", "rank 0's group", "where", "MiB"}, {0, 2, 3});
    for (const simulate::AxisVolume& axis : explanation.axes) {
      axes.Add({std::string(layout::AxisName(axis.axis)), absl::StrCat(axis.ranks), RanksOf(axis),
                PlaceOf(axis, plan), MiB(axis.sent_bytes)});
    }
    axes.Print(color);
  }
  PrintTitle("Time of a step, by part", color);
  TextTable time({"part", "ms"}, {0});
  for (const report::TimeTerm& term : explanation.time)
    time.Add({term.name, absl::StrFormat("%.3f", term.seconds * 1e3)});
  if (explanation.overlapped_seconds > 0) {
    time.Add({"overlapped", absl::StrFormat("-%.3f", explanation.overlapped_seconds * 1e3)});
  }
  time.Add({"step", absl::StrFormat("%.3f", explanation.step_seconds * 1e3)}, true);
  time.Print(color);
  PrintTitle("What binds", color);
  for (const std::string& text : explanation.bindings) std::printf("  %s\n", text.c_str());
  PrintTitle("How reliable it is", color);
  for (const std::string& text : explanation.trust) std::printf("  %s\n", text.c_str());
  PrintTitle("Rates", color);
  TextTable rates({"rate", "value", "origin"}, {0, 2});
  for (const report::PageConstant& rate : report::RatesOf(plan))
    rates.Add({rate.name, rate.value, rate.origin});
  rates.Print(color);
}

Json ExplanationToJson(const report::PlanExplanation& explanation) {
  Json json = {{"memory", Json::array()},
               {"axes", Json::array()},
               {"time", Json::array()},
               {"overlapped_seconds", explanation.overlapped_seconds},
               {"bindings", explanation.bindings},
               {"trust", explanation.trust}};
  for (const simulate::LiveBytes& live : explanation.memory) {
    json["memory"].push_back({{"value", live.name},
                              {"category", std::string(schedule::CategoryName(live.category))},
                              {"bytes", live.bytes}});
  }
  for (const simulate::AxisVolume& axis : explanation.axes) {
    json["axes"].push_back({{"axis", std::string(layout::AxisName(axis.axis))},
                            {"ranks", axis.ranks},
                            {"stride", axis.stride},
                            {"sent_bytes", axis.sent_bytes}});
  }
  for (const report::TimeTerm& term : explanation.time) {
    json["time"].push_back({{"part", term.name}, {"seconds", term.seconds}});
  }
  return json;
}

// What only other trainers' prices have.
absl::Status RefuseWhatIfOptions(const PlanOptions& options) {
  const char* option = !options.profile.empty() ? "--profile" : options.pareto ? "--pareto" : "";
  if (*option == '\0') return absl::OkStatus();
  return UsageError(absl::StrCat(option, " requires --as FRAMEWORK, for example --as megatron-core"));
}

}  // namespace

absl::StatusOr<ExitCode> PlanOurs(const recipe::LoadedRecipe& loaded, const PlanOptions& options,
                                  const Output& output) {
  TRAINCTL_RETURN_IF_ERROR(RefuseWhatIfOptions(options));
  TRAINCTL_ASSIGN_OR_RETURN(const cluster::Host host, HostOfRun(loaded.recipe));
  if (loaded.recipe.cluster.device == recipe::kCudaDevice) {
    TRAINCTL_RETURN_IF_ERROR(CheckEnoughAreVisible(loaded.recipe, host));
  }
  const absl::Time begin = absl::Now();
  TRAINCTL_ASSIGN_OR_RETURN(const plan::Plan plan, planner::MakePlanFor(loaded.recipe, host));
  const absl::Duration planning_time = absl::Now() - begin;
  const model::Architecture& spec = loaded.recipe.model.spec;
  if (!options.write.empty()) {
    TRAINCTL_RETURN_IF_ERROR(
        WriteOutputFile(options.write, planner::FixedRecipe(loaded, plan), options.output_rules));
  }
  if (!options.trace.empty()) {
    TRAINCTL_RETURN_IF_ERROR(WriteOutputFile(
        options.trace, report::TraceOfPlan(plan, spec, loaded.recipe.run.name), options.output_rules));
  }
  if (!options.html.empty()) {
    TRAINCTL_RETURN_IF_ERROR(WriteOutputFile(
        options.html, report::PlanPage(report::PageOfPlan(plan, loaded.recipe)), options.output_rules));
  }
  const absl::Time search_begin = absl::Now();
  const std::vector<planner::Change> changes = planner::FindChangesFor(loaded.recipe, host, plan);
  const absl::Duration changes_time = absl::Now() - search_begin;
  if (output.json) {
    Json json = PlanWithEstimates(plan, loaded.recipe);
    json["changes"] = Json::array();
    for (const planner::Change& change : changes) {
      json["changes"].push_back({{"setting", change.setting},
                                 {"speed", plan::HasTimes(plan) ? Json(change.speed) : Json()},
                                 {"peak_bytes", change.peak_bytes}});
    }
    for (const std::string& note : loaded.notes) json["notes"].push_back(note);
    json["data"] = data::UsesToJson(data::FindUsesQuickly(loaded.recipe), loaded.recipe.train.steps);
    json["missing"] = loaded.missing;
    if (options.explain) {
      json["explanation"] = ExplanationToJson(report::ExplainPlan(plan, spec));
      json["explanation"]["planning_seconds"] = absl::ToDoubleSeconds(planning_time);
    }
    std::puts(PrintableJson(json, 2).c_str());
    return ExitCode::kOk;
  }
  Print(plan, loaded, changes, {.all = options.all, .color = output.stdout_color});
  for (const std::string* path : {&options.write, &options.trace, &options.html}) {
    if (!path->empty()) std::printf("  wrote %s\n", launcher::PrintableText(*path).c_str());
  }
  if (options.draw) {
    std::printf(
        "\n%s",
        report::DrawPlan(plan, spec, {.width = TerminalWidth(), .color = output.stdout_color}).c_str());
  }
  if (options.explain) {
    PrintExplanation(plan, report::ExplainPlan(plan, spec), output.stdout_color);
    PrintSearch(plan.search, planning_time, changes_time, output.stdout_color);
  }
  if (options.explain || loaded.recipe.launch.backend != "local") {
    PrintTitle("Timeouts", output.stdout_color);
    PrintTimeouts(loaded.recipe, output.stdout_color);
  }
  return ExitCode::kOk;
}

}  // namespace trainctl::cli
