// A verb of the command line: it parses its options, calls lib/, prints. Each lives in its own
// cmd_<verb>.cc and has one row in the table of main.cc.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "base/status.h"

namespace CLI {
class App;
}

namespace trainctl::cli {

// What every verb is given: how to print. Results go to stdout, progress to stderr.
struct Output {
  bool json = false;             // --json
  bool stdout_color = false;     // a terminal, and NO_COLOR is unset
  bool stderr_terminal = false;  // progress bars are allowed
};

// Runs the verb after parsing. A non-OK status is printed by main and decides the exit code.
using Action = std::function<absl::StatusOr<ExitCode>(const Output&)>;

// Adds one verb to `app`; its CLI11 callback sets `action`. `group` is its heading in --help; empty if it is
// not listed.
struct Command {
  const char* group;
  void (*add)(CLI::App& app, Action& action);
};

void AddData(CLI::App& app, Action& action);
void AddNew(CLI::App& app, Action& action);
void AddModels(CLI::App& app, Action& action);
void AddTokenizer(CLI::App& app, Action& action);
void AddRecipe(CLI::App& app, Action& action);
void AddCheckpoint(CLI::App& app, Action& action);
void AddRuns(CLI::App& app, Action& action);
void AddStatus(CLI::App& app, Action& action);
void AddLogs(CLI::App& app, Action& action);
void AddEvents(CLI::App& app, Action& action);
void AddReport(CLI::App& app, Action& action);
void AddTrace(CLI::App& app, Action& action);
void AddExport(CLI::App& app, Action& action);
void AddSave(CLI::App& app, Action& action);
void AddStop(CLI::App& app, Action& action);
void AddAgent(CLI::App& app, Action& action);
void AddPlan(CLI::App& app, Action& action);
void AddVerify(CLI::App& app, Action& action);
void AddScore(CLI::App& app, Action& action);
void AddDoctor(CLI::App& app, Action& action);
void AddCalibrate(CLI::App& app, Action& action);
void AddLaunch(CLI::App& app, Action& action);
void AddResume(CLI::App& app, Action& action);
void AddGenerate(CLI::App& app, Action& action);
void AddEval(CLI::App& app, Action& action);
void AddCompletions(CLI::App& app, Action& action);
void AddMan(CLI::App& app, Action& action);
void AddVersion(CLI::App& app, Action& action);

// Adds "--json" to a verb that reports something.
void AddJsonFlag(CLI::App& verb);

// Writes `text` to stdout as it is.
void PrintText(absl::string_view text);

// Sets the example with which --help begins.
void SetExample(CLI::App& verb, const std::string& example);

}  // namespace trainctl::cli
