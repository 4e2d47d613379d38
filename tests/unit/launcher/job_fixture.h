// Real jobs of fake workers over the real service, for tests of the launcher.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/files.h"
#include "base/subprocess.h"
#include "launcher/job.h"
#include "rpc/server.h"

namespace trainctl::launcher {

class RecordingObserver : public JobObserver {
 public:
  void OnWorkerLine(const WorkerLine& line) override {
    std::lock_guard lock(mutex_);
    worker_lines_.emplace_back(line.rank, line.text);
  }
  void OnMessage(absl::string_view line) override {
    std::lock_guard lock(mutex_);
    absl::StrAppend(&messages_, line, "\n");
  }
  void OnProgress(const JobProgress& progress) override {
    std::lock_guard lock(mutex_);
    max_step_ = std::max(max_step_, progress.progress.step);
  }
  std::vector<std::string> LinesOf(int rank) const {
    std::lock_guard lock(mutex_);
    std::vector<std::string> lines;
    for (const auto& [line_rank, line] : worker_lines_) {
      if (line_rank == rank) lines.push_back(line);
    }
    return lines;
  }
  std::string messages() const {
    std::lock_guard lock(mutex_);
    return messages_;
  }
  int64_t max_step() const {
    std::lock_guard lock(mutex_);
    return max_step_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::pair<int, std::string>> worker_lines_;
  std::string messages_;
  int64_t max_step_ = -1;
};

inline constexpr char kFakeWorker[] = TRAINCTL_BIN_DIR "/fake_worker";
inline constexpr char kFakeLaunch[] = TRAINCTL_BIN_DIR "/fake_launch";

class JobTest : public testing::Test {
 protected:
  JobTest() {
    std::string folder = "/tmp/trainctl-job-test-XXXXXX";
    EXPECT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    options_.rendezvous = &rpc::StartServer;
    options_.worker_program = kFakeWorker;
    options_.num_workers = 2;
    options_.max_restarts = 0;
    options_.stop_timeout = absl::Seconds(20);
    options_.observer = observer_;
  }
  ~JobTest() override { (void)RemoveAll(folder_); }

  std::string Path(absl::string_view name) const { return absl::StrCat(folder_, "/", long_name_, name); }

  // In this process, on the run folder "run".
  absl::StatusOr<JobOutcome> Run(std::vector<std::string> script) {
    TRAINCTL_ASSIGN_OR_RETURN(run::RunFolder run, run::RunFolder::CreateAt(Path("run")));
    options_.run = &run;
    options_.worker_args = std::move(script);
    return RunJob(options_);
  }

  // In a launcher process of its own; what it prints goes to "launch.out".
  Subprocess Launch(int num_workers, std::vector<std::string> script) {
    SpawnOptions spawn;
    spawn.argv = {kFakeLaunch, Path("run"), absl::StrCat(num_workers), kFakeWorker};
    spawn.argv.insert(spawn.argv.end(), script.begin(), script.end());
    spawn.env = CurrentEnvironment();
    const int fd = ::open(Path("launch.out").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    spawn.stdout_fd = fd;
    spawn.stderr_fd = fd;
    absl::StatusOr<Subprocess> process = Subprocess::Start(spawn);
    ::close(fd);
    EXPECT_TRUE(process.ok()) << process.status();
    return *std::move(process);
  }

  run::RunState State() const {
    const absl::StatusOr<run::RunFolder> run = run::RunFolder::Open(Path("run"));
    EXPECT_TRUE(run.ok()) << run.status();
    const absl::StatusOr<run::RunState> state = run->ReadState();
    EXPECT_TRUE(state.ok()) << state.status();
    return *state;
  }

  std::string Log(int rank) const {
    return ReadFile(Path(absl::StrCat("run/logs/rank-0000", rank, ".log"))).value_or("");
  }

  // Waits, without a limit of its own, until a file is there.
  static void Await(const std::string& path) {
    while (!PathExists(path)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }

  // Waits until the process whose pid is in `pid_file` has ended (a zombie has).
  static void AwaitEnd(const std::string& pid_file) {
    while (IsAlive(pid_file)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }

  static bool IsAlive(const std::string& pid_file) {
    const absl::StatusOr<std::string> pid = ReadFile(pid_file);
    EXPECT_TRUE(pid.ok()) << pid.status();
    const absl::StatusOr<std::string> stat = ReadFile(absl::StrCat("/proc/", *pid, "/stat"));
    return stat.ok() && stat->find(") Z") == std::string::npos;
  }

  std::string folder_;
  std::string long_name_;  // "" or a folder between, with its slash
  std::shared_ptr<RecordingObserver> observer_ = std::make_shared<RecordingObserver>();
  JobOptions options_;
};

}  // namespace trainctl::launcher
