// `trainctl score`: the planner's prices against runs that were measured.

#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "apps/trainctl/command.h"
#include "base/files.h"
#include "pricing/score.h"

namespace trainctl::cli {
namespace {

struct ScoreOptions {
  std::string file;
  std::string out;
};

void PrintSummary(const pricing::ErrorSummary& summary) {
  if (summary.count == 0) {
    std::printf("  %5s %7s %7s %7s %8s", "-", "", "", "", "");
    return;
  }
  std::printf("  %5lld %6.1f%% %+6.1f%% %6.1f%% %+7.1f%%", static_cast<long long>(summary.count),
              summary.mean_absolute, summary.median, summary.percentile_95, summary.worst);
}

void Print(const pricing::Score& score) {
  std::printf("%-34s %6s %7s %8s  %37s  %37s\n", "", "", "", "", "memory: rows, mean |error|, median,",
              "step time: rows, mean |error|, median,");
  std::printf("%-34s %6s %7s %8s  %37s  %37s\n", "source", "scored", "skipped", "rejected",
              "95th percentile, worst", "95th percentile, worst");
  for (const pricing::SourceScore& source : score.sources) {
    std::printf("%-34.34s %6lld %7lld %8lld", source.source.c_str(), static_cast<long long>(source.scored),
                static_cast<long long>(source.skipped), static_cast<long long>(source.rejected));
    PrintSummary(source.memory);
    PrintSummary(source.time);
    std::printf("\n");
  }
}

absl::StatusOr<ExitCode> RunScore(const ScoreOptions& options, const Output& output) {
  if (!PathExists(options.file)) return UsageError(absl::StrCat(options.file, ": no such file"));
  TRAINCTL_ASSIGN_OR_RETURN(const std::string text, ReadFile(options.file));
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<pricing::PublishedRun> runs,
                            pricing::ReadPublishedRuns(text, options.file));
  const pricing::Score score = pricing::ScoreRuns(runs);
  if (!options.out.empty())
    TRAINCTL_RETURN_IF_ERROR(WriteFileAtomic(options.out, pricing::ScoreToCsv(score)));
  if (output.json) {
    std::fputs(pricing::ScoreToJson(score).c_str(), stdout);
  } else {
    Print(score);
  }
  return ExitCode::kOk;
}

}  // namespace

void AddScore(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("score", "Hold the planner's prices against runs that were measured");
  auto options = std::make_shared<ScoreOptions>();
  verb->add_option("FILE", options->file, "A CSV of measured runs; docs/planner.md lists its columns")
      ->required();
  verb->add_option("--out", options->out, "Write a CSV with the prediction and the error of every row");
  AddJsonFlag(*verb);
  SetExample(*verb, "trainctl score measured.csv --out scored.csv");
  verb->callback([&action, options] {
    action = [options](const Output& output) { return RunScore(*options, output); };
  });
}

}  // namespace trainctl::cli
