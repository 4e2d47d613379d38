#include "apps/trainctl/plan_ours.h"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "apps/trainctl/host_of_run.h"
#include "apps/trainctl/plan_outputs.h"
#include "apps/trainctl/text_table.h"
#include "apps/trainctl/timeout_table.h"
#include "base/json.h"
#include "base/output_file.h"
#include "base/units.h"
#include "cluster/host.h"
#include "launcher/printable_text.h"
#include "plan/precision_text.h"
#include "planner/make_plan.h"
#include "report/draw_plan.h"
#include "report/explain_plan.h"
#include "report/page.h"
#include "report/plan_page.h"

namespace trainctl::cli {
namespace {

constexpr size_t kFewRows = 12;

bool IsBetter(const plan::Candidate* a, const plan::Candidate* b) {
  if (a->chosen != b->chosen) return a->chosen;
  if (a->fits != b->fits) return a->fits;
  return a->fits ? a->step_seconds < b->step_seconds : a->memory.peak_bytes < b->memory.peak_bytes;
}

// One row for each strategy: the variant that stands for it.
std::vector<const plan::Candidate*> RowsOf(const plan::Plan& plan) {
  std::vector<const plan::Candidate*> rows;
  for (const plan::Candidate& candidate : plan.candidates) {
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const plan::Candidate* other) {
      return other->layout.mesh == candidate.layout.mesh &&
             other->layout.zero_stage == candidate.layout.zero_stage;
    });
    if (row == rows.end()) {
      rows.push_back(&candidate);
    } else if (IsBetter(&candidate, *row)) {
      *row = &candidate;
    }
  }
  return rows;
}

std::string MiB(int64_t bytes) { return absl::StrFormat("%.1f", static_cast<double>(bytes) / (1 << 20)); }

// "full", "full 3,1": layers of each stage; of many stages "full of 40".
std::string WhatAgain(const layout::Layout& layout) {
  constexpr size_t kMostShown = 4;
  const std::vector<int64_t>& layers = layout.recomputed_layers;
  const absl::string_view name = layout::RecomputeName(layout.recompute);
  if (layers.empty()) return std::string(name);
  if (layers.size() <= kMostShown) return absl::StrCat(name, " ", absl::StrJoin(layers, ","));
  return absl::StrCat(name, " of ", std::accumulate(layers.begin(), layers.end(), int64_t{0}));
}

// "1f1b", "interleaved-1f1b x4": stages of each rank.
std::string OrderOf(const layout::Pipeline& pipeline) {
  return pipeline.virtual_stages == 1 ? pipeline.order
                                      : absl::StrCat(pipeline.order, " x", pipeline.virtual_stages);
}

// `cuts`: some layout cuts the model.
std::vector<std::string> Cells(const plan::Candidate& candidate, bool cuts) {
  const layout::Layout& layout = candidate.layout;
  std::vector<std::string> cells = {candidate.chosen ? "*" : "",
                                    std::string(layout::StrategyName(layout.zero_stage))};
  if (cuts) {
    cells.insert(cells.end(),
                 {OrderOf(layout.pipeline), absl::StrCat(layout.mesh.pp), absl::StrCat(layout.mesh.tp)});
  }
  for (const int64_t count :
       {int64_t{layout.mesh.dp_replicate}, int64_t{layout.mesh.dp_shard}, layout.micro_batch})
    cells.push_back(absl::StrCat(count));
  cells.push_back(WhatAgain(layout));
  for (int64_t bytes : candidate.memory.at_peak) cells.push_back(MiB(bytes));
  cells.push_back(MiB(candidate.memory.peak_bytes));
  cells.push_back(candidate.reason);
  return cells;
}

// More rows than this say less: the best of them stay, in the order of strategies.
std::vector<const plan::Candidate*> Shown(const plan::Plan& plan, size_t most) {
  std::vector<const plan::Candidate*> rows = RowsOf(plan);
  if (rows.size() <= most) return rows;
  std::vector<const plan::Candidate*> best = rows;
  std::stable_sort(best.begin(), best.end(), IsBetter);
  best.resize(most);
  rows.erase(std::remove_if(rows.begin(), rows.end(),
                            [&](const plan::Candidate* row) {
                              return std::find(best.begin(), best.end(), row) == best.end();
                            }),
             rows.end());
  return rows;
}

