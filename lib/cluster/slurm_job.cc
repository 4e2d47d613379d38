#include "cluster/slurm_job.h"

#include <array>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/json.h"
#include "base/names.h"
#include "base/shell_quote.h"
#include "base/status.h"

namespace trainctl::cluster {
namespace {

constexpr char kJobSchema[] = "trainctl.batch_job.v1";

// What the script says by itself, and whoever says otherwise gets another job than planned.
constexpr std::array kOurs = {"--nodes",  "-N",      "--ntasks", "-n",     "--ntasks-per-node",
                              "--signal", "--array", "-a",       "--wrap", "--open-mode",
                              "--chdir",  "-D",      "--wait",   "-W",     "--parsable"};
// With any of these the options say themselves which devices a node shall have.
constexpr std::array kDevices = {"--gres", "--gpus", "-G", "--tres-per-"};

// sbatch reads a directive as a shell reads words, but without anything that stands for something else.
absl::StatusOr<std::string> Word(absl::string_view text) {
  const bool is_plain = absl::c_all_of(text, [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("-_=+:,./%@[]", c);
  });
  if (is_plain && !text.empty()) return std::string(text);
  const bool can_be = absl::c_none_of(text, [](char c) {
    return absl::ascii_iscntrl(static_cast<unsigned char>(c)) || c == '"' || c == '\\';
  });
  if (can_be) return absl::StrCat("\"", text, "\"");
  return UsageError(absl::StrCat(
      QuotedName(text),
      " cannot be passed to Slurm: it contains a control character, a quotation mark or a backslash"));
}

bool IsOurs(absl::string_view option) {
  return absl::c_any_of(kOurs, [&](absl::string_view ours) {
    if (!absl::StartsWith(option, ours)) return false;
    const absl::string_view rest = option.substr(ours.size());
    return rest.empty() || rest.front() == '=' || !absl::StartsWith(ours, "--");
  });
}

// The value of `name=` in a line of such pairs; names are words of their own.
std::string ValueOf(absl::string_view line, absl::string_view name) {
  for (absl::string_view word : absl::StrSplit(line, ' ')) {
    if (absl::ConsumePrefix(&word, name) && absl::ConsumePrefix(&word, "=")) return std::string(word);
  }
  return "";
}

std::string Known(std::string value) {
  return value == "None" || value == "N/A" || value == "Unknown" || value == "(null)" ? "" : value;
}

}  // namespace

absl::Status CheckSubmitOptions(const std::vector<std::string>& options) {
  for (const std::string& option : options) {
    if (!absl::StartsWith(option, "-")) {
      return UsageError(absl::StrCat("launch.slurm.submit_options: ", QuotedName(option),
                                     " is not an sbatch option; write \"--name=value\" as one string"));
    }
    if (IsOurs(option)) {
      return UsageError(absl::StrCat("launch.slurm.submit_options: ", QuotedName(option),
                                     " is set by trainctl itself: nodes from cluster.nodes, the warning from "
                                     "launch.slurm.save_before, variables from launch.env; remove it"));
    }
    TRAINCTL_RETURN_IF_ERROR(Annotate(Word(option).status(), "launch.slurm.submit_options"));
  }
  return absl::OkStatus();
}

bool NamesDevices(const std::vector<std::string>& options) {
  return absl::c_any_of(options, [](const std::string& option) {
    return absl::c_any_of(kDevices, [&](const char* name) { return absl::StartsWith(option, name); });
  });
}

absl::StatusOr<std::string> SlurmScript(const SlurmJob& job) {
  // A node that is lost does not end the job: the launcher names it, and asks for other nodes.
  std::vector<std::string> options = {
      absl::StrCat("--job-name=", job.name),
      absl::StrCat("--nodes=", job.nodes),
      "--ntasks-per-node=1",
      "--exclusive",
      "--no-kill",
      "--requeue",
      absl::StrCat("--signal=B:USR1@",
                   absl::ToInt64Seconds(absl::Ceil(job.config.save_before, absl::Seconds(1)))),
      absl::StrCat("--chdir=", job.folder),
      absl::StrCat("--output=", job.output),
      "--open-mode=append"};
  if (job.devices_per_node > 0 && !NamesDevices(job.config.submit_options))
    options.push_back(absl::StrCat("--gpus-per-node=", job.devices_per_node));
  options.insert(options.end(), job.config.submit_options.begin(), job.config.submit_options.end());
  std::string script = "#!/bin/bash\n";
  for (const std::string& option : options) {
    TRAINCTL_ASSIGN_OR_RETURN(const std::string word, Word(option));
    absl::StrAppend(&script, "#SBATCH ", word, "\n");
  }
  absl::StrAppend(&script, "export ", kSubmittedVariable, "=1\nexec");
  for (const std::string& word : job.command) absl::StrAppend(&script, " ", ShellQuote(word));
  return absl::StrCat(script, "\n");
}

std::optional<std::string> FindSubmittedJob(const Environment& environment) {
  const char* const submitted = environment(kSubmittedVariable);
  const char* const job = environment("SLURM_JOB_ID");
  if (submitted == nullptr || absl::string_view(submitted) != "1" || job == nullptr) return std::nullopt;
  return std::string(job);
}

bool IsRequeued(const Environment& environment) {
  const char* const count = environment("SLURM_RESTART_COUNT");
  int64_t number = 0;
  return FindSubmittedJob(environment) && count != nullptr && absl::SimpleAtoi(count, &number) && number > 0;
}

absl::StatusOr<std::string> ParseSubmitted(absl::string_view output) {
  // Warnings of plugins may come first; behind the number may stand the cluster's name.
  const std::vector<absl::string_view> lines = absl::StrSplit(absl::StripAsciiWhitespace(output), '\n');
  const absl::string_view last = lines.back();
  const absl::string_view number = last.substr(0, last.find(';'));
  const bool is_number = !number.empty() && absl::c_all_of(number, [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c));
  });
  if (is_number) return std::string(number);
  return EnvironmentError(absl::StrCat("sbatch did not print a job number; it printed: ", output));
}

