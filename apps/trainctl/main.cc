// trainctl: the command line. Links no LibTorch; answers in milliseconds.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "apps/trainctl/command.h"
#include "apps/trainctl/completion.h"
#include "apps/trainctl/early_stop.h"
#include "apps/trainctl/help_format.h"
#include "apps/trainctl/option_checks.h"
#include "base/folder_paths.h"
#include "base/json.h"
#include "base/process_limits.h"
#include "base/standard_fds.h"
#include "base/status.h"
#include "launcher/init_process.h"
#include "launcher/printable_text.h"

namespace trainctl::cli {
namespace {

constexpr char kStart[] = "Start";
constexpr char kRun[] = "Run";
constexpr char kLook[] = "Look";
constexpr char kData[] = "Data and models";
constexpr char kMachine[] = "Machine";
constexpr char kOther[] = "Other";
constexpr char kUnlisted[] = "";

// In the order of --help; verbs of one group are adjacent.
constexpr std::array kCommands = {
    Command{kStart, AddNew},         Command{kStart, AddRecipe},      Command{kStart, AddPlan},
    Command{kStart, AddVerify},      Command{kRun, AddLaunch},        Command{kRun, AddResume},
    Command{kRun, AddSave},          Command{kRun, AddStop},          Command{kLook, AddRuns},
    Command{kLook, AddStatus},       Command{kLook, AddLogs},         Command{kLook, AddEvents},
    Command{kLook, AddReport},       Command{kLook, AddTrace},        Command{kLook, AddExport},
    Command{kData, AddData},         Command{kData, AddTokenizer},    Command{kData, AddCheckpoint},
    Command{kData, AddModels},       Command{kData, AddGenerate},     Command{kData, AddEval},
    Command{kMachine, AddDoctor},    Command{kMachine, AddCalibrate}, Command{kMachine, AddScore},
    Command{kOther, AddCompletions}, Command{kOther, AddMan},         Command{kOther, AddVersion},
    Command{kUnlisted, AddAgent},
};

bool JsonRequested(const CLI::App& app) {
  for (const CLI::App* verb : app.get_subcommands()) {
    const CLI::Option* flag = verb->get_option_no_throw("--json");
    if (flag != nullptr && flag->count() > 0) return true;
    if (JsonRequested(*verb)) return true;
  }
  return false;
}

void PrintError(const absl::Status& status, ExitCode code, bool json) {
  const std::string message(status.message());
  if (json) {
    const Json report = {
        {"schema", "trainctl.error.v1"}, {"exit_code", static_cast<int>(code)}, {"message", message}};
    std::puts(PrintableJson(report).c_str());
  }
  std::fprintf(stderr, "trainctl: %s\n", launcher::PrintableText(message, /*keep_newlines=*/true).c_str());
}

// What CLI11 has to say of a command line, with the verb that it is about.
std::string Complaint(const CLI::App& app, const CLI::ParseError& error) {
  std::string path;
  const CLI::App* verb = &app;
  for (std::vector<CLI::App*> parsed = app.get_subcommands(); !parsed.empty();
       parsed = verb->get_subcommands()) {
    verb = parsed.front();
    absl::StrAppend(&path, path.empty() ? "" : " ", verb->get_name());
  }
  absl::string_view what = error.what();
  absl::ConsumeSuffix(&what, ".");
  return absl::StrCat(path, path.empty() ? "" : ": ", what, "; see `trainctl ", path, path.empty() ? "" : " ",
                      "--help`");
}

// `trainctl`, `trainctl checkpoint`: who types this asks what there is.
bool LacksVerb(const CLI::App& app) {
  const std::vector<CLI::App*> parsed = app.get_subcommands();
  return parsed.empty() ? app.get_require_subcommand_min() > 0 : LacksVerb(*parsed.front());
}

// Handles exceptions that nothing catches, such as those of threads that libraries start.
[[noreturn]] void EndWithReason() {
  absl::Status status = InternalError("a thread ended the process without a reason");
  try {
    if (const std::exception_ptr current = std::current_exception()) std::rethrow_exception(current);
  } catch (const std::exception& error) {
    status =
        RefusedResource(error).value_or(InternalError(absl::StrCat("uncaught exception: ", error.what())));
  } catch (...) {
    status = InternalError("uncaught exception of an unknown type");
  }
  const ExitCode code = ExitCodeFor(status);
  PrintError(status, code, /*json=*/false);
  std::_Exit(static_cast<int>(code));
}

// What the libraries throw if the system refuses memory or a thread is an error like any other.
absl::StatusOr<ExitCode> RunAction(const Action& action, const Output& output) {
  TRAINCTL_RETURN_IF_ERROR(CheckWorkingFolder());
  try {
    return action(output);
  } catch (const std::exception& error) {
    if (const std::optional<absl::Status> refused = RefusedResource(error)) return *refused;
    return InternalError(absl::StrCat("uncaught exception: ", error.what()));
  }
}

int RunVerb(int argc, char** argv) {
  CLI::App app("Plan, launch and resume the training of large language models.", "trainctl");
  app.require_subcommand(1);
  app.set_version_flag("--version", "trainctl " TRAINCTL_VERSION, "Print the version and exit");
  app.formatter(std::make_shared<HelpFormat>());
  Action action;
  for (const Command& command : kCommands) {
    command.add(app, action);
    app.get_subcommands({}).back()->group(command.group);
  }
  app.footer("See `trainctl SUBCOMMAND --help` for a subcommand's options and an example.");
  RefuseEmptyValues(app);
  if (argc > 1 && std::string(argv[1]) == "__complete") {
    return PrintCompletion(app, std::vector<std::string>(argv + 2, argv + argc));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    const std::string unknown = UnknownWord(app, words);
    const bool json = std::find(words.begin(), words.end(), "--json") != words.end();
    if (unknown.empty() && !json && LacksVerb(app)) {
      std::fputs(app.help().c_str(), stderr);
      return static_cast<int>(ExitCode::kUsage);
    }
    PrintError(UsageError(unknown.empty() ? Complaint(app, error) : unknown), ExitCode::kUsage, json);
    return static_cast<int>(ExitCode::kUsage);
  }
  Output output;
  output.json = JsonRequested(app);
  output.stdout_color = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  output.stderr_terminal = isatty(STDERR_FILENO) != 0;
  const absl::StatusOr<ExitCode> result = RunAction(action, output);
  if (result.ok()) return static_cast<int>(*result);
  const ExitCode code = ExitCodeFor(result.status());
  PrintError(result.status(), code, output.json);
  return static_cast<int>(code);
}

bool IsAmong(const char* word, int argc, char** argv) {
  return std::any_of(argv + 1, argv + argc, [&](const char* arg) { return std::strcmp(arg, word) == 0; });
}

// First of all: a batch system may signal as soon as the process is there.
void CatchEarlySignals(int argc, char** argv) {
  if (argc < 2) return;
  const std::string verb = argv[1];
  if (verb == "launch" || verb == "resume") EndOnSignals(IsAmong("--json", argc, argv));
}

int Main(int argc, char** argv) {
  const int code = RunVerb(argc, argv);
  errno = 0;
  const bool is_written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (is_written || code != 0) return code;
  std::fprintf(stderr, "trainctl: failed to write all output: %s\n",
               errno != 0 ? std::strerror(errno) : "an earlier write failed");
  return static_cast<int>(ExitCode::kEnvironment);
}

}  // namespace

void PrintText(absl::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void AddJsonFlag(CLI::App& verb) { verb.add_flag("--json")->description("Print the result as JSON"); }

void SetExample(CLI::App& verb, const std::string& example) { verb.footer("Example:\n  " + example); }

}  // namespace trainctl::cli

int main(int argc, char** argv) {
  trainctl::launcher::LeaveInitProcess();
  trainctl::cli::CatchEarlySignals(argc, argv);
  trainctl::OpenStandardFds();
  trainctl::ReportFileSizeLimit();
  std::set_terminate(trainctl::cli::EndWithReason);
  return trainctl::cli::Main(argc, argv);
}
