#include "apps/trainctl/plan_what_if.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "apps/trainctl/plan_explain.h"
#include "apps/trainctl/plan_outputs.h"
#include "apps/trainctl/profile_option.h"
#include "apps/trainctl/text_table.h"
#include "base/json.h"
#include "base/output_file.h"
#include "base/units.h"
#include "frameworks/cluster_explain.h"
#include "frameworks/cluster_plan_json.h"
#include "launcher/printable_text.h"
#include "report/page.h"

namespace trainctl::cli {
namespace {

constexpr int kMostShown = 1000;

using frameworks::Choice;
using frameworks::ClusterPlan;

std::string GiB(double bytes) { return absl::StrFormat("%.1f", bytes / (1 << 30)); }

std::string Seconds(double seconds) {
  if (seconds < 0.01) return absl::StrFormat("%.3f ms", seconds * 1e3);
  return seconds < 10 ? absl::StrFormat("%.3f s", seconds) : absl::StrFormat("%.2f s", seconds);
}

std::string Span(double seconds) {
  if (seconds < 120) return Seconds(seconds);
  if (seconds < 7200) return absl::StrFormat("%.1f min", seconds / 60);
  if (seconds < 172800) return absl::StrFormat("%.1f h", seconds / 3600);
  return absl::StrFormat("%.1f days", seconds / 86400);
}

std::string Cost(const ClusterPlan& plan, const Choice& choice) {
  const frameworks::Figures figures = frameworks::FiguresOf(plan, choice);
  return plan.goal.price_per_gpu_hour > 0 ? absl::StrFormat("$%.0f", figures.dollars_per_billion_tokens)
                                          : absl::StrFormat("%.0f", figures.gpu_hours_per_billion_tokens);
}

const char* CostHeader(const ClusterPlan& plan) {
  return plan.goal.price_per_gpu_hour > 0 ? "per 1B tokens" : "GPU-h/1B tokens";
}

// Columns that say the same for every row are left to the text.
struct Shown {
  bool cp = false, ep = false, gpus = false, precision = false, offload = false;
};

Shown WhatDiffers(const ClusterPlan& plan, const std::vector<const Choice*>& choices) {
  Shown shown;
  for (const Choice* choice : choices) {
    const frameworks::Workload& w = choice->workload;
    shown.cp |= w.mesh.cp > 1;
    shown.ep |= FindExperts(w.model) != nullptr;
    shown.gpus |= choice->num_gpus() != plan.machine->num_gpus();
    shown.precision |= w.precision != plan.chosen.workload.precision;
    shown.offload |= w.optimizer_on_host || w.activations_on_host;
  }
  return shown;
}

std::vector<std::string> Row(const ClusterPlan& plan, const Choice& choice, const Shown& shown,
                             const char* mark) {
  const frameworks::Workload& w = choice.workload;
  const frameworks::Figures figures = frameworks::FiguresOf(plan, choice);
  std::vector<std::string> row = {mark};
  if (shown.gpus) row.push_back(absl::StrCat(choice.num_gpus()));
  row.push_back(absl::StrCat(w.mesh.tp));
  row.push_back(absl::StrCat(w.mesh.pp, w.virtual_stages > 1 ? absl::StrCat("x", w.virtual_stages) : ""));
  if (shown.cp) row.push_back(absl::StrCat(w.mesh.cp));
  if (shown.ep) row.push_back(absl::StrCat(w.mesh.ep, w.mesh.etp > 1 ? absl::StrCat("x", w.mesh.etp) : ""));
  row.push_back(absl::StrCat(w.mesh.data_degree()));
  row.push_back(w.zero_stage == 0 ? "DDP"
                                  : absl::StrCat("ZeRO-", w.zero_stage, "/", w.mesh.dp_shard * w.mesh.cp));
  row.push_back(absl::StrCat(w.micro_batch));
  row.push_back(w.mesh.pp > 1 ? std::string(schedule::PipelineKindName(w.Pipeline())) : "-");
  row.push_back(std::string(frameworks::RecomputeName(w.recompute)));
  if (shown.precision) row.push_back(std::string(frameworks::PrecisionName(w.precision)));
  if (shown.offload) {
    row.push_back(absl::StrCat(w.optimizer_on_host ? "optimizer" : "",
                               w.optimizer_on_host && w.activations_on_host ? "+" : "",
                               w.activations_on_host ? "activations" : ""));
  }
  row.push_back(
      absl::StrCat(GiB(choice.memory.Of(w.framework->metric)), " < ", GiB(choice.memory.upper_bytes)));
  row.push_back(Seconds(choice.time.step_seconds));
  row.push_back(absl::StrFormat("%.0f", figures.tokens_per_second_per_gpu));
  row.push_back(absl::StrFormat("%.1f%%", figures.mfu * 100));
  row.push_back(w.mesh.pp > 1 ? absl::StrFormat("%.1f%%", figures.bubble_share * 100) : "-");
  row.push_back(Cost(plan, choice));
  return row;
}

void PrintChoices(const ClusterPlan& plan, const std::vector<const Choice*>& choices, bool color) {
  const Shown shown = WhatDiffers(plan, choices);
  std::vector<std::string> header = {""};
  if (shown.gpus) header.emplace_back("GPUs");
  header.insert(header.end(), {"tp", "pp"});
  if (shown.cp) header.emplace_back("cp");
  if (shown.ep) header.emplace_back("ep");
  header.insert(header.end(), {"dp", "sharding", "micro", "schedule", "recompute"});
  if (shown.precision) header.emplace_back("precision");
  if (shown.offload) header.emplace_back("offload");
  header.insert(header.end(), {"GiB < bound", "step", "tok/s/GPU", "MFU", "bubble", CostHeader(plan)});
  TextTable table(header, {0});
  for (const Choice* choice : choices) {
    const bool chosen = choice == choices[0];
    table.Add(Row(plan, *choice, shown, chosen ? "*" : ""), chosen);
  }
  table.Print(color);
}

void PrintHead(const ClusterPlan& plan) {
  const frameworks::Workload& base = plan.space.base;
  const int64_t total = model::NumParameters(base.model);
  const int64_t active = model::NumActiveParameters(base.model);
  std::printf("Estimate of the run in %s; `trainctl launch` would run it differently.\n\n",
              base.framework->label);
  std::printf("%s: %s, %s parameters%s, on %d x %s (%d x %s), as %s\n", plan.run_name.c_str(),
              plan.model.name.c_str(), FormatCount(total).c_str(),
              active == total ? "" : absl::StrCat(" (", FormatCount(active), " active)").c_str(),
              static_cast<int>(plan.machine->num_gpus()), base.device->name,
              static_cast<int>(plan.machine->num_nodes), base.node->name.c_str(), base.framework->name);
  std::printf("%s of %s tokens per step, %s; %s GiB of memory each\n\n",
              absl::StrCat(base.global_batch, base.global_batch == 1 ? " sequence" : " sequences").c_str(),
              absl::StrCat(base.seq_len).c_str(),
              std::string(frameworks::PrecisionName(plan.chosen.workload.precision)).c_str(),
              GiB(plan.memory_limit_bytes).c_str());
}

void PrintFoot(const ClusterPlan& plan, const std::vector<std::string>& recipe_notes) {
  const frameworks::Figures figures = frameworks::FiguresOf(plan, plan.chosen);
  std::printf("\nChosen: %s\n", frameworks::DescribeLayout(plan.chosen.workload).c_str());
  std::printf("  GiB: %s memory of one device as reported by %s, and the upper bound used for planning\n",
              plan.chosen.workload.framework->metric == frameworks::MemoryMetric::kAllocated  ? "allocated"
              : plan.chosen.workload.framework->metric == frameworks::MemoryMetric::kReserved ? "reserved"
                                                                                              : "all",
              plan.chosen.workload.framework->name);
  if (plan.run_tokens > 0) {
    std::printf("  a run of %s tokens takes %s%s\n", FormatCount(plan.run_tokens).c_str(),
                Span(figures.run_seconds).c_str(),
                plan.goal.price_per_gpu_hour > 0
                    ? absl::StrFormat(" and costs $%.0f", figures.run_dollars).c_str()
                    : "");
  }
  if (plan.goal.failures.has_value()) {
    std::printf("  failures: %.1f%% of the time is spent training, with a save every %s\n",
                figures.effective_share * 100, Span(figures.save_every_seconds).c_str());
  }
  std::printf("  %s layouts: %s bounded, %s estimated, in %.2f s\n",
              FormatCount(plan.counts.enumerated).c_str(), FormatCount(plan.counts.bounded).c_str(),
              FormatCount(plan.counts.simulated).c_str(), plan.counts.seconds);
  for (const std::string& note : plan.notes) std::printf("  %s\n", note.c_str());
  for (const std::string& note : recipe_notes) std::printf("  %s\n", note.c_str());
}

}  // namespace

absl::StatusOr<frameworks::ClusterPlanOptions> SearchOptionsOf(const PlanOptions& options, int keep) {
  frameworks::ClusterPlanOptions search;
  search.keep = keep;
  if (!options.profile.empty()) {
    TRAINCTL_ASSIGN_OR_RETURN(search.profile, ReadProfile(options.profile));
  }
  return search;
}

absl::StatusOr<ExitCode> PlanWhatIf(const recipe::LoadedRecipe& loaded, const PlanOptions& options,
                                    const Output& output) {
  TRAINCTL_ASSIGN_OR_RETURN(frameworks::ClusterPlanOptions plan_options,
                            SearchOptionsOf(options, options.all ? kMostShown : options.top));
  plan_options.pareto = options.pareto || !options.html.empty();
  TRAINCTL_ASSIGN_OR_RETURN(const ClusterPlan plan, frameworks::MakeClusterPlan(loaded, plan_options));
  if (!options.write.empty()) {
    TRAINCTL_RETURN_IF_ERROR(WriteOutputFile(
        options.write, frameworks::FixedRecipe(loaded, plan, plan.chosen), options.output_rules));
  }
  if (!options.trace.empty()) {
    TRAINCTL_RETURN_IF_ERROR(
        WriteOutputFile(options.trace, TraceOf(plan.chosen.workload, plan.run_name), options.output_rules));
  }
  if (!options.html.empty()) {
    TRAINCTL_RETURN_IF_ERROR(
        WriteOutputFile(options.html, report::PlanPage(frameworks::PageOfPlan(plan)), options.output_rules));
  }
  if (output.json) {
    Json json = frameworks::PlanToJsonObject(plan);
    if (options.explain) json["explanation"] = ExplanationToJson(frameworks::Explain(plan));
    for (const std::string& note : loaded.notes) json["notes"].push_back(note);
    std::puts(PrintableJson(json, 2).c_str());
    return ExitCode::kOk;
  }
  PrintHead(plan);
  std::vector<const Choice*> choices = {&plan.chosen};
  for (const Choice& choice : plan.alternatives) choices.push_back(&choice);
  PrintChoices(plan, choices, output.stdout_color);
  if (options.pareto && !plan.pareto.empty()) {
    std::printf("\nLess memory for more time:\n\n");
    choices.clear();
    for (const Choice& choice : plan.pareto) choices.push_back(&choice);
    PrintChoices(plan, choices, output.stdout_color);
  }
  PrintFoot(plan, loaded.notes);
  for (const std::string* path : {&options.write, &options.trace, &options.html}) {
    if (!path->empty()) std::printf("  wrote %s\n", launcher::PrintableText(*path).c_str());
  }
  if (options.draw) {
    std::printf("\n");
    PrintDrawing(plan.chosen.workload, output.stdout_color);
  }
  if (options.explain) PrintExplanation(plan, frameworks::Explain(plan), output.stdout_color);
  return ExitCode::kOk;
}

}  // namespace trainctl::cli
