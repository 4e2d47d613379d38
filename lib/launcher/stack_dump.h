// Dumps the stacks of a hanging process with gdb. Not thread-safe.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>

#include "absl/strings/string_view.h"
#include "base/subprocess.h"

namespace trainctl::launcher {

class StackDump {
 public:
  static bool IsPossible();  // whether gdb is installed

  // Starts gdb. If the process still reports its own stack (ShowStackSignal), the report appears in the
  // process's output, not here.
  explicit StackDump(pid_t pid);
  // Terminates gdb, which detaches from the process.
  ~StackDump();
  StackDump(const StackDump&) = delete;
  StackDump& operator=(const StackDump&) = delete;

  int fd() const { return output_fd_; }  // readable while there is output; -1 once it has ended
  // Passes the available output to `sink`. Returns true once gdb has ended, or if it did not start.
  bool Continue(const std::function<void(absl::string_view text)>& sink);

 private:
  std::optional<Subprocess> gdb_;
  int output_fd_ = -1;
};

}  // namespace trainctl::launcher
