// Starts the agents of other machines over ssh and keeps their connections: an agent gets its invitation on
// its standard input, and what it prints comes back. Driven by the caller's poll(2) loop; no call waits but
// those that say so. Not thread safe.
#pragma once

#include <poll.h>

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/subprocess.h"
#include "launcher/worker_log.h"

namespace trainctl::launcher {

// The command that starts an agent on `host`: ssh's words, then what the shell there runs.
std::vector<std::string> AgentCommand(const std::vector<std::string>& ssh_options, const std::string& host,
                                      const std::string& program);

class AgentStarter {
 public:
  struct News {
    std::string node;
    bool has_ended = false;
    std::string text;  // a line that it printed, or how it ended
  };

  AgentStarter() = default;
  // Ends what is left of the connections; agents notice by the end of theirs to the coordinator.
  ~AgentStarter();
  AgentStarter(const AgentStarter&) = delete;
  AgentStarter& operator=(const AgentStarter&) = delete;

  // `invitation` ends with a newline. A node's former connection is ended.
  absl::Status Start(const std::string& node, const std::vector<std::string>& command,
                     absl::string_view invitation);
  void AddPollFds(std::vector<pollfd>& fds) const;
  std::vector<News> TakeNews();
  bool AllEnded() const { return agents_.empty(); }

 private:
  struct RunningAgent {
    Subprocess process;
    int output_fd = -1;
    LineSplitter lines;
    std::string last_line;
  };
  // Whatever it has printed so far.
  void Read(const std::string& node, RunningAgent& agent, std::vector<News>& news);
  static void Close(RunningAgent& agent);

  std::map<std::string, RunningAgent> agents_;  // by node
};

}  // namespace trainctl::launcher
