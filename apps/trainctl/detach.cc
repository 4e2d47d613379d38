#include "apps/trainctl/detach.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "apps/trainctl/early_stop.h"
#include "base/files.h"
#include "base/json.h"
#include "base/shell_quote.h"
#include "base/subprocess.h"
#include "launcher/printable_text.h"
#include "launcher/signal_pipe.h"
#include "launcher/worker_log.h"

namespace trainctl::cli {
namespace {

constexpr char kVariable[] = "TRAINCTL_DETACHED_FD";

int g_report_fd = -1;  // of the detached process

// Both ends of a pipe; closed when it goes.
struct Pipe {
  int ends[2] = {-1, -1};
  ~Pipe() {
    for (int i : {0, 1}) Close(i);
  }
  void Close(int i) {
    if (ends[i] >= 0) close(ends[i]);
    ends[i] = -1;
  }
};

// What this process was started with, read from the kernel: CLI11 does not keep it.
absl::StatusOr<std::vector<std::string>> OwnArguments() {
  TRAINCTL_ASSIGN_OR_RETURN(std::string text, ReadFile("/proc/self/cmdline"));
  if (!text.empty()) text.pop_back();  // the last one ends with a zero too
  std::vector<std::string> argv = absl::StrSplit(text, '\0');
  // The link itself would do, but then the process would be called "exe".
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const bool is_there = !error && access(program.c_str(), X_OK) == 0;  // not replaced by a new build
  argv[0] = is_there ? program.string() : "/proc/self/exe";
  return argv;
}

absl::StatusOr<Subprocess> StartDetached(int report_fd, int stdout_fd, int stderr_fd) {
  SpawnOptions options;
  TRAINCTL_ASSIGN_OR_RETURN(options.argv, OwnArguments());
  for (std::string& variable : CurrentEnvironment()) {
    if (!absl::StartsWith(variable, absl::StrCat(kVariable, "="))) options.env.push_back(std::move(variable));
  }
  options.env.push_back(absl::StrCat(kVariable, "=", report_fd));
  options.new_session = true;
  options.blocked_signals.assign(launcher::kStopSignals.begin(),
                                 launcher::kStopSignals.end());  // until it knows what to do
  options.stdout_fd = stdout_fd;
  options.stderr_fd = stderr_fd;
  options.inherited_fds = {report_fd};
  return Subprocess::Start(options);
}

// Copies what is there; false at the end.
bool Relay(int fd, std::FILE* out) {
  std::array<char, 4096> buffer;
  const ssize_t count = read(fd, buffer.data(), buffer.size());
  if (count < 0) return errno == EINTR || errno == EAGAIN;
  std::fwrite(buffer.data(), 1, static_cast<size_t>(count), out);
  std::fflush(out);
  return count > 0;
}

// Passes output and signals on until the run folder is named, or, when the person has asked for the end,
// until the process has ended. Empty: it ended.
std::string WaitForFirstStep(Subprocess& process, launcher::SignalPipe& signals, int report_fd, int stdout_fd,
                             int stderr_fd) {
  std::string run_path;
  bool asked_to_end = false;
  while (asked_to_end || !absl::EndsWith(run_path, "\n")) {
    std::array<pollfd, 5> waits = {pollfd{stderr_fd, POLLIN, 0}, pollfd{report_fd, POLLIN, 0},
                                   pollfd{signals.fd(), POLLIN, 0}, pollfd{process.pidfd(), POLLIN, 0},
                                   pollfd{stdout_fd, POLLIN, 0}};
    if (poll(waits.data(), waits.size(), -1) < 0) continue;
    for (int signal_number : signals.Take()) {
      process.Signal(signal_number);
      asked_to_end = true;
    }
    // A closed end is left out from now on: poll passes over -1.
    if (waits[0].revents != 0) {  // before the news that follow it
      if (!Relay(stderr_fd, stderr)) stderr_fd = -1;
    } else if (waits[4].revents != 0) {
      if (!Relay(stdout_fd, stdout)) stdout_fd = -1;
    } else if (waits[1].revents != 0) {
      std::array<char, 4096> buffer;
      const ssize_t count = read(report_fd, buffer.data(), buffer.size());
      if (count == 0) report_fd = -1;
      if (count > 0) run_path.append(buffer.data(), static_cast<size_t>(count));
    } else if (waits[3].revents != 0) {
      if (!run_path.empty()) {
        run_path.pop_back();
        std::fprintf(stderr, "ended; the remaining output is in %s/logs/launcher.log\n",
                     launcher::PrintableText(run_path).c_str());
      }
      return "";
    }
  }
  run_path.pop_back();
  return run_path;
}

// Reports once, with the first line of a step; from then on stdout and stderr are the launcher's log, which
// is limited as a worker's is.
class DetachedConsole : public launcher::JobObserver {
 public:
  DetachedConsole(std::string run_path, std::string log_path, int64_t log_limit_bytes, int report_fd)
      : run_path_(std::move(run_path)),
        log_path_(std::move(log_path)),
        log_limit_bytes_(log_limit_bytes),
        report_fd_(report_fd) {}
  ~DetachedConsole() override {
    if (report_fd_ >= 0) close(report_fd_);
  }

