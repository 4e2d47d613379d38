#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/run_program.h"
#include "doctor/doctor.h"

namespace trainctl::doctor {
namespace {

std::string LastLine(const std::string& text) {
  const size_t at = text.rfind('\n');
  return at == std::string::npos ? text : text.substr(at + 1);
}

Finding Broken(const std::string& advice) { return {"worker", "does not start", Health::kBad, advice}; }

std::string HowToMend(const std::string& output) {
  if (absl::StrContains(output, "error while loading shared libraries")) {
    return "; the worker needs LibTorch in the folder in which the build found it. Restore that folder, or "
           "rebuild with ./dev build (set TRAINCTL_LIBTORCH to use another folder). In a bundle, run its "
           "./setup. If the worker was installed with pip, run `pip check` to find the missing package";
  }
  return "; rebuild it with ./dev build";
}

}  // namespace

Finding InspectWorker(const absl::StatusOr<std::string>& program, absl::Duration patience) {
  if (!program.ok()) return Broken(std::string(program.status().message()));
  const absl::StatusOr<ProgramEnd> ended = RunProgram({*program, "version"}, patience);
  if (!ended.ok()) return Broken(std::string(ended.status().message()));
  if (ended->is_late) {
    return Broken(absl::StrCat(*program, " did not finish within ", absl::FormatDuration(patience)));
  }
  const std::string& output = ended->output;
  if (!ended->exit.Success()) {
    return Broken(absl::StrCat(*program, " ", ended->exit.Describe(), output.empty() ? "" : ": ",
                               LastLine(output), HowToMend(output)));
  }
  return {.name = "worker", .value = LastLine(output)};
}

}  // namespace trainctl::doctor
