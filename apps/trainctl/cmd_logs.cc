#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "apps/trainctl/command.h"
#include "apps/trainctl/job_access.h"
#include "apps/trainctl/option_checks.h"
#include "launcher/worker_log.h"
#include "run/run_folder.h"

namespace trainctl::cli {
namespace {

constexpr auto kFollowInterval = std::chrono::milliseconds(200);

// // Reads one rank's log, the older part first, and each time on to its present end. If it is the only log,
// it is copied byte by byte; otherwise each line gets a prefix.
class LogReader {
 public:
  LogReader(int rank, std::string path, bool prefix) : rank_(rank), path_(std::move(path)), prefix_(prefix) {}
  LogReader(LogReader&& other) noexcept
      : rank_(other.rank_),
        path_(std::move(other.path_)),
        prefix_(other.prefix_),
        fd_(std::exchange(other.fd_, -1)),
        splitter_(std::move(other.splitter_)) {}
  ~LogReader() {
    if (fd_ >= 0) ::close(fd_);
  }

  absl::Status CopyNew() {
    if (fd_ < 0) {
      fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
      const int error = errno;
      // Check the older path second: if the log was renamed in between, this is where it is now.
      const bool has_older = PathExists(launcher::WorkerLog::OlderPath(path_));
      if (fd_ < 0 && !has_older) return ErrnoError("open the log", path_, error);
      TRAINCTL_RETURN_IF_ERROR(CopyOlder(fd_, fd_));
      if (fd_ < 0) return absl::OkStatus();  // its newest part is being made
    }
    TRAINCTL_RETURN_IF_ERROR(Copy(fd_));
    const int next = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    if (next < 0) return absl::OkStatus();  // it is being renamed
    if (AreOneFile(next, fd_)) {
      ::close(next);
      return absl::OkStatus();
    }
    // The launcher has started a new log, perhaps twice. The bytes written to this one since the last read
    // come first.
    TRAINCTL_RETURN_IF_ERROR(Copy(fd_));
    TRAINCTL_RETURN_IF_ERROR(CopyOlder(fd_, next));
    ::close(std::exchange(fd_, next));
    return Copy(fd_);
  }

  void Finish() {
    splitter_.Flush([&](absl::string_view line) { PrintLine(line); });
  }

 private:
  static bool AreOneFile(int a, int b) {
    struct stat of_a, of_b;
    return ::fstat(a, &of_a) == 0 && ::fstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
           of_a.st_ino == of_b.st_ino;
  }

  // The older part, unless it is one of these files.
  absl::Status CopyOlder(int a, int b) {
    const int older = ::open(launcher::WorkerLog::OlderPath(path_).c_str(), O_RDONLY | O_CLOEXEC);
    if (older < 0) return absl::OkStatus();
    const bool is_known = (a >= 0 && AreOneFile(older, a)) || (b >= 0 && AreOneFile(older, b));
    const absl::Status status = is_known ? absl::OkStatus() : Copy(older);
    ::close(older);
    return status;
  }

  // Copies from the position of the descriptor to the end.
  absl::Status Copy(int fd) {
    char buffer[64 << 10];
    ssize_t count;
    while ((count = ::read(fd, buffer, sizeof(buffer))) > 0) {
      const absl::string_view bytes(buffer, static_cast<size_t>(count));
      if (prefix_) {
        splitter_.Add(bytes, [&](absl::string_view line) { PrintLine(line); });
      } else {
        std::fwrite(bytes.data(), 1, bytes.size(), stdout);
      }
    }
    return count < 0 ? ErrnoError("read the log", path_, errno) : absl::OkStatus();
  }

  void PrintLine(absl::string_view line) const {
    std::printf("[rank %d] %.*s\n", rank_, static_cast<int>(line.size()), line.data());
  }

  int rank_;
  std::string path_;
  bool prefix_;
  int fd_ = -1;
  launcher::LineSplitter splitter_;
};

// Its newest part may be missing for a moment.
bool HasLog(const run::RunFolder& run, int rank) {
  const std::string path = run.log_path(rank);
  return PathExists(path) || PathExists(launcher::WorkerLog::OlderPath(path));
}

absl::Status PrintLogs(const std::string& path, int rank, bool follow) {
  TRAINCTL_ASSIGN_OR_RETURN(const run::RunFolder run, run::RunFolder::Open(path));
  std::vector<LogReader> readers;
  if (rank >= 0) {
    if (!HasLog(run, rank) && HasLog(run, 0)) {
      int num_ranks = 1;
      while (HasLog(run, num_ranks)) ++num_ranks;
      return UsageError(absl::StrCat("--rank ", rank, ": ", run.path(), " contains the logs of ", num_ranks,
                                     " rank(s), numbered 0 to ", num_ranks - 1));
    }
    readers.emplace_back(rank, run.log_path(rank), false);
  } else {
    for (int i = 0; HasLog(run, i); ++i) readers.emplace_back(i, run.log_path(i), true);
  }
  if (readers.empty() || (rank >= 0 && !HasLog(run, rank)))
    return EnvironmentError(absl::StrCat(run.path(), " has no logs yet"));
  RunWatch watch(run);
  while (true) {
    // Asked before reading: what was written before the end is then read.
    const bool more = follow && watch.GoesOn();
    for (LogReader& reader : readers) TRAINCTL_RETURN_IF_ERROR(reader.CopyNew());
    std::fflush(stdout);
    if (std::ferror(stdout) != 0) return EnvironmentError("cannot write to stdout");
    if (!more) break;
    std::this_thread::sleep_for(kFollowInterval);
  }
  for (LogReader& reader : readers) reader.Finish();
  return absl::OkStatus();
}

}  // namespace

void AddLogs(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("logs", "Print the output of a run's workers");
  struct Options {
    std::string path;
    int rank = -1;
    bool follow = false;
  };
  auto options = std::make_shared<Options>();
  verb->add_option("RUN", options->path, "Run folder (default: runs/latest)");
  verb->add_option(
          "--rank", options->rank,
          "Print only this rank's log, without prefixes (default: all ranks, with the rank before each line)")
      ->check(WholeNumber(0, std::numeric_limits<int>::max()))
      ->type_name("N");
  verb->add_flag("--follow,-f", options->follow, "Keep printing new output until the run ends");
  SetExample(*verb, "trainctl logs --rank 0 --follow");
  verb->callback([&action, options] {
    action = [options](const Output& output) -> absl::StatusOr<ExitCode> {
      TRAINCTL_RETURN_IF_ERROR(PrintLogs(options->path, options->rank, options->follow));
      return ExitCode::kOk;
    };
  });
}

}  // namespace trainctl::cli
