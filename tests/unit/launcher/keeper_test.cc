// What keeps the workers: how they end is told, and nothing of them is left.
#include "launcher/keeper.h"

#include <gmock/gmock.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "tests/unit/launcher/job_fixture.h"

namespace trainctl::launcher {
namespace {

using Kind = KeeperEvent::Kind;

class KeeperTest : public JobTest {
 protected:
  // Adopts what a keeper that dies leaves behind, as a launcher does.
  KeeperTest() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }
  ~KeeperTest() override { ::prctl(PR_SET_CHILD_SUBREAPER, 0); }

  static SpawnOptions Shell(const std::string& script) {
    SpawnOptions options;
    options.argv = {"/bin/sh", "-c", script};
    options.env = {"PATH=/usr/bin:/bin"};
    return options;
  }
  static Keeper Start(const std::vector<std::string>& scripts,
                      absl::Duration stuck_after = absl::Seconds(60)) {
    std::vector<SpawnOptions> workers;
    for (const std::string& script : scripts) workers.push_back(Shell(script));
    return *Keeper::Start(std::move(workers), -1, stuck_after);
  }
  // The next event that is not kStarted.
  static KeeperEvent Next(Keeper& keeper) {
    static std::vector<KeeperEvent> waiting;
    while (true) {
      while (!waiting.empty()) {
        const KeeperEvent event = waiting.front();
        waiting.erase(waiting.begin());
        if (event.kind != Kind::kStarted) return event;
      }
      pollfd wait = {keeper.fd(), POLLIN, 0};
      ::poll(&wait, 1, -1);
      waiting = keeper.Take();
    }
  }
  // A shell command: its own pid into the file "pid".
  std::string TellPid() {
    return absl::StrCat("printf $$ > ", Path("tmp"), "; mv ", Path("tmp"), " ", Path("pid"));
  }
  pid_t AwaitPid() {
    Await(Path("pid"));
    int pid = -1;
    EXPECT_TRUE(absl::SimpleAtoi(*ReadFile(Path("pid")), &pid));
    return pid;
  }
};

TEST_F(KeeperTest, TellsHowEachWorkerEnds) {
  Keeper keeper = Start({"exit 3", "kill -SEGV $$", "sleep 1000"});
  std::map<int, std::string> ends;
  while (ends.size() < 2) {
    const KeeperEvent event = Next(keeper);
    ASSERT_EQ(event.kind, Kind::kExited);
    ends[event.worker] = event.exit.Describe();
  }
  EXPECT_EQ(ends[0], "exited with code 3");
  EXPECT_EQ(ends[1], "killed by SIGSEGV (11)");
  keeper.Signal(2, SIGTERM);
  EXPECT_EQ(Next(keeper).exit.Describe(), "killed by SIGTERM (15)");
  keeper.KillAll();
  EXPECT_EQ(Next(keeper).kind, Kind::kAllGone);
}

TEST_F(KeeperTest, AProgramThatCannotBeExecutedIsToldWithTheReason) {
  SpawnOptions missing;
  missing.argv = {Path("missing")};
  Keeper keeper = *Keeper::Start({missing, Shell("exit 0")}, -1, absl::Seconds(60));
  const KeeperEvent event = Next(keeper);
  EXPECT_EQ(event.kind, Kind::kNotStarted);
  EXPECT_EQ(event.error, ENOENT);
  EXPECT_EQ(Next(keeper).worker, 1);
}

TEST_F(KeeperTest, WhatLeftItsSessionAndEmptiedItsEnvironmentEndsToo) {
  const std::string escape =
      absl::StrCat("setsid env -i /bin/sh -c '", TellPid(), "; exec /bin/sleep 1000' & exit 0");
  Keeper keeper = Start({escape});
  EXPECT_EQ(Next(keeper).kind, Kind::kExited);
  AwaitPid();
  EXPECT_TRUE(IsAlive(Path("pid")));
  keeper.KillAll();
  EXPECT_EQ(Next(keeper).kind, Kind::kAllGone);
  EXPECT_FALSE(IsAlive(Path("pid")));
}

TEST_F(KeeperTest, OrphansThatEndAreReapedWhileTheWorkersRun) {
  const std::string orphan = absl::StrCat("(/bin/sh -c '", TellPid(), "' &) ; sleep 1000");
  Keeper keeper = Start({orphan});
  const std::string stat = absl::StrCat("/proc/", AwaitPid(), "/stat");
  while (PathExists(stat)) std::this_thread::yield();  // a zombie would stay
  keeper.KillAll();
  EXPECT_EQ(Next(keeper).kind, Kind::kExited);
  EXPECT_EQ(Next(keeper).kind, Kind::kAllGone);
}

TEST_F(KeeperTest, AStoppedOwnerLosesItsWorkersWhereThatWasAgreed) {
  ASSERT_TRUE(WriteFileAtomic(Path("socket"), "").ok());
  ASSERT_EQ(::mkdir(Path("folder").c_str(), 0700), 0);
  const pid_t owner = ::fork();
  if (owner == 0) {
    std::vector<SpawnOptions> workers = {Shell(absl::StrCat(TellPid(), "; exec sleep 1000"))};
    absl::StatusOr<Keeper> keeper =
        Keeper::Start(std::move(workers), -1, absl::Seconds(60),
                      {.silent_after = absl::Seconds(2), .leftovers = {Path("socket"), Path("folder")}});
    if (!keeper.ok()) ::_exit(1);
    while (!PathExists(Path("stand-still"))) {
      keeper->Beat();
      ::usleep(1000);
    }
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  AwaitPid();
  // It outlives the agreed silence as long as its owner gives signs of life.
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  EXPECT_TRUE(IsAlive(Path("pid")));
  ASSERT_TRUE(WriteFileAtomic(Path("stand-still"), "").ok());
  AwaitEnd(Path("pid"));
  int status = 0;
  ASSERT_EQ(::waitpid(owner, &status, 0), owner);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "nothing that it would do is wanted";
  while (PathExists(Path("folder"))) std::this_thread::yield();
  EXPECT_FALSE(PathExists(Path("socket")));
}

TEST_F(KeeperTest, WithoutWorkersItRemovesWhatAKilledOwnerLeaves) {
  ASSERT_EQ(::mkdir(Path("folder").c_str(), 0700), 0);
  const pid_t owner = ::fork();
  if (owner == 0) {
    const absl::StatusOr<Keeper> keeper =
        Keeper::Start({}, -1, absl::Seconds(60), {.folder = Path("folder"), .name = "trainctl-guard"});
    const bool is_ready = keeper.ok() && WriteFileAtomic(Path("folder/later"), "").ok();
    if (!is_ready) ::_exit(1);
    while (true) ::pause();
  }
  while (!PathExists(Path("folder/later"))) std::this_thread::yield();
  ::kill(owner, SIGKILL);
  ASSERT_EQ(::waitpid(owner, nullptr, 0), owner);
  while (PathExists(Path("folder"))) std::this_thread::yield();
}

TEST_F(KeeperTest, OneThatIsDismissedIsGoneEvenIfItIsStopped) {
  ASSERT_EQ(::mkdir(Path("folder").c_str(), 0700), 0);
  absl::StatusOr<Keeper> keeper = Keeper::Start({}, -1, absl::Seconds(60), {.folder = Path("folder")});
  ASSERT_TRUE(keeper.ok()) << keeper.status();
  const pid_t pid = keeper->pid();
  ::kill(pid, SIGSTOP);
  keeper->Dismiss();
  EXPECT_EQ(::kill(pid, 0), -1);
  EXPECT_TRUE(PathExists(Path("folder"))) << "its owner lives, whose it is";
}

TEST_F(KeeperTest, ItsOwnEndIsToldAndTakesTheWorkersWithIt) {
  Keeper keeper = Start({absl::StrCat(TellPid(), "; exec sleep 1000")});
  AwaitPid();
  ::kill(keeper.pid(), SIGKILL);
  EXPECT_EQ(Next(keeper).kind, Kind::kLost);
  AwaitEnd(Path("pid"));
}

// A process whose tracer does not wait for it stays, killed as it is, as one does that hangs in the kernel.
TEST_F(KeeperTest, AProcessThatCannotBeEndedIsNamed) {
  Keeper keeper = Start({absl::StrCat(TellPid(), "; exec sleep 1000"), "sleep 1000"},
                        /*stuck_after=*/absl::Milliseconds(50));
  const pid_t pid = AwaitPid();
  if (::ptrace(PTRACE_SEIZE, pid, nullptr, nullptr) != 0) GTEST_SKIP() << "no process can be traced here";
  keeper.KillAll();
  const KeeperEvent ended = Next(keeper);
  EXPECT_EQ(ended.kind, Kind::kExited);
  EXPECT_EQ(ended.worker, 1);
  const KeeperEvent stuck = Next(keeper);
  EXPECT_EQ(stuck.kind, Kind::kStuck);
  EXPECT_EQ(stuck.worker, 0);
  EXPECT_EQ(stuck.pid, pid);
  ::waitpid(pid, nullptr, 0);  // the tracer's; now its parent gets it
  EXPECT_EQ(Next(keeper).worker, 0);
  EXPECT_EQ(Next(keeper).kind, Kind::kAllGone);
}

}  // namespace
}  // namespace trainctl::launcher
