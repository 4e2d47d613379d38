// The stacks of a process that stands still, from gdb where there is one. Not thread safe.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/subprocess.h"

namespace trainctl::launcher {

class StackDump {
 public:
  // Begins. What the process says of itself (ShowStackSignal) comes by way of its own output.
  StackDump(pid_t pid, const Clock& clock);
  ~StackDump();
  StackDump(const StackDump&) = delete;
  StackDump& operator=(const StackDump&) = delete;

  int fd() const { return output_fd_; }  // readable when there is more; -1: nothing more comes
  // Hands on what there is. True when it is over: gdb has ended, or has taken too long.
  bool Continue(const std::function<void(absl::string_view text)>& sink);

 private:
  const Clock& clock_;
  absl::Duration begin_;
  std::optional<Subprocess> gdb_;
  int output_fd_ = -1;
};

}  // namespace trainctl::launcher
