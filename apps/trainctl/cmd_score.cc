// `trainctl score`: the planner's prices against runs that were measured.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "apps/trainctl/command.h"
#include "apps/trainctl/output_options.h"
#include "apps/trainctl/profile_option.h"
#include "base/output_file.h"
#include "published/score_report.h"
#include "published/settings.h"

namespace trainctl::cli {
namespace {

constexpr size_t kIdsShown = 12;

struct Options {
  std::string file;
  std::string out;
  std::string complete;
  std::string profile;
  bool ranking = false;
  bool leave_one_out = false;
  bool settings = false;
  OutputRules output_rules;  // of --out
};

void PrintSummary(const published::ErrorSummary& summary) {
  if (summary.count == 0) {
    std::printf("  %5s %7s %7s %7s %8s", "-", "", "", "", "");
    return;
  }
  std::printf("  %5lld %6.1f%% %+6.1f%% %6.1f%% %+7.1f%%", static_cast<long long>(summary.count),
              summary.mean_absolute, summary.median, summary.percentile_95, summary.worst);
}

void PrintSources(const std::vector<published::SourceScore>& sources) {
  std::printf("%-34s %6s %7s %8s  %37s  %37s\n", "", "", "", "", "memory: rows, mean |error|, median,",
              "step time: rows, mean |error|, median,");
  std::printf("%-34s %6s %7s %8s  %37s  %37s\n", "source", "scored", "skipped", "rejected",
              "95th percentile, worst", "95th percentile, worst");
  for (const published::SourceScore& source : sources) {
    std::printf("%-34.34s %6lld %7lld %8lld", source.source.c_str(), static_cast<long long>(source.scored),
                static_cast<long long>(source.skipped), static_cast<long long>(source.rejected));
    PrintSummary(source.memory);
    PrintSummary(source.time);
    std::printf("\n");
  }
}

std::string SomeIds(const std::vector<std::string>& ids) {
  if (ids.empty()) return "";
  const std::vector<std::string> shown(ids.begin(),
                                       ids.begin() + static_cast<ptrdiff_t>(std::min(ids.size(), kIdsShown)));
  return absl::StrCat(
      ": ", absl::StrJoin(shown, " "),
      ids.size() > shown.size() ? absl::StrCat(" and ", ids.size() - shown.size(), " more") : "");
}

void PrintErrors(const char* what, const published::ErrorSummary& errors) {
  if (errors.count == 0) {
    std::printf("  %-26s no measurements\n", what);
    return;
  }
  std::printf("  %-26s %5lld rows, mean |error| %.1f %%, median %+.1f %%, 95th percentile %.1f %%\n", what,
              static_cast<long long>(errors.count), errors.mean_absolute, errors.median,
              errors.percentile_95);
}

void PrintComplete(const published::CompleteScore& complete, bool with_sources) {
  if (complete.listed) {
    std::printf("\ncomplete rows: %lld listed", static_cast<long long>(complete.rows));
    if (complete.absent > 0)
      std::printf(", %lld more not in the file", static_cast<long long>(complete.absent));
    std::printf("; %lld skipped, each counted as 100 %% off\n",
                static_cast<long long>(complete.all().skipped));
  } else {
    std::printf("\nrows that can be estimated: %lld\n", static_cast<long long>(complete.rows));
  }
  if (with_sources) PrintSources(complete.sources);
  PrintErrors("memory", complete.all().memory);
  PrintErrors("allocated bytes only", complete.allocated);
  PrintErrors("step time", complete.all().time);
  const auto bounded = complete.covered + static_cast<int64_t>(complete.above.size());
  if (bounded > 0) {
    std::printf("  %-26s %lld of %lld rows below it, by %.1f %% on average%s\n", "upper bound of memory",
                static_cast<long long>(complete.covered), static_cast<long long>(bounded),
                complete.mean_headroom_percent, complete.above.empty() ? "" : ";");
    if (!complete.above.empty()) std::printf("  %-26s above%s\n", "", SomeIds(complete.above).c_str());
  }
  std::printf("  %-26s %lld of %lld rejected%s\n", "ran out of memory",
              static_cast<long long>(complete.all().out_of_memory - complete.all().missed),
              static_cast<long long>(complete.all().out_of_memory),
              complete.missed.empty() ? "" : absl::StrCat("; missed", SomeIds(complete.missed)).c_str());
  std::printf("  %-26s %lld of %lld wrongly rejected%s\n", "ran",
              static_cast<long long>(complete.all().wrongly_rejected),
              static_cast<long long>(complete.all().ran), SomeIds(complete.rejected).c_str());
}

void PrintRanking(const published::Ranking& ranking) {
  std::printf("\nmappings of the same model, GPUs and batch\n");
  for (const published::Sweep& sweep : ranking.sweeps) {
    if (sweep.kind != published::SweepKind::kMapping) continue;
    const published::SweepCandidate& chosen = sweep.candidates[sweep.chosen];
    const published::SweepCandidate& best = sweep.candidates[sweep.best];
    std::printf("  %s: %s\n", sweep.source.c_str(), sweep.what.c_str());
    std::printf("    of %zu chosen [%s] %s; best [%s] %.4g s; %+.1f %%; pairs in order %lld of %lld\n",
                sweep.candidates.size(), chosen.mapping.c_str(),
                chosen.out_of_memory ? "ran out of memory"
                                     : absl::StrCat(std::round(chosen.measured * 1e4) / 1e4, " s").c_str(),
                best.mapping.c_str(), best.measured, sweep.regret_percent,
                static_cast<long long>(sweep.concordant), static_cast<long long>(sweep.pairs));
  }
  std::printf("\n%-11s %-34s %7s %11s %12s %7s %7s %12s\n", "kind", "source", "sweeps", "within 3 %",
              "mean regret", "worst", "pairs", "Kendall tau");
  for (const published::RankingSummary& s : ranking.summaries) {
    std::printf("%-11s %-34.34s %7lld %11lld %10.1f %% %5.1f %% %7lld %12s\n",
                std::string(published::SweepKindName(s.kind)).c_str(), s.source.c_str(),
                static_cast<long long>(s.sweeps), static_cast<long long>(s.good), s.mean_regret_percent,
                s.worst_regret_percent, static_cast<long long>(s.pairs),
                s.pairs > 0 ? absl::StrCat(std::round(s.kendall_tau * 1000) / 1000).c_str() : "-");
  }
}

void PrintLeftOut(const std::vector<published::LeftOut>& left_out) {
  std::printf("\nmean |error| on each source when fitted to all the others (before: data sheet)\n");
  std::printf("%-34s %5s %8s %8s  %5s %8s %8s  %s\n", "source", "rows", "memory", "after", "rows", "time",
              "after", "matmul, memory bandwidth, link bandwidth, reserved");
  for (const published::LeftOut& left : left_out) {
    std::printf("%-34.34s %5lld %7.1f%% %7.1f%%  %5lld %7.1f%% %7.1f%%  %.2f %.2f %.2f %.2f\n",
                left.source.c_str(), static_cast<long long>(left.memory_before.count),
                left.memory_before.mean_absolute, left.memory_after.mean_absolute,
                static_cast<long long>(left.time_before.count), left.time_before.mean_absolute,
                left.time_after.mean_absolute, left.tuning.matmul_rate, left.tuning.memory_bandwidth,
                left.tuning.link_bandwidth, left.tuning.reserved_share);
  }
}

absl::StatusOr<ExitCode> PrintSettings(const Options& options, const Output& output) {
  if (!options.file.empty() || output.json) {
    return UsageError("--settings only prints the column reference (Markdown); remove FILE and --json");
  }
  std::fputs(published::SettingsPage().c_str(), stdout);
  return ExitCode::kOk;
}

absl::StatusOr<ExitCode> RunScore(Options options, const Output& output) {
  if (options.settings) return PrintSettings(options, output);
  if (options.file.empty())
    return UsageError(
        "score requires a CSV of measured runs; see docs/reference/other-trainers.md for its columns");
  std::vector<std::string>& read = options.output_rules.inputs;
  read = {options.file, options.complete, options.profile};
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<published::PublishedRun> runs, ReadRuns(options.file, &read));
  TRAINCTL_RETURN_IF_ERROR(CheckOutputs({{"--out", &options.out}}, options.output_rules));
  published::ScoreOptions score_options;
  if (!options.complete.empty()) {
    TRAINCTL_ASSIGN_OR_RETURN(const std::string list, ReadFileOfUser(options.complete));
    TRAINCTL_ASSIGN_OR_RETURN(score_options.complete_ids, published::ReadIdList(list, options.complete));
  }
  if (!options.profile.empty()) {
    TRAINCTL_ASSIGN_OR_RETURN(const frameworks::HardwareProfile profile, ReadProfile(options.profile));
    score_options.tuning = profile.tuning;
  }
  const published::Score score = published::ScoreRuns(runs, score_options);
  if (score.complete.rows == 0 && score.complete.listed) {
    return UsageError(absl::StrCat(options.complete, ": none of its IDs occurs in ", options.file));
  }
  published::Ranking ranking;
  if (options.ranking) ranking = published::RankSweeps(runs, score);
  std::vector<published::LeftOut> left_out;
  if (options.leave_one_out) left_out = published::LeaveOneSourceOut(runs);
  if (!options.out.empty())
    TRAINCTL_RETURN_IF_ERROR(
        WriteOutputFile(options.out, published::ScoreToCsv(score), options.output_rules));
  if (output.json) {
    std::fputs(published::ScoreToJson(score, options.ranking ? &ranking : nullptr, left_out).c_str(), stdout);
    return ExitCode::kOk;
  }
  PrintSources(score.sources);
  PrintComplete(score.complete, score.complete.listed);
  if (options.ranking) PrintRanking(ranking);
  if (options.leave_one_out) PrintLeftOut(left_out);
  return ExitCode::kOk;
}

}  // namespace