std::string FormatJobRecord(absl::string_view id, absl::string_view folder) {
  const Json json = {{"schema", kJobSchema}, {"system", "slurm"}, {"job", id}, {"folder", folder}};
  return FormatJson(json, 2) + "\n";
}

std::optional<std::string> FindRecordedJob(absl::string_view text, absl::string_view folder) {
  const absl::StatusOr<Json> json = ParseJson(text, "batch-job.json");
  if (!json.ok()) return std::nullopt;
  const absl::StatusOr<std::string> job = JsonString(*json, "job", "batch-job.json");
  const absl::StatusOr<std::string> submitted_for = JsonString(*json, "folder", "batch-job.json");
  if (!job.ok() || !submitted_for.ok() || *submitted_for != folder) return std::nullopt;
  const absl::StatusOr<std::string> number = ParseSubmitted(*job);
  if (!number.ok()) return std::nullopt;
  return *number;
}

bool SlurmJobState::IsAlive() const {
  constexpr std::array kAlive = {"PENDING",      "RUNNING",   "CONFIGURING", "COMPLETING", "REQUEUED",
                                 "REQUEUE_HOLD", "SUSPENDED", "RESIZING",    "SIGNALING",  "STAGE_OUT"};
  return absl::c_linear_search(kAlive, absl::string_view(state));
}

std::optional<SlurmJobState> ParseJobState(absl::string_view output) {
  for (const absl::string_view line : absl::StrSplit(output, '\n')) {
    SlurmJobState job;
    job.state = ValueOf(line, "JobState");
    if (job.state.empty()) continue;
    job.reason = Known(ValueOf(line, "Reason"));
    job.makes_room = !Known(ValueOf(line, "PreemptTime")).empty();
    return job;
  }
  return std::nullopt;
}

std::map<std::string, std::string> ParseNodeAddresses(absl::string_view output) {
  std::map<std::string, std::string> addresses;
  for (const absl::string_view line : absl::StrSplit(output, '\n')) {
    const std::string name(ValueOf(line, "NodeName"));
    const std::string address = Known(ValueOf(line, "NodeAddr"));
    if (!name.empty() && !address.empty()) addresses[name] = address;
  }
  return addresses;
}

bool IsWarning(absl::string_view reason) {
  const size_t at = reason.rfind(": ");
  if (at != absl::string_view::npos) reason.remove_prefix(at + 2);
  return reason == "SIGUSR1" || reason == "SIGUSR2";
}

}  // namespace trainctl::cluster