  void OnWorkerLine(const launcher::WorkerLine& line) override {
    lines_.OnWorkerLine(line);
    if (report_fd_ >= 0 && line.rank == 0 && absl::StartsWith(line.text, "step ")) Leave();
    LimitLog();
  }
  void OnMessage(absl::string_view line) override {
    lines_.OnMessage(line);
    LimitLog();
  }

 private:
  void LimitLog() {
    struct stat info;
    if (report_fd_ >= 0 || fstat(STDERR_FILENO, &info) != 0 || info.st_size < log_limit_bytes_) return;
    const absl::StatusOr<int> next = launcher::WorkerLog::StartAgain(log_path_);
    if (next.ok()) Use(*next);
  }

  static void Use(int target) {
    for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) dup2(target, fd);
    close(target);
  }

  void Leave() {
    BeginLog();
    const std::string word = run_path_ + "\n";
    (void)!write(report_fd_, word.data(), word.size());
    close(report_fd_);
    report_fd_ = -1;
  }

  void BeginLog() {
    const int log = open(log_path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (log < 0) lines_.OnMessage(absl::StrCat("cannot open ", log_path_, ": further output is discarded"));
    Use(log >= 0 ? log : open("/dev/null", O_WRONLY | O_CLOEXEC));
  }

  const std::string run_path_, log_path_;
  const int64_t log_limit_bytes_;
  int report_fd_;
  launcher::FdObserver lines_{STDERR_FILENO};
};

}  // namespace

bool BeginAsDetached(bool detach) {
  const char* text = std::getenv(kVariable);
  int fd = -1;
  struct stat info;
  if (detach && text != nullptr && absl::SimpleAtoi(text, &fd) && fd > STDERR_FILENO &&
      fstat(fd, &info) == 0 && S_ISFIFO(info.st_mode) && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0) {
    g_report_fd = fd;
  }
  unsetenv(kVariable);  // nothing that the workers start is detached by it
  return g_report_fd >= 0;
}

bool IsDetached() { return g_report_fd >= 0; }

absl::StatusOr<ExitCode> RunDetached(const Output& output) {
  Pipe report, out, err;
  if (pipe2(report.ends, O_CLOEXEC) != 0 || pipe2(out.ends, O_CLOEXEC) != 0 ||
      pipe2(err.ends, O_CLOEXEC) != 0)
    return ErrnoError("make", "a pipe", errno);
  TRAINCTL_ASSIGN_OR_RETURN(launcher::SignalPipe signals, launcher::SignalPipe::Install());
  BeginLaunch();
  TRAINCTL_ASSIGN_OR_RETURN(Subprocess process, StartDetached(report.ends[1], out.ends[1], err.ends[1]));
  for (Pipe* pipe : {&report, &out, &err}) pipe->Close(1);
  const std::string run_path = WaitForFirstStep(process, signals, report.ends[0], out.ends[0], err.ends[0]);
  if (run_path.empty()) {
    const ExitStatus status = process.Wait();
    return static_cast<ExitCode>(status.signaled ? 128 + status.code : status.code);
  }
  if (output.json) {
    const Json json = {
        {"schema", "trainctl.launch.v1"}, {"run", run_path}, {"detached", true}, {"pid", process.pid()}};
    std::puts(PrintableJson(json).c_str());
  } else {
    const std::string quoted = ShellQuote(run_path);
    std::printf("detached: process %d continues to run %s\n", static_cast<int>(process.pid()),
                launcher::PrintableText(run_path).c_str());
    std::fprintf(stderr, "see: trainctl status %s   trainctl logs --follow %s   end it: trainctl stop %s\n",
                 quoted.c_str(), quoted.c_str(), quoted.c_str());
  }
  return ExitCode::kOk;
}

std::shared_ptr<launcher::JobObserver> MakeDetachedConsole(const run::RunFolder& run,
                                                           int64_t log_limit_bytes) {
  (void)MakeDirs(run.logs_path());
  return std::make_shared<DetachedConsole>(run.path(), run.logs_path() + "/launcher.log", log_limit_bytes,
                                           g_report_fd);
}

}  // namespace trainctl::cli