void PrintTable(const plan::Plan& plan, size_t most, bool color) {
  const std::vector<const plan::Candidate*> rows = Shown(plan, most);
  const bool cuts = std::any_of(rows.begin(), rows.end(), [](const plan::Candidate* row) {
    return row->layout.mesh.pp * row->layout.mesh.tp > 1;
  });
  std::vector<std::string> head = {"", "strategy"};
  if (cuts) head.insert(head.end(), {"schedule", "pp", "tp"});
  head.insert(head.end(), {"replicate", "shard", "micro", "recompute", "parameters", "gradients", "optimizer",
                           "activations", "buffers", "total", ""});
  const auto is_name = [&](size_t column) {
    return head[column].empty() || head[column] == "strategy" || head[column] == "schedule" ||
           head[column] == "recompute";
  };
  std::vector<std::vector<std::string>> table = {head};
  std::vector<bool> chosen = {false};
  for (const plan::Candidate* row : rows) {
    table.push_back(Cells(*row, cuts));
    chosen.push_back(row->chosen);
  }
  std::vector<size_t> widths(table[0].size(), 0);
  for (const auto& row : table) {
    for (size_t i = 0; i + 1 < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (size_t r = 0; r < table.size(); ++r) {
    std::string line;
    for (size_t i = 0; i < table[r].size(); ++i) {
      const std::string pad(widths[i] - std::min(widths[i], table[r][i].size()), ' ');
      const bool left = is_name(i);
      absl::StrAppend(&line, i == 0 ? "" : "  ", left ? table[r][i] : pad, left ? pad : table[r][i]);
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    const char* const begin = !color ? "" : chosen[r] ? "\x1b[1;32m" : r == 0 ? "\x1b[1m" : "";
    std::printf("%s%s%s\n", begin, line.c_str(), *begin == '\0' ? "" : "\x1b[0m");
  }
}

void Print(const plan::Plan& plan, const recipe::LoadedRecipe& loaded, size_t most, bool color) {
  const recipe::Recipe& recipe = loaded.recipe;
  std::printf("%s: %s parameters, %s, %d worker%s, %d sequences of %d tokens a step\n",
              recipe.run.name.c_str(), FormatCount(plan.num_parameters).c_str(),
              plan::PrecisionText(plan.setting.types), static_cast<int>(plan.layout.mesh.world_size()),
              plan.layout.mesh.world_size() == 1 ? "" : "s", static_cast<int>(recipe.train.batch_sequences),
              static_cast<int>(plan.setting.seq_len));
  std::printf("Tensor memory of one worker at its peak, in MiB (limit %s):\n\n",
              MiB(plan.memory_limit_bytes).c_str());
  PrintTable(plan, most, color);
  const size_t hidden = RowsOf(plan).size() - std::min(RowsOf(plan).size(), most);
  if (hidden > 0) std::printf("   and %d more; --top N shows N\n", static_cast<int>(hidden));
  std::printf("\nChosen: %s, accumulation %d; peak %s in %s\n", plan.layout.ToString().c_str(),
              static_cast<int>(plan.layout.num_micro_batches), FormatBytes(plan.predicted.peak_bytes).c_str(),
              plan.predicted.peak_where.c_str());
  for (const std::vector<std::string>* notes : {&plan.notes, &loaded.notes}) {
    for (const std::string& note : *notes) std::printf("  %s\n", note.c_str());
  }
  for (const std::string& lacks : loaded.missing) std::printf("  missing for a launch: %s\n", lacks.c_str());
  if (recipe.launch.backend == "local") std::printf("  %s\n", SumUpTimeouts(recipe.launch).c_str());
  std::printf("  step %s\n", plan.step_hash.c_str());
}

void Title(const char* text, bool color) {
  std::printf("\n%s%s%s\n\n", color ? "\x1b[1m" : "", text, color ? "\x1b[0m" : "");
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
  return axis.stride >= plan.devices_per_node ? "each on another machine" : "over several machines";
}

void PrintExplanation(const plan::Plan& plan, const report::PlanExplanation& explanation, bool color) {
  Title("Memory of one worker at the peak", color);
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
    Title("What a worker sends in a step, axis by axis", color);
    TextTable axes({"axis", "ranks", "those of rank 0", "where", "MiB"}, {0, 2, 3});
    for (const simulate::AxisVolume& axis : explanation.axes) {
      axes.Add({std::string(layout::AxisName(axis.axis)), absl::StrCat(axis.ranks), RanksOf(axis),
                PlaceOf(axis, plan), MiB(axis.sent_bytes)});
    }
    axes.Print(color);
  }
  Title("Time of a step, part by part", color);
  TextTable time({"part", "ms"}, {0});
  for (const report::TimeTerm& term : explanation.time)
    time.Add({term.name, absl::StrFormat("%.3f", term.seconds * 1e3)});
  if (explanation.overlapped_seconds > 0) {
    time.Add({"overlapped", absl::StrFormat("-%.3f", explanation.overlapped_seconds * 1e3)});
  }
  time.Add({"step", absl::StrFormat("%.3f", explanation.step_seconds * 1e3)}, true);
  time.Print(color);
  Title("What binds", color);
  for (const std::string& text : explanation.bindings) std::printf("  %s\n", text.c_str());
  Title("How far to trust it", color);
  for (const std::string& text : explanation.trust) std::printf("  %s\n", text.c_str());
  Title("Rates", color);
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
  return UsageError(absl::StrCat(option,
                                 " is for what-ifs of other trainers; add --as FRAMEWORK, such as --as "
                                 "megatron-core"));
}

}  // namespace

absl::StatusOr<ExitCode> PlanOurs(const recipe::LoadedRecipe& loaded, const PlanOptions& options,
                                  const Output& output) {
  TRAINCTL_RETURN_IF_ERROR(RefuseWhatIfOptions(options));
  TRAINCTL_ASSIGN_OR_RETURN(const cluster::Host host, HostOfRun(loaded.recipe));
  if (loaded.recipe.cluster.device == recipe::kCudaDevice) {
    TRAINCTL_RETURN_IF_ERROR(CheckEnoughAreVisible(loaded.recipe, host));
  }
  TRAINCTL_ASSIGN_OR_RETURN(const plan::Plan plan, planner::MakePlanFor(loaded.recipe, host));
  const model::ModelSpec& spec = loaded.recipe.model.spec;
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
  if (output.json) {
    Json json = plan::PlanToJsonObject(plan);
    for (const std::string& note : loaded.notes) json["notes"].push_back(note);
    json["missing"] = loaded.missing;
    if (options.explain) json["explanation"] = ExplanationToJson(report::ExplainPlan(plan, spec));
    std::puts(PrintableJson(json, 2).c_str());
    return ExitCode::kOk;
  }
  Print(plan, loaded, std::max<size_t>(kFewRows, static_cast<size_t>(options.top)), output.stdout_color);
  for (const std::string* path : {&options.write, &options.trace, &options.html}) {
    if (!path->empty()) std::printf("  written to %s\n", launcher::PrintableText(*path).c_str());
  }
  if (options.draw) {
    std::printf(
        "\n%s",
        report::DrawPlan(plan, spec, {.width = TerminalWidth(), .color = output.stdout_color}).c_str());
  }
  if (options.explain) PrintExplanation(plan, report::ExplainPlan(plan, spec), output.stdout_color);
  if (options.explain || loaded.recipe.launch.backend != "local") {
    Title("What is waited for", output.stdout_color);
    PrintTimeouts(loaded.recipe, output.stdout_color);
  }
  return ExitCode::kOk;
}

}  // namespace trainctl::cli
