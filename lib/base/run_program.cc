#include "base/run_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
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

// A file without a name that holds `contents` and is at its start; -1 with errno if there is none.
int MemoryFile(absl::string_view contents) {
  const int fd = ::memfd_create("input", MFD_CLOEXEC);
  if (fd < 0) return -1;
  if (!WriteAll(fd, contents, "input").ok() || ::lseek(fd, 0, SEEK_SET) != 0) {
    ::close(fd);
    return -1;
  }
  return fd;
}

// Reads `fd` until the process has ended, then the rest of its output. False if it is still running at the
// deadline.
bool ReadUntilEnd(int fd, int pidfd, absl::Time deadline, size_t max_bytes, std::string& text) {
  while (true) {
    const int64_t left_ms = absl::ToInt64Milliseconds(deadline - absl::Now());
    if (left_ms <= 0) return false;
    pollfd fds[] = {{pidfd, POLLIN, 0}, {fd, POLLIN, 0}};
    const int count = ::poll(fds, 2, static_cast<int>(std::min<int64_t>(left_ms, 1 << 30)));
    if (count < 0 && errno != EINTR) return false;
    if (count <= 0) continue;
    if (fd >= 0 && fds[1].revents != 0) {
      char buffer[1024];
      const ssize_t num_bytes = ::read(fd, buffer, sizeof(buffer));
      if (num_bytes == 0) fd = -1;  // closed: poll passes over -1
      if (num_bytes > 0)
        text.append(buffer, std::min(static_cast<size_t>(num_bytes), max_bytes - text.size()));
      continue;
    }
    if (fds[0].revents != 0) return true;
  }
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

absl::StatusOr<ProgramEnd> RunHandler(const std::vector<std::string>& argv, absl::string_view input,
                                      absl::Duration patience, size_t max_bytes) {
  const int input_fd = MemoryFile(input);
  if (input_fd < 0) return ErrnoError("make", "a file in memory", errno);
  const int null_fd = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  int ends[2] = {-1, -1};
  absl::StatusOr<Subprocess> program = EnvironmentError("");
  if (null_fd < 0 || ::pipe2(ends, O_CLOEXEC) != 0) {
    program = ErrnoError("open", "/dev/null and a pipe", errno);
  } else {
    SpawnOptions options;
    options.argv = argv;
    options.env = CurrentEnvironment();
    options.stdin_fd = input_fd;
    options.stdout_fd = null_fd;
    options.stderr_fd = ends[1];
    options.new_session = true;
    options.die_with_parent = true;
    program = Subprocess::Start(options);
  }
  for (const int fd : {input_fd, null_fd, ends[1]}) {
    if (fd >= 0) ::close(fd);
  }
  ProgramEnd end;
  if (program.ok()) {
    end.is_late = !ReadUntilEnd(ends[0], program->pidfd(), absl::Now() + patience, max_bytes, end.output);
    if (end.is_late) program->SignalGroup(SIGKILL);
    end.exit = program->Wait();
    absl::StripAsciiWhitespace(&end.output);
  }
  if (ends[0] >= 0) ::close(ends[0]);
  if (!program.ok()) return program.status();
  return end;
}

}  // namespace trainctl
