#include "apps/trainctl/host_answers.h"

#include <poll.h>

#include <algorithm>
#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/file_limit.h"
#include "base/status.h"
#include "launcher/agent_starter.h"

namespace trainctl::cli {
namespace {

using launcher::AgentStarter;

constexpr char kVersionLine[] = "trainctl " TRAINCTL_VERSION;
constexpr int kExitOfSsh = 255;  // ssh's own; any other code is the remote command's

// The output and the end of `ssh HOST trainctl version`.
struct Answer {
  std::string version;    // "trainctl 0.1.0"; empty if it printed none
  std::string last_line;  // any line, such as an error of the shell or of ssh
  bool has_ended = false;
  ExitStatus exit;
};

void Take(const AgentStarter::News& news, Answer& answer) {
  if (news.has_ended) {
    answer.has_ended = true;
    answer.exit = news.exit;
    return;
  }
  answer.last_line = news.text;
  if (absl::StartsWith(news.text, "trainctl ")) answer.version = news.text;
}

absl::Status StatusOf(const std::string& host, const std::string& program, const Answer& answer,
                      absl::Duration patience) {
  const std::string said = answer.last_line.empty() ? answer.exit.Describe() : answer.last_line;
  if (!answer.has_ended) {
    return EnvironmentError(absl::StrCat(host, " did not respond to ssh within ",
                                         absl::FormatDuration(patience), answer.last_line.empty() ? "" : ": ",
                                         answer.last_line));
  }
  if (!answer.exit.signaled && answer.exit.code == kExitOfSsh) {
    return EnvironmentError(absl::StrCat("ssh cannot reach ", host, ": ", said));
  }
  if (!answer.exit.Success() || answer.version.empty()) {
    return EnvironmentError(absl::StrCat(host, " cannot run ", program, ": ", said,
                                         "; install trainctl there, or set launch.ssh.program"));
  }
  if (answer.version == kVersionLine) return absl::OkStatus();
  return EnvironmentError(absl::StrCat(host, ": ", program, " is ", answer.version, ", but this machine has ",
                                       kVersionLine, "; install the same version on all machines"));
}

// Returns when all commands have ended, or at `deadline`.
void Listen(AgentStarter& commands, absl::Time deadline, std::map<std::string, Answer>& answers) {
  while (!commands.AllEnded() && absl::Now() < deadline) {
    std::vector<pollfd> fds;
    commands.AddPollFds(fds);
    const int64_t left_ms = absl::ToInt64Milliseconds(deadline - absl::Now());
    ::poll(fds.data(), fds.size(), static_cast<int>(std::clamp<int64_t>(left_ms, 0, 1000)));
    for (const AgentStarter::News& news : commands.TakeNews()) {
      for (const std::string& host : news.nodes) Take(news, answers[host]);
    }
  }
}

}  // namespace

std::vector<absl::Status> AskHosts(const launcher::RemoteNodes& remote, absl::Duration patience) {
  std::vector<absl::Status> statuses;
  if (remote.starter != launcher::RemoteNodes::Starter::kSsh) return statuses;
  RaiseFileLimit();
  AgentStarter commands;
  for (const launcher::RemoteNodes::Node& node : remote.nodes) {
    const absl::Status started = commands.Start(
        {node.host}, launcher::SshCommand(remote.starter_options, node.host, remote.program, "version"), "");
    // Without an ssh program here, no other host can be asked either.
    if (!started.ok()) return {started};
  }
  std::map<std::string, Answer> answers;
  Listen(commands, absl::Now() + patience, answers);
  for (const launcher::RemoteNodes::Node& node : remote.nodes) {
    statuses.push_back(StatusOf(node.host, remote.program, answers[node.host], patience));
  }
  return statuses;
}

}  // namespace trainctl::cli
