#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "apps/trainctl/command.h"
#include "apps/trainctl/option_checks.h"
#include "apps/trainctl/output_options.h"
#include "base/json.h"
#include "base/output_file.h"
#include "plan/plan.h"
#include "recipe/recipe_json.h"
#include "run/run_folder.h"
#include "telemetry/step_trace.h"

namespace trainctl::cli {
namespace {

struct TraceOptions {
  std::string run;
  std::string out;
  int64_t step = -1;
  OutputRules output_rules;
};

struct Prediction {
  std::vector<telemetry::PredictedRanks> ranks;
  double seconds = 0;
  bool measured = false;  // from rates that were measured on this machine
};

// The step that the run's workers execute, at the rates that its plan was made with.
absl::StatusOr<Prediction> PredictStep(const run::RunFolder& run) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string plan_text, ReadFile(run.plan_path()));
  TRAINCTL_ASSIGN_OR_RETURN(const plan::Plan plan, plan::PlanFromJson(plan_text, run.plan_path()));
  TRAINCTL_ASSIGN_OR_RETURN(const std::string recipe_text, ReadFile(run.recipe_path()));
  TRAINCTL_ASSIGN_OR_RETURN(const recipe::Recipe recipe,
                            recipe::RecipeFromJson(recipe_text, run.recipe_path()));
  const plan::PlannedStep planned = plan::BuildStep(plan, recipe.model.spec);
  const simulate::Played played =
      simulate::PlayAtRates(planned.step, planned.ledger, planned.options, plan.rates);
  Prediction prediction;
  prediction.measured = plan.rates.measured;
  prediction.seconds = played.end_s;
  for (size_t c = 0; c < played.classes.size(); ++c) {
    const schedule::Program& program = planned.step.programs[c];
    telemetry::PredictedRanks& ranks = prediction.ranks.emplace_back();
    ranks.ranks = played.classes.size() == 1 ? "each rank" : absl::StrCat("pp ", c);
    for (const schedule::Stream& stream : program.streams) ranks.streams.push_back(stream.name);
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const schedule::Instruction& instruction = program.instructions[i];
      const simulate::InstructionTime& time = played.classes[c].times[i];
      ranks.spans.push_back(
          {schedule::Describe(instruction), instruction.stream, time.begin_s, time.end_s()});
    }
  }
  return prediction;
}

Json TraceReport(const run::RunFolder& run, const TraceOptions& options, const telemetry::MergedTrace& trace,
                 const Prediction& prediction) {
  Json steps = Json::array();
  for (const telemetry::MergedStep& step : trace.steps) {
    Json clocks = Json::array();
    for (const telemetry::ClockOffset& clock : step.clocks) {
      clocks.push_back({{"rank", clock.rank},
                        {"offset_us", clock.offset_us},
                        {"basis", clock.same_clock ? "same clock" : "wall clocks"}});
    }
    steps.push_back({{"step", step.step},
                     {"ranks", step.num_ranks},
                     {"seconds", step.seconds},
                     {"clocks", std::move(clocks)}});
  }
  return {{"schema", "trainctl.trace-merged.v1"},
          {"run", run.path()},
          {"file", options.out},
          {"steps", std::move(steps)},
          {"predicted_seconds", prediction.seconds},
          {"predicted_from_measured_rates", prediction.measured},
          {"notes", trace.notes}};
}

void Print(const TraceOptions& options, const telemetry::MergedTrace& trace, const Prediction& prediction) {
  std::string out = absl::StrCat("Wrote ", options.out, "; open it in ui.perfetto.dev or chrome://tracing\n");
  for (const telemetry::MergedStep& step : trace.steps) {
    absl::StrAppendFormat(&out, "step %d: %.3f ms on %d rank(s), predicted %.3f ms%s\n", step.step,
                          step.seconds * 1e3, step.num_ranks, prediction.seconds * 1e3,
                          prediction.measured ? "" : " (with unmeasured rates; run trainctl calibrate)");
    for (const telemetry::ClockOffset& clock : step.clocks) {
      if (clock.same_clock) continue;
      absl::StrAppendFormat(&out,
                            "  rank %d is aligned using the wall clocks of two machines (offset %.0f us)\n",
                            clock.rank, clock.offset_us);
    }
  }
  std::fputs(out.c_str(), stdout);
}

absl::StatusOr<ExitCode> Trace(const TraceOptions& options, const Output& output) {
  TRAINCTL_ASSIGN_OR_RETURN(const run::RunFolder run, run::RunFolder::Open(options.run));
  if (run.IsOwnFile(options.out)) {
    return UsageError(
        absl::StrCat("--out ", options.out, " is one of the run's own files; choose another file"));
  }
  OutputRules rules = options.output_rules;
  rules.inputs = {run.plan_path(), run.recipe_path()};
  if (options.out != "-") {
    TRAINCTL_RETURN_IF_ERROR(FindOutput(options.out, rules).status());
  } else if (output.json) {
    return UsageError("--out - and --json would both write to stdout; use --out FILE");
  }
  TRAINCTL_ASSIGN_OR_RETURN(const Prediction prediction, PredictStep(run));
  TRAINCTL_ASSIGN_OR_RETURN(
      const telemetry::MergedTrace trace,
      telemetry::MergeTraces(run.traces_path(), options.step, prediction.ranks, run.path()));
  for (const std::string& note : trace.notes) std::fprintf(stderr, "note: %s\n", note.c_str());
  if (options.out == "-") {
    std::fputs(trace.json.c_str(), stdout);
    return ExitCode::kOk;
  }
  TRAINCTL_RETURN_IF_ERROR(WriteOutputFile(options.out, trace.json, rules));
  if (output.json) {
    std::puts(PrintableJson(TraceReport(run, options, trace, prediction)).c_str());
  } else {
    Print(options, trace, prediction);
  }
  return ExitCode::kOk;
}

}  // namespace

void AddTrace(CLI::App& app, Action& action) {
  CLI::App* verb =
      app.add_subcommand("trace", "Merge the traces of a run's ranks with the prediction, for Perfetto");
  auto options = std::make_shared<TraceOptions>();
  verb->add_option("RUN", options->run, "Run folder (default: runs/latest)");
  verb->add_option("--out", options->out, "File to write (- for stdout)")->required()->type_name("FILE");
  AddForceFlag(*verb, options->output_rules.overwrite);
  verb->add_option("--step", options->step, "Include only this step (default: all traced steps)")
      ->check(WholeNumber(0))
      ->type_name("N");
  AddJsonFlag(*verb);
  SetExample(*verb, "trainctl trace runs/latest --out trace.json");
  verb->callback(
      [&action, options] { action = [options](const Output& output) { return Trace(*options, output); }; });
}

}  // namespace trainctl::cli
