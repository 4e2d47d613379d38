// Starts the agents of nodes by a command each (ssh) or one for several (srun), and keeps these commands:
// what agents print comes back, and so does their end. Driven by the caller's poll(2) loop; no call waits.
// Not thread safe.
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

// Starts an agent on `host`, which reads its invitation from its standard input.
std::vector<std::string> SshCommand(const std::vector<std::string>& options, const std::string& host,
                                    const std::string& program);
// What ssh connects to for `host`, as its configuration says ("node1" may be 10.0.0.7 there); empty: it does
// not tell. Asks ssh, for 10 s at most.
std::string SshHostName(const std::vector<std::string>& options, const std::string& host);
// The same, of what `ssh -G` prints.
std::string ParseSshHostName(absl::string_view printed);
// One job step with an agent on each node, in the allocation that this process is in. Each finds its
// invitation in the file by the name that Slurm gives to its node. Of this process's environment agents get
// what a login has, LD_LIBRARY_PATH and Slurm's own variables; an option can say otherwise (--export=ALL).
std::vector<std::string> SrunCommand(const std::vector<std::string>& options,
                                     const std::vector<std::string>& nodes, const std::string& program,
                                     const std::string& invitations_path);

// The environment without what srun would take as options that divide a node among tasks: a batch script with
// --gpus-per-task would leave the agent, which is one task per node, some of the node's devices.
std::vector<std::string> SrunEnvironment(std::vector<std::string> environment);

class AgentStarter {
 public:
  struct News {
    std::vector<std::string> nodes;
    bool has_ended = false;
    std::string text;  // a line that it printed, or how it ended
  };

  AgentStarter() = default;
  // Ends what is left of the connections; agents notice by the end of theirs to the coordinator.
  ~AgentStarter();
  AgentStarter(const AgentStarter&) = delete;
  AgentStarter& operator=(const AgentStarter&) = delete;

  // `input`: a few KiB for the command's standard input. From now on it speaks for these nodes; a former
  // command that speaks for none any more is ended.
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
  // Whatever it has printed so far.
  void Read(Running& command, std::vector<News>& news);
  static void Close(Running& command);

  std::list<Running> commands_;
};

}  // namespace trainctl::launcher
