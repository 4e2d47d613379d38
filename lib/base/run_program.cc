#include "base/run_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/ascii.h"
#include "base/files.h"
#include "base/status.h"

namespace trainctl {
namespace {

// Whether `fd` has something to read, or its end, before the deadline.
bool IsReadable(int fd, absl::Time deadline) {
  while (true) {
    const int64_t left_ms = absl::ToInt64Milliseconds(deadline - absl::Now());
    if (left_ms <= 0) return false;
    pollfd ready = {fd, POLLIN, 0};
    const int count = ::poll(&ready, 1, static_cast<int>(std::min<int64_t>(left_ms, 1 << 30)));
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) return false;
  }
}

// What a program prints until it closes its output, says too much, or the deadline.
std::string ReadOutput(int fd, absl::Time deadline, size_t max_bytes) {
  std::string text;
  while (text.size() < max_bytes && IsReadable(fd, deadline)) {
    char buffer[1024];
    const ssize_t num_bytes = ::read(fd, buffer, sizeof(buffer));
    if (num_bytes < 0 && errno == EINTR) continue;
    if (num_bytes <= 0) break;
    text.append(buffer, static_cast<size_t>(num_bytes));
  }
  return text;
}

}  // namespace

absl::StatusOr<ProgramEnd> RunProgram(const std::vector<std::string>& argv, absl::Duration patience,
                                      size_t max_bytes) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoError("make", "a pipe", errno);
  SpawnOptions options;
  options.argv = argv;
  options.env = CurrentEnvironment();
  options.stdout_fd = ends[1];
  options.stderr_fd = ends[1];
  options.die_with_parent = true;
  absl::StatusOr<Subprocess> program = Subprocess::Start(options);
  ::close(ends[1]);
  if (!program.ok()) {
    ::close(ends[0]);
    return program.status();
  }
  const absl::Time deadline = absl::Now() + patience;
  ProgramEnd end;
  end.output = ReadOutput(ends[0], deadline, max_bytes);
  // One that has closed its output may still go on.
  const bool says_too_much = end.output.size() >= max_bytes;
  end.is_late = !says_too_much && !IsReadable(program->pidfd(), deadline);
  if (says_too_much || end.is_late) program->Signal(SIGKILL);
  ::close(ends[0]);
  absl::StripAsciiWhitespace(&end.output);
  end.exit = program->Wait();
  return end;
}

}  // namespace trainctl
