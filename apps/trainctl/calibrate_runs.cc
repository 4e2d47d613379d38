#include "apps/trainctl/calibrate_runs.h"

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "apps/trainctl/profile_option.h"
#include "base/output_file.h"
#include "base/shell_quote.h"
#include "launcher/printable_text.h"
#include "published/score_report.h"

namespace trainctl::cli {
namespace {

void PrintErrors(const char* what, const published::ErrorSummary& before,
                 const published::ErrorSummary& after) {
  if (before.count == 0) {
    std::printf("%-10s no measurements\n", what);
    return;
  }
  std::printf(
      "%-10s %5lld configurations, mean |error| %.1f %% before, %.1f %% after; median %+.1f %%, %+.1f "
      "%%\n",
      what, static_cast<long long>(before.count), before.mean_absolute, after.mean_absolute, before.median,
      after.median);
}

void Print(const published::Calibration& calibration) {
  const frameworks::HardwareProfile& profile = calibration.profile;
  std::printf("measured on %s\n", absl::StrJoin(profile.devices, ", ").c_str());
  for (const auto& [name, member] : frameworks::TuningConstants()) {
    std::printf("  %-18s %.3f x the data sheet\n", name, profile.tuning.*member);
  }
  PrintErrors("step time", calibration.time_before, calibration.time_after);
  PrintErrors("memory", calibration.memory_before, calibration.memory_after);
}

}  // namespace

absl::StatusOr<ExitCode> CalibrateToRuns(const std::string& file, const std::string& out, OutputRules rules,
                                         const Output& output) {
  rules.inputs = {file};
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<published::PublishedRun> runs, ReadRuns(file, &rules.inputs));
  if (!out.empty()) TRAINCTL_RETURN_IF_ERROR(FindOutput(out, rules).status());
  TRAINCTL_ASSIGN_OR_RETURN(published::Calibration calibration, published::Calibrate(runs));
  calibration.profile.made_by = absl::StrCat("trainctl calibrate ", file);
  if (!out.empty()) {
    TRAINCTL_RETURN_IF_ERROR(WriteOutputFile(out, frameworks::ProfileToJson(calibration.profile), rules));
  }
  if (output.json) {
    std::fputs(published::CalibrationToJson(calibration).c_str(), stdout);
    return ExitCode::kOk;
  }
  Print(calibration);
  if (!out.empty()) {
    std::printf("wrote %s; use it with --profile %s\n", launcher::PrintableText(out).c_str(),
                ShellQuote(out).c_str());
  }
  return ExitCode::kOk;
}

}  // namespace trainctl::cli
