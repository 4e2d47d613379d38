// `trainctl plan`: the layouts side by side, the chosen one, and why each other was turned down.

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "apps/trainctl/command.h"
#include "apps/trainctl/host_of_run.h"
#include "apps/trainctl/machine_access.h"
#include "apps/trainctl/plan_cluster.h"
#include "base/files.h"
#include "base/units.h"
#include "cluster/host.h"
#include "planner/plan.h"
#include "recipe/load.h"

namespace trainctl::cli {
namespace {

// One row for each strategy: the variant that stands for it.
std::vector<const planner::Candidate*> RowsOf(const planner::Plan& plan) {
  const auto better = [](const planner::Candidate& a, const planner::Candidate& b) {
    if (a.chosen != b.chosen) return a.chosen;
    if (a.fits != b.fits) return a.fits;
    return a.fits ? a.step_seconds < b.step_seconds : a.memory.peak_bytes < b.memory.peak_bytes;
  };
  std::vector<const planner::Candidate*> rows;
  for (const planner::Candidate& candidate : plan.candidates) {
    const bool same_strategy = !rows.empty() && rows.back()->layout.mesh == candidate.layout.mesh &&
                               rows.back()->layout.zero_stage == candidate.layout.zero_stage;
    if (!same_strategy) {
      rows.push_back(&candidate);
    } else if (better(candidate, *rows.back())) {
      rows.back() = &candidate;
    }
  }
  return rows;
}

std::string MiB(int64_t bytes) { return absl::StrFormat("%.1f", static_cast<double>(bytes) / (1 << 20)); }

std::vector<std::string> Cells(const planner::Candidate& candidate) {
  const planner::Layout& layout = candidate.layout;
  std::vector<std::string> cells = {candidate.chosen ? "*" : "",
                                    std::string(planner::StrategyName(layout.zero_stage)),
                                    absl::StrCat(layout.mesh.dp_replicate),
                                    absl::StrCat(layout.mesh.dp_shard),
                                    absl::StrCat(layout.micro_batch),
                                    std::string(planner::RecomputeName(layout.recompute))};
  for (int64_t bytes : candidate.memory.at_peak) cells.push_back(MiB(bytes));
  cells.push_back(MiB(candidate.memory.peak_bytes));
  cells.push_back(candidate.reason);
  return cells;
}

void PrintTable(const planner::Plan& plan, bool color) {
  std::vector<std::vector<std::string>> table = {{"", "strategy", "replicate", "shard", "micro", "recompute",
                                                  "parameters", "gradients", "optimizer", "activations",
                                                  "buffers", "total", ""}};
  std::vector<bool> chosen = {false};
  for (const planner::Candidate* row : RowsOf(plan)) {
    table.push_back(Cells(*row));
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
      const bool left = i < 2 || i == 5 || i + 1 == table[r].size();
      absl::StrAppend(&line, i == 0 ? "" : "  ", left ? table[r][i] : pad, left ? pad : table[r][i]);
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    const char* const begin = !color ? "" : chosen[r] ? "\x1b[1;32m" : r == 0 ? "\x1b[1m" : "";
    std::printf("%s%s%s\n", begin, line.c_str(), *begin == '\0' ? "" : "\x1b[0m");
  }
}

void Print(const planner::Plan& plan, const recipe::Recipe& recipe, const std::vector<std::string>& notes,
           bool color) {
  std::printf("%s: %s parameters, %s, %d worker%s, %d sequences of %d tokens a step\n",
              recipe.run.name.c_str(), FormatCount(plan.num_parameters).c_str(),
              plan.compute_dtype == DType::kBF16 ? "bf16" : "fp32", plan.layout.mesh.world_size(),
              plan.layout.mesh.world_size() == 1 ? "" : "s", static_cast<int>(recipe.train.batch_sequences),
              static_cast<int>(plan.seq_len));
  std::printf("Tensor memory of one worker at its peak, in MiB (limit %s):\n\n",
              MiB(plan.memory_limit_bytes).c_str());
  PrintTable(plan, color);
  std::printf("\nChosen: %s, accumulation %d; peak %s in %s\n", plan.layout.ToString().c_str(),
              static_cast<int>(plan.layout.num_micro_batches), FormatBytes(plan.predicted.peak_bytes).c_str(),
              plan.predicted.peak_where.c_str());
  for (const std::string& note : plan.notes) std::printf("  %s\n", note.c_str());
  for (const std::string& note : notes) std::printf("  %s\n", note.c_str());
}

absl::StatusOr<ExitCode> RunPlan(const PlanOptions& options, const Output& output) {
  if (!options.sweeps.empty()) return SweepPlans(options, output);
  std::vector<std::string> missing;
  // A recipe that is written has the files' places in it, so they are looked up.
  const recipe::Access access = options.write.empty() ? PlanAccess(&missing) : MachineAccess();
  TRAINCTL_ASSIGN_OR_RETURN(recipe::LoadedRecipe loaded,
                            recipe::LoadRecipe(options.recipe, options.sets, access, recipe::Purpose::kPlan));
  loaded.notes.insert(loaded.notes.end(), missing.begin(), missing.end());
  if (loaded.purpose == recipe::Purpose::kPlan) return PlanForCluster(loaded, options, output);
  if (const std::string option = options.ClusterOnly(); !option.empty()) {
    return UsageError(absl::StrCat(option, " is for accelerators by name and cluster.device is \"",
                                   loaded.recipe.cluster.device, "\"; name one, such as ",
                                   "--set cluster.device=h100"));
  }
  TRAINCTL_ASSIGN_OR_RETURN(const cluster::Host host, HostOfRun(loaded.recipe));
  TRAINCTL_ASSIGN_OR_RETURN(const planner::Plan plan, planner::MakePlanFor(loaded.recipe, host));
  if (!options.write.empty()) {
    TRAINCTL_RETURN_IF_ERROR(WriteFileAtomic(options.write, planner::FixedRecipe(loaded, plan)));
  }
  if (output.json) {
    std::fputs(planner::PlanToJson(plan).c_str(), stdout);
    return ExitCode::kOk;
  }
  Print(plan, loaded.recipe, loaded.notes, output.stdout_color);
  if (!options.write.empty()) std::printf("  written to %s\n", options.write.c_str());
  return ExitCode::kOk;
}

}  // namespace

void AddPlan(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("plan", "Weigh the layouts of a recipe and say which one fits best");
  auto options = std::make_shared<PlanOptions>();
  verb->add_option("RECIPE", options->recipe, "The recipe (TOML)")->required();
  verb->add_option("--set", options->sets, "Override a field: KEY=VALUE (repeatable)")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  // These are fields of the recipe as well; an option says it in one word.
  const auto stands_for = [&](const char* option, const char* field, const char* type, const char* help) {
    verb->add_option_function<std::string>(
            option,
            [options, field](const std::string& value) {
              options->sets.push_back(absl::StrCat(field, "=", value));
            },
            help)
        ->type_name(type);
  };
  stands_for("--objective", "plan.objective", "OBJECTIVE", "step_time, cost, headroom or fewest_gpus");
  stands_for("--price", "plan.price_per_gpu_hour", "DOLLARS", "Price of one GPU for one hour");
  stands_for("--as", "plan.framework", "FRAMEWORK", "Price it as another trainer would run it");
  verb->add_option("--top", options->top, "Layouts to show")->check(CLI::Range(1, 1000))->type_name("N");
  verb->add_option("--sweep", options->sweeps, "Plan for each of several values: KEY=V1,V2,... (repeatable)")
      ->allow_extra_args(false)
      ->type_name("KEY=V1,V2");
  verb->add_option("--profile", options->profile, "Price with the rates of `trainctl calibrate FILE.csv`")
      ->type_name("PROFILE");
  verb->add_option("--write", options->write, "Write a recipe with everything fixed as it was chosen")
      ->type_name("OUT.toml");
  verb->add_flag(
      "--explain", options->explain,
      "Every term of memory and time, what binds, why not another layout, and where constants are from");
  verb->add_flag("--draw", options->draw, "Draw the step: ranks and time");
  verb->add_option("--trace", options->trace, "Write the step as a trace for Perfetto")
      ->type_name("OUT.json");
  verb->add_option("--html", options->html, "Write one self-contained page")->type_name("OUT.html");
  verb->add_flag("--pareto", options->pareto, "Also the layouts that need less memory for more time");
  AddJsonFlag(*verb);
  SetExample(*verb, "trainctl plan recipes/quickstart.toml --set cluster.memory_limit=2GiB");
  verb->callback(
      [&action, options] { action = [options](const Output& output) { return RunPlan(*options, output); }; });
}

}  // namespace trainctl::cli
