#include "launcher/stack_dump.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace trainctl::launcher {

bool StackDump::IsPossible() { return !FindInPath("gdb").empty(); }

StackDump::StackDump(pid_t pid) {
  const std::string program = FindInPath("gdb");
  int output[2];
  if (program.empty() || ::pipe2(output, O_CLOEXEC) != 0) return;
  ::fcntl(output[0], F_SETFL, O_NONBLOCK);
  SpawnOptions options;
  // The main thread comes last, and so is what the end of the log shows.
  options.argv = {program,
                  "-p",
                  absl::StrCat(pid),
                  "-batch",
                  "-nx",
                  "-ex",
                  "set pagination off",
                  "-ex",
                  "thread apply all backtrace 18"};
  options.env = CurrentEnvironment();
  options.new_session = true;
  options.die_with_parent = true;
  options.stdout_fd = output[1];
  options.stderr_fd = output[1];
  absl::StatusOr<Subprocess> gdb = Subprocess::Start(options);
  ::close(output[1]);
  if (gdb.ok()) {
    gdb_ = *std::move(gdb);
    output_fd_ = output[0];
  } else {
    ::close(output[0]);
  }
}

StackDump::~StackDump() {
  if (output_fd_ >= 0) ::close(output_fd_);
  if (gdb_) {
    gdb_->SignalGroup(SIGKILL);
    gdb_->Wait();
  }
}

bool StackDump::Continue(const std::function<void(absl::string_view text)>& sink) {
  char buffer[16 << 10];
  ssize_t count = 0;
  while (output_fd_ >= 0 && (count = ::read(output_fd_, buffer, sizeof(buffer))) > 0) {
    sink(absl::string_view(buffer, static_cast<size_t>(count)));
  }
  if (output_fd_ >= 0 && count == 0) ::close(std::exchange(output_fd_, -1));
  return output_fd_ < 0;
}

}  // namespace trainctl::launcher
