// The stacks of a process that stands still, from gdb. Not thread safe.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>

#include "absl/strings/string_view.h"
#include "base/subprocess.h"

namespace trainctl::launcher {

class StackDump {
 public:
  static bool IsPossible();  // there is a gdb

  // Begins. What the process says of itself (ShowStackSignal) comes by way of its own output.
  explicit StackDump(pid_t pid);
  // Ends gdb, which lets go of the process.
  ~StackDump();
  StackDump(const StackDump&) = delete;
  StackDump& operator=(const StackDump&) = delete;

  int fd() const { return output_fd_; }  // readable when there is more; -1: nothing more comes
  // Hands on what there is. True when it is over: gdb has ended, or did not start.
  bool Continue(const std::function<void(absl::string_view text)>& sink);

 private:
  std::optional<Subprocess> gdb_;
  int output_fd_ = -1;
};

}  // namespace trainctl::launcher