void AddScore(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("score", "Compare estimates with measured runs");
  auto options = std::make_shared<Options>();
  verb->add_option("FILE", options->file,
                   "CSV of measured runs; see docs/reference/other-trainers.md for its columns");
  verb->add_option("--out", options->out, "Write a CSV with the prediction and error for every row")
      ->type_name("FILE");
  verb->add_option("--complete", options->complete,
                   "File that lists the IDs of all rows with enough data for an estimate, one per line. A "
                   "listed row that is skipped counts as an error of 100%")
      ->type_name("FILE");
  verb->add_option("--profile", options->profile, "Use a profile written by `trainctl calibrate`")
      ->type_name("PROFILE");
  verb->add_flag("--ranking", options->ranking,
                 "For each sweep, show the chosen mapping and how far it is from the best one");
  verb->add_flag("--leave-one-out", options->leave_one_out,
                 "For each source, calibrate on all other sources and print the errors");
  AddForceFlag(*verb, options->output_rules.overwrite);
  verb->add_flag("--settings", options->settings,
                 "Without FILE, list the allowed values of the framework, model_config and settings columns");
  AddJsonFlag(*verb);
  SetExample(*verb, "trainctl score measured.csv --out scored.csv");
  verb->callback([&action, options] {
    action = [options](const Output& output) { return RunScore(*options, output); };
  });
}

}  // namespace trainctl::cli
