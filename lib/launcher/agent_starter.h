// Starts the agents of a job's nodes, with one command per node (ssh) or one command for several nodes
// (srun). Monitors these commands and returns their output and exit status. Driven by the caller's poll(2)
// loop; no call blocks. Not thread-safe.
#pragma once

#include <poll.h>

#include <list>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/subprocess.h"
#include "launcher/worker_log.h"

namespace trainctl::launcher {

// Returns the command that runs `verb` of trainctl on `host`. An agent reads its invitation from standard
// input.
std::vector<std::string> SshCommand(const std::vector<std::string>& options, const std::string& host,
                                    const std::string& program, const std::string& verb = "agent");
// Returns the host name or address that ssh's configuration maps `host` to; for example, "node1" may map to
// 10.0.0.7. Empty if ssh does not report it. Runs ssh and blocks for up to 10 s.
std::string SshHostName(const std::vector<std::string>& options, const std::string& host);
// Parses the output of `ssh -G` for SshHostName.
std::string ParseSshHostName(absl::string_view printed);
// Returns the command for one job step that runs an agent on each of `nodes`, inside the current Slurm
// allocation. Each agent looks up its invitation in the file at `invitations_path` by its Slurm node name.
// Unless `options` override it (--export=ALL), agents run with a login environment plus LD_LIBRARY_PATH and
// Slurm's own variables.
std::vector<std::string> SrunCommand(const std::vector<std::string>& options,
                                     const std::vector<std::string>& nodes, const std::string& program,
                                     const std::string& invitations_path);

// Returns `environment` without the variables that srun would interpret as options for dividing a node among
// tasks, for the tasks' output, or for the end of the step. Such variables are set in a batch script with
// --gpus-per-task, in a shell started by `srun --pty`, and by scripts themselves. With them, the agent, as
// the only task on its node, would receive only part of the node, or the launcher would not see its output.
std::vector<std::string> SrunEnvironment(std::vector<std::string> environment);

// Returns the srun options that give the agents' step `gpus_per_node` of the job's GPUs on each node. Without
// them, Slurm would give a job submitted with --gpus-per-task or --gpus only the GPUs of one task. Returns no
// options if `step_options` already select GPUs, or if `job_has_gpus` is false, because Slurm rejects them in
// a job without GPUs.
std::vector<std::string> SrunGpuOptions(const std::vector<std::string>& step_options, int64_t gpus_per_node,
                                        bool job_has_gpus);

class AgentStarter {
 public:
  struct News {
    std::vector<std::string> nodes;
    bool has_ended = false;
    std::string text;      // line of output, or a description of how the command ended
    ExitStatus exit = {};  // exit status; set if the command has ended
  };

  AgentStarter() = default;
  // Kills the remaining commands. Their agents notice when the connection to the coordinator closes.
  ~AgentStarter();
  AgentStarter(const AgentStarter&) = delete;
  AgentStarter& operator=(const AgentStarter&) = delete;

  // Starts `command` for these nodes and writes `input`, which must not exceed a few KiB, to its standard
  // input. Kills an earlier command if it no longer serves any node.
  absl::Status Start(const std::vector<std::string>& nodes, const std::vector<std::string>& command,
                     absl::string_view input);
  void AddPollFds(std::vector<pollfd>& fds) const;
  std::vector<News> TakeNews();
  bool AllEnded() const { return commands_.empty(); }

 private:
  struct Running {
    std::vector<std::string> nodes;
    Subprocess process;
    int output_fd = -1;
    LineSplitter lines;
    std::string last_line;
  };
  // Reads the output available so far.
  void Read(Running& command, std::vector<News>& news);
  static void Close(Running& command);

  std::list<Running> commands_;
};

}  // namespace trainctl::launcher
