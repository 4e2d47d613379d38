#include "launcher/agent_starter.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/shell_quote.h"
#include "base/status.h"
#include "launcher/printable_text.h"

namespace trainctl::launcher {

std::vector<std::string> AgentCommand(const std::vector<std::string>& ssh_options, const std::string& host,
                                      const std::string& program) {
  // Nobody is there to type a password; no terminal, so that nothing but the end of the job ends an agent.
  std::vector<std::string> command = {"ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20"};
  command.insert(command.end(), ssh_options.begin(), ssh_options.end());
  command.insert(command.end(), {"--", host, absl::StrCat("exec ", ShellQuote(program), " agent")});
  return command;
}

AgentStarter::~AgentStarter() {
  for (auto& [node, agent] : agents_) Close(agent);
}

void AgentStarter::Close(RunningAgent& agent) {
  agent.process.SignalGroup(SIGKILL);
  agent.process.Wait();
  if (agent.output_fd >= 0) ::close(agent.output_fd);
}

absl::Status AgentStarter::Start(const std::string& node, const std::vector<std::string>& command,
                                 absl::string_view invitation) {
  if (const auto former = agents_.find(node); former != agents_.end()) {
    Close(former->second);
    agents_.erase(former);
  }
  SpawnOptions spawn;
  spawn.argv = command;
  spawn.argv[0] = FindInPath(command[0]);
  if (spawn.argv[0].empty()) {
    return EnvironmentError(
        absl::StrCat(command[0], " is not installed here; launch.backend = \"ssh\" needs it"));
  }
  int input[2], output[2];
  if (::pipe2(input, O_CLOEXEC) != 0) return ErrnoError("create", "a pipe", errno);
  if (::pipe2(output, O_CLOEXEC) != 0) {
    const int error = errno;
    for (const int fd : input) ::close(fd);
    return ErrnoError("create", "a pipe", error);
  }
  ::fcntl(output[0], F_SETFL, O_NONBLOCK);
  spawn.env = CurrentEnvironment();
  spawn.new_session = true;
  spawn.die_with_parent = true;
  spawn.stdin_fd = input[0];
  spawn.stdout_fd = output[1];
  spawn.stderr_fd = output[1];
  // A few KiB: the pipe takes them before anybody reads.
  const bool is_written =
      ::write(input[1], invitation.data(), invitation.size()) == static_cast<ssize_t>(invitation.size());
  absl::StatusOr<Subprocess> process =
      is_written ? Subprocess::Start(spawn) : ErrnoError("write", "an invitation", errno);
  ::close(input[0]);
  ::close(input[1]);
  ::close(output[1]);
  if (!process.ok()) {
    ::close(output[0]);
    return process.status();
  }
  agents_.emplace(node, RunningAgent{*std::move(process), output[0], {}, ""});
  return absl::OkStatus();
}

void AgentStarter::AddPollFds(std::vector<pollfd>& fds) const {
  for (const auto& [node, agent] : agents_) {
    if (agent.output_fd >= 0) fds.push_back({agent.output_fd, POLLIN, 0});
    fds.push_back({agent.process.pidfd(), POLLIN, 0});
  }
}

void AgentStarter::Read(const std::string& node, RunningAgent& agent, std::vector<News>& news) {
  const auto take = [&](absl::string_view line) {
    agent.last_line = std::string(line);
    news.push_back({node, false, agent.last_line});
  };
  char buffer[16 << 10];
  while (agent.output_fd >= 0) {
    const ssize_t count = ::read(agent.output_fd, buffer, sizeof(buffer));
    if (count < 0) return;
    if (count == 0) {
      ::close(std::exchange(agent.output_fd, -1));
      agent.lines.Flush(take);
      return;
    }
    agent.lines.Add(absl::string_view(buffer, static_cast<size_t>(count)), take);
  }
}

std::vector<AgentStarter::News> AgentStarter::TakeNews() {
  std::vector<News> news;
  for (auto it = agents_.begin(); it != agents_.end();) {
    RunningAgent& agent = it->second;
    const std::optional<ExitStatus> exit = agent.process.TryWait();
    Read(it->first, agent, news);
    if (!exit) {
      ++it;
      continue;
    }
    const std::string said = agent.last_line.empty() ? "" : absl::StrCat(": ", agent.last_line);
    news.push_back({it->first, true, absl::StrCat("its agent ", exit->Describe(), said)});
    agent.process.Reap();
    if (agent.output_fd >= 0) ::close(agent.output_fd);
    it = agents_.erase(it);
  }
  return news;
}

}  // namespace trainctl::launcher
