#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/files.h"
#include "base/status.h"
#include "base/subprocess.h"
#include "doctor/doctor.h"

namespace trainctl::doctor {
namespace {

constexpr size_t kMostOutput = 16 << 10;

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
std::string ReadOutput(int fd, absl::Time deadline) {
  std::string text;
  while (text.size() < kMostOutput && IsReadable(fd, deadline)) {
    char buffer[1024];
    const ssize_t num_bytes = ::read(fd, buffer, sizeof(buffer));
    if (num_bytes < 0 && errno == EINTR) continue;
    if (num_bytes <= 0) break;
    text.append(buffer, static_cast<size_t>(num_bytes));
  }
  return text;
}

std::string LastLine(const std::string& text) {
  const size_t at = text.rfind('\n');
  return at == std::string::npos ? text : text.substr(at + 1);
}

Finding Broken(const std::string& advice) { return {"worker", "does not start", Health::kBad, advice}; }

std::string HowToMend(const std::string& output) {
  if (absl::StrContains(output, "error while loading shared libraries")) {
    return "; the worker finds LibTorch where the build found it: put that folder back, or build again with "
           "./dev build "
           "(TRAINCTL_LIBTORCH names another one); in a bundle, run its ./setup";
  }
  return "; ./dev build makes it anew";
}

}  // namespace

Finding InspectWorker(const absl::StatusOr<std::string>& program, absl::Duration patience) {
  if (!program.ok()) return Broken(std::string(program.status().message()));
  int ends[2];
  if (::pipe(ends) != 0) return Broken(std::string(ErrnoError("make", "a pipe", errno).message()));
  SpawnOptions options;
  options.argv = {*program, "version"};
  options.env = CurrentEnvironment();
  options.stdout_fd = ends[1];
  options.stderr_fd = ends[1];
  options.die_with_parent = true;
  absl::StatusOr<Subprocess> worker = Subprocess::Start(options);
  ::close(ends[1]);
  if (!worker.ok()) {
    ::close(ends[0]);
    return Broken(std::string(worker.status().message()));
  }
  const absl::Time deadline = absl::Now() + patience;
  std::string output = ReadOutput(ends[0], deadline);
  // One that has closed its output may still go on.
  const bool says_too_much = output.size() >= kMostOutput;
  const bool is_late = !says_too_much && !IsReadable(worker->pidfd(), deadline);
  if (says_too_much || is_late) worker->Signal(SIGKILL);
  ::close(ends[0]);
  absl::StripAsciiWhitespace(&output);
  const ExitStatus ended = worker->Wait();
  if (is_late) return Broken(absl::StrCat(*program, " does not end within ", absl::FormatDuration(patience)));
  if (!ended.Success()) {
    return Broken(absl::StrCat(*program, " ", ended.Describe(), output.empty() ? "" : ": ", LastLine(output),
                               HowToMend(output)));
  }
  return {.name = "worker", .value = LastLine(output)};
}

}  // namespace trainctl::doctor
