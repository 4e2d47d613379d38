#include "launcher/agent_starter.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/files.h"
#include "base/run_program.h"
#include "base/shell_quote.h"
#include "base/status.h"
#include "cluster/slurm_job.h"
#include "launcher/printable_text.h"

namespace trainctl::launcher {
namespace {

// What a login has, and where libraries are. Variables of Slurm's own come by themselves; a variable that is
// not set here is not set there.
constexpr const char* kExported[] = {"HOME",  "LANG", "LC_ALL", "LD_LIBRARY_PATH", "LOGNAME", "PATH",
                                     "SHELL", "TZ",   "USER"};
constexpr absl::Duration kSshPatience = absl::Seconds(10);

}  // namespace

std::vector<std::string> SshCommand(const std::vector<std::string>& options, const std::string& host,
                                    const std::string& program, const std::string& verb) {
  // Nobody is there to type a password; no terminal, so that nothing but the end of the job ends an agent. Of
  // an option that is given twice ssh takes the first: what follows is for whoever has said nothing of it,
  // and keeps a machine that lost its power from holding the connection for hours.
  std::vector<std::string> command = {"ssh", "-T", "-o", "BatchMode=yes"};
  command.insert(command.end(), options.begin(), options.end());
  for (const char* otherwise : {"ConnectTimeout=20", "ServerAliveInterval=10", "ServerAliveCountMax=3"}) {
    command.insert(command.end(), {"-o", otherwise});
  }
  command.insert(command.end(), {"--", host, absl::StrCat("exec ", ShellQuote(program), " ", verb)});
  return command;
}

std::string SshHostName(const std::vector<std::string>& options, const std::string& host) {
  std::vector<std::string> command = {FindInPath("ssh"), "-G"};
  command.insert(command.end(), options.begin(), options.end());
  command.insert(command.end(), {"--", host});
  if (command[0].empty()) return "";
  const absl::StatusOr<ProgramEnd> end = RunProgram(command, kSshPatience);
  return end.ok() && end->exit.Success() ? ParseSshHostName(end->output) : "";
}

std::string ParseSshHostName(absl::string_view printed) {
  for (absl::string_view line : absl::StrSplit(printed, '\n')) {
    if (absl::ConsumePrefix(&line, "hostname ")) return std::string(absl::StripAsciiWhitespace(line));
  }
  return "";
}

std::vector<std::string> SrunCommand(const std::vector<std::string>& options,
                                     const std::vector<std::string>& nodes, const std::string& program,
                                     const std::string& invitations_path) {
  // All that the allocation has of each node, whatever other steps use; we pin workers ourselves. A node that
  // is lost ends neither the step nor the job.
  std::vector<std::string> command = {"srun",
                                      absl::StrCat("--nodes=", nodes.size()),
                                      absl::StrCat("--ntasks=", nodes.size()),
                                      "--ntasks-per-node=1",
                                      absl::StrCat("--nodelist=", absl::StrJoin(nodes, ",")),
                                      "--whole",
                                      "--overlap",
                                      "--cpu-bind=none",
                                      "--mem-bind=none",
                                      "--no-kill",
                                      "--kill-on-bad-exit=0",
                                      "--input=none",
                                      "--unbuffered",
                                      absl::StrCat("--export=", absl::StrJoin(kExported, ",")),
                                      "--job-name=trainctl-agents"};
  command.insert(command.end(), options.begin(), options.end());
  command.insert(command.end(), {program, "agent", "--invitations", invitations_path});
  return command;
}

std::vector<std::string> SrunEnvironment(std::vector<std::string> environment) {
  const auto is_of_tasks = [](absl::string_view variable) {
    const absl::string_view name = variable.substr(0, variable.find('='));
    if (!absl::StartsWith(name, "SLURM_") && !absl::StartsWith(name, "SRUN_")) return false;
    constexpr absl::string_view kNames[] = {
        // which part of a node a task gets
        "SLURM_CPU_BIND", "SLURM_GPU_BIND", "SLURM_MEM_BIND", "SLURM_TRES_BIND", "SLURM_DISTRIBUTION",
        "SLURM_DIST_PLANESIZE", "SLURM_HINT", "SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_MEM_PER_NODE",
        "SLURM_GRES", "SLURM_GRES_FLAGS", "SLURM_STEP_GRES", "SLURM_EXACT", "SLURM_EXCLUSIVE",
        "SLURM_OVERCOMMIT", "SLURM_CORE_SPEC", "SLURM_THREAD_SPEC",
        // where its output goes, and in which form
        "SLURM_LABELIO", "SLURM_STDOUTMODE", "SLURM_STDERRMODE", "SRUN_OUTPUT", "SRUN_ERROR",
        // when the step ends
        "SLURM_WAIT", "SLURM_TIMELIMIT"};
    constexpr absl::string_view kSuffixes[] = {"_PER_TASK", "_PER_SOCKET", "_PER_CORE",
                                               "_PER_GPU",  "_PER_TRES",   "_PER_CPU"};
    return absl::c_any_of(kSuffixes, [&](absl::string_view end) { return absl::EndsWith(name, end); }) ||
           absl::c_linear_search(kNames, name);
  };
  std::erase_if(environment, is_of_tasks);
  return environment;
}

std::vector<std::string> SrunGpuOptions(const std::vector<std::string>& step_options, int64_t gpus_per_node,
                                        bool job_has_gpus) {
  if (gpus_per_node == 0 || !job_has_gpus || cluster::NamesDevices(step_options)) return {};
  return {absl::StrCat("--gpus-per-node=", gpus_per_node)};
}

AgentStarter::~AgentStarter() {
  for (Running& command : commands_) Close(command);
}

void AgentStarter::Close(Running& command) {
  command.process.SignalGroup(SIGKILL);
  command.process.Wait();
  if (command.output_fd >= 0) ::close(command.output_fd);
}

absl::Status AgentStarter::Start(const std::vector<std::string>& nodes,
                                 const std::vector<std::string>& command, absl::string_view input_text) {
  for (auto it = commands_.begin(); it != commands_.end();) {
    std::erase_if(it->nodes, [&](const std::string& node) { return absl::c_linear_search(nodes, node); });
    if (!it->nodes.empty()) {
      ++it;
      continue;
    }
    Close(*it);
    it = commands_.erase(it);
  }
  SpawnOptions spawn;
  spawn.argv = command;
  spawn.argv[0] = FindInPath(command[0]);
  if (spawn.argv[0].empty()) {
    return EnvironmentError(absl::StrCat(command[0], " is required by launch.backend but is not in PATH"));
  }
  int input[2], output[2];
  if (::pipe2(input, O_CLOEXEC) != 0) return ErrnoError("create", "a pipe", errno);
  if (::pipe2(output, O_CLOEXEC) != 0) {
    const int error = errno;
    for (const int fd : input) ::close(fd);
    return ErrnoError("create", "a pipe", error);
  }
  ::fcntl(output[0], F_SETFL, O_NONBLOCK);
  spawn.env = command[0] == "srun" ? SrunEnvironment(CurrentEnvironment()) : CurrentEnvironment();
  spawn.new_session = true;
  spawn.die_with_parent = true;
  spawn.stdin_fd = input[0];
  spawn.stdout_fd = output[1];
  spawn.stderr_fd = output[1];
  // A few KiB: the pipe takes them before anybody reads.
  const bool is_written =
      ::write(input[1], input_text.data(), input_text.size()) == static_cast<ssize_t>(input_text.size());
  absl::StatusOr<Subprocess> process =
      is_written ? Subprocess::Start(spawn) : ErrnoError("write", "an invitation", errno);
  ::close(input[0]);
  ::close(input[1]);
  ::close(output[1]);
  if (!process.ok()) {
    ::close(output[0]);
    return process.status();
  }
  commands_.push_back({nodes, *std::move(process), output[0], {}, ""});
  return absl::OkStatus();
}

void AgentStarter::AddPollFds(std::vector<pollfd>& fds) const {
  for (const Running& command : commands_) {
    if (command.output_fd >= 0) fds.push_back({command.output_fd, POLLIN, 0});
    fds.push_back({command.process.pidfd(), POLLIN, 0});
  }
}

void AgentStarter::Read(Running& command, std::vector<News>& news) {
  const auto take = [&](absl::string_view line) {
    command.last_line = std::string(line);
    news.push_back({command.nodes, false, command.last_line});
  };
  char buffer[16 << 10];
  while (command.output_fd >= 0) {
    const ssize_t count = ::read(command.output_fd, buffer, sizeof(buffer));
    if (count < 0) return;
    if (count == 0) {
      ::close(std::exchange(command.output_fd, -1));
      command.lines.Flush(take);
      return;
    }
    command.lines.Add(absl::string_view(buffer, static_cast<size_t>(count)), take);
  }
}

std::vector<AgentStarter::News> AgentStarter::TakeNews() {
  std::vector<News> news;
  for (auto it = commands_.begin(); it != commands_.end();) {
    const std::optional<ExitStatus> exit = it->process.TryWait();
    Read(*it, news);
    if (!exit) {
      ++it;
      continue;
    }
    const std::string said = it->last_line.empty() ? "" : absl::StrCat(": ", it->last_line);
    news.push_back({it->nodes, true, absl::StrCat("its agent ", exit->Describe(), said), *exit});
    it->process.Reap();
    if (it->output_fd >= 0) ::close(it->output_fd);
    it = commands_.erase(it);
  }
  return news;
}

}  // namespace trainctl::launcher
