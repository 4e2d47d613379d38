#include "launcher/job.h"

#include <gmock/gmock.h>

#include "absl/strings/substitute.h"
#include "launcher/cpu_layout.h"
#include "launcher/worker_signals.h"
#include "run/grant.h"
#include "tests/unit/launcher/job_fixture.h"

namespace trainctl::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Kind = JobOutcome::Kind;

TEST_F(JobTest, WorkersMeetAndFinish) {
  const auto outcome = Run({"*:barrier:start", "*:steps:3", "0:print:zero", "1:print:one"});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->kind, Kind::kFinished);
  EXPECT_EQ(outcome->exit_code(), ExitCode::kOk);
  EXPECT_EQ(outcome->generation, 1);
  EXPECT_THAT(observer_->LinesOf(0), ElementsAre("zero"));
  EXPECT_THAT(observer_->LinesOf(1), ElementsAre("one"));
  EXPECT_EQ(State().status, run::RunStatus::kFinished);
  EXPECT_FALSE(PathExists(Path("run/control.sock")));
}

TEST_F(JobTest, ARunFolderThatIsMovedAwayEndsTheJob) {
  options_.max_restarts = 3;
  options_.num_workers = 1;
  std::thread mover([this] {
    Await(Path("started"));
    EXPECT_EQ(::rename(Path("run").c_str(), Path("moved").c_str()), 0);
  });
  const auto outcome = Run({absl::StrCat("*:touch:", Path("started")), "*:hang"});
  mover.join();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->kind, Kind::kFailed);
  EXPECT_THAT(outcome->message, testing::StartsWith("the run folder"));
  EXPECT_THAT(outcome->message, HasSubstr(absl::StrCat("was moved to ", Path("moved"))));
  EXPECT_EQ(outcome->worker_exit_code, static_cast<int>(ExitCode::kEnvironment));
  EXPECT_EQ(outcome->num_restarts, 0);
  EXPECT_FALSE(PathExists(Path("run")));
}

TEST_F(JobTest, ALaunchThatAnotherOneTookTheRunFromEndsItsWorkersAndWritesNothingMore) {
  options_.max_restarts = 3;
  options_.num_workers = 1;
  std::string journal;
  std::thread other([&] {
    Await(Path("started"));
    EXPECT_TRUE(run::ClaimTerm(Path("run")).ok());
    journal = *ReadFile(Path("run/journal.jsonl"));
  });
  const auto outcome = Run({absl::StrCat("*:touch:", Path("started")), "*:hang"});
  other.join();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->kind, Kind::kFailed);
  EXPECT_THAT(outcome->message, HasSubstr("launch 2 has taken"));
  EXPECT_EQ(outcome->worker_exit_code, static_cast<int>(ExitCode::kEnvironment));
  EXPECT_EQ(outcome->num_restarts, 0);
  EXPECT_EQ(*ReadFile(Path("run/journal.jsonl")), journal) << "it is the other one's";
}

TEST_F(JobTest, GenerationsGrowOverLaunches) {
  ASSERT_TRUE(Run({"*:barrier:a"}).ok());
  const auto second = Run({"*:barrier:a"});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->generation, 2);
  EXPECT_EQ(State().num_launches, 2);
}

TEST_F(JobTest, ASignalIsNamedWithItsRankStepAndLog) {
  const auto outcome =
      Run({"*:barrier:a", "*:steps:5", "1:print:last words", "1:signal:11", "0:wait_key:never"});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->kind, Kind::kFailed);
  EXPECT_EQ(outcome->exit_code(), ExitCode::kWorkerFailed);
  EXPECT_EQ(outcome->rank, 1);
  EXPECT_EQ(outcome->step, 5) << "the step it was in, though it had no time to say so";
  EXPECT_THAT(outcome->message, HasSubstr("killed by SIGSEGV (11)"));
  EXPECT_THAT(outcome->log_tail, HasSubstr("last words\n"));
  EXPECT_EQ(State().status, run::RunStatus::kFailed);
}

TEST_F(JobTest, AFailureIsOneSentenceWithItsStepCountedFromOne) {
  auto outcome = Run({"*:barrier:a", "*:steps:5", "1:fail:disk full", "0:wait_key:never"});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->message, "rank 1 failed in step 6: disk full; not restarted: launch.max_restarts is 0");
  EXPECT_EQ(State().message, outcome->message);
  EXPECT_EQ(State().last_step, 6);
  outcome = Run({"*:barrier:a", "1:exit:1", "0:wait_key:never"});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->message,
            "rank 1 failed during start-up: exited with code 1; not restarted: launch.max_restarts is 0");
}

TEST_F(JobTest, AWorkerThatCannotBeLoadedIsAnErrorOfTheEnvironment) {
  options_.max_restarts = 3;
  const auto outcome = Run({"*:barrier:a", "1:exit:127", "0:wait_key:never"});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->num_restarts, 0);
  EXPECT_EQ(LaunchExitCode(outcome), ExitCode::kEnvironment);
  EXPECT_THAT(outcome->message, HasSubstr("the worker program or one of its libraries could not be loaded"));
}

TEST_F(JobTest, AnExceptionIsNamedThoughOthersReportItsEcho) {
  options_.num_workers = 3;
  const auto outcome = Run({"*:barrier:a", "0:wait_key:never", "1:echo:connection closed by peer",
                            "2:fail:loss is not a number in layers.3"});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->rank, 2);
  EXPECT_THAT(outcome->message, HasSubstr("loss is not a number in layers.3"));
  EXPECT_EQ(outcome->worker_exit_code, 4);
}

// A survivor that does not know that it only tells of another's death can be faster than the
// launcher's own look at the dead.
TEST_F(JobTest, ACrashComesBeforeTheUnmarkedReportsThatItCaused) {
  options_.num_workers = 4;
  for (int i = 0; i < 5; ++i) {
    const std::string pid_file = Path(absl::StrCat("pid", i));
    const std::string await = absl::StrCat("await_death:", pid_file);
    const auto outcome = Run({"2:pid:" + pid_file, "*:barrier:a", "2:signal:9", "0:" + await, "1:" + await,
                              "3:" + await, "*:fail:connection closed by peer"});
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(outcome->rank, 2) << outcome->message;
    EXPECT_THAT(outcome->message, HasSubstr("SIGKILL"));
  }
}

// Rank 0 dies of having lost its peer.
TEST_F(JobTest, ACrashThatFollowsDoesNotHideWhatARankHasTold) {
  const std::string pid_file = Path("pid");
  const auto outcome = Run(
      {"1:pid:" + pid_file, "*:barrier:a", "1:fail:disk full", "0:await_death:" + pid_file, "0:signal:11"});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->rank, 1) << outcome->message;
  EXPECT_THAT(outcome->message, HasSubstr("disk full"));
}

TEST_F(JobTest, AKillFromOutsideIsNotLackOfMemory) {
  const auto outcome = Run({"*:barrier:a", "1:signal:9", "0:wait_key:never"});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_THAT(outcome->message, HasSubstr("killed by SIGKILL (9): another process killed it"));
}

TEST_F(JobTest, LeavingWithoutAWordIsAFailureEvenWithCodeZero) {
  const auto outcome = Run({"*:barrier:a", "1:exit:0", "0:wait_key:never"});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->kind, Kind::kFailed);
  EXPECT_EQ(outcome->rank, 1);
  EXPECT_THAT(outcome->message, HasSubstr("exited with code 0 before the end of the run"));
}

TEST_F(JobTest, DyingBeforeTheOthersHaveJoinedIsSeen) {
  // Rank 1 never gets a rank: its program refuses its command line at once.
  options_.worker_program = Path("program");
  ASSERT_TRUE(
      WriteFileAtomic(options_.worker_program,
                      absl::StrCat("#!/bin/sh\ncase \"$*\" in *'--worker-id 1'*) echo bad flag; exit 3;; "
                                   "esac\nexec ",
                                   kFakeWorker, " \"$@\"\n"))
          .ok());
  ASSERT_EQ(::chmod(options_.worker_program.c_str(), 0755), 0);
  options_.max_restarts = 3;
  const auto outcome = Run({"*:barrier:a"});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->kind, Kind::kFailed);
  EXPECT_EQ(outcome->rank, 1);
  EXPECT_THAT(outcome->message, HasSubstr("exited with code 3"));
  EXPECT_EQ(outcome->log_tail, "bad flag\n");
  EXPECT_EQ(outcome->num_restarts, 0) << "exit code 3 is not cured by a restart";
}

TEST_F(JobTest, AStoppedWorkerIsDetectedByItsSilence) {
  options_.detect_timeout = absl::Milliseconds(600);
  const auto outcome =
      Run({"*:barrier:a", "*:pid:" + Path("pid"), absl::StrCat("1:signal:", SIGSTOP), "0:hang"});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->kind, Kind::kFailed);
  EXPECT_EQ(outcome->rank, 1);
  EXPECT_THAT(outcome->message, HasSubstr("no heartbeat"));
  EXPECT_FALSE(IsAlive(Path("pid")));
}

// Its heartbeats go on, from another thread.
TEST_F(JobTest, AWorkerWhoseMainThreadHangsIsNamedKilledAndReplaced) {
  options_.hang_timeout = absl::Seconds(1);
  options_.max_restarts = 3;
  const auto outcome = Run({"*:barrier:a", "*:steps:20", "1:once+hang", "*:barrier:b"});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->kind, Kind::kFinished);
  EXPECT_EQ(outcome->num_restarts, 1);
  EXPECT_THAT(observer_->messages(), HasSubstr("rank 1 failed in step 20: stood still for 1"));
  EXPECT_THAT(*ReadFile(Path("run/logs/rank-00001.log")), HasSubstr("stack of the main thread"));
}

// PATH leads to none while this lives.
class WithoutPrograms {
 public:
  WithoutPrograms() { ::setenv("PATH", "/nothing", 1); }
  ~WithoutPrograms() { ::setenv("PATH", path_.c_str(), 1); }

 private:
  const std::string path_ = ::getenv("PATH");
};

// Rank 1 hangs, 2 is stopped and cannot answer, 0 and 3 wait for both.
TEST_F(JobTest, AllRanksOfAHangShowTheirStacksBeforeAnyoneIsEnded) {
  options_.num_workers = 4;
  options_.hang_timeout = absl::Seconds(1);
  options_.detect_timeout = absl::Minutes(1);
  const WithoutPrograms without_gdb;
  const auto outcome =
      Run({"*:steps:20", "*:barrier:a", absl::StrCat("2:signal:", SIGSTOP), "1:hang", "*:barrier:b"});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->rank, 1) << outcome->message;
  EXPECT_THAT(observer_->messages(), HasSubstr("the stacks of all ranks go to their logs"));
  for (const int rank : {0, 1, 3}) EXPECT_THAT(Log(rank), HasSubstr(kStackTitle)) << rank;
  EXPECT_THAT(Log(2), HasSubstr("does not respond; its threads according to /proc:"));
  EXPECT_THAT(Log(2), HasSubstr("State T (stopped)"));
  EXPECT_THAT(observer_->LinesOf(1), testing::Contains(kStackTitle));
  for (const int rank : {0, 2, 3})
    EXPECT_THAT(observer_->LinesOf(rank), testing::IsEmpty()) << "only in its log";
}

TEST_F(JobTest, OneThatHangsWhenAStopIsAskedForDoesNotKeepTheJob) {
  options_.stop_timeout = absl::Seconds(1);
  options_.max_restarts = 3;
  std::thread stop([this] {
    Await(Path("started"));
    ::kill(::getpid(), SIGTERM);
  });
  const auto outcome =
      Run({"*:steps:5", "*:barrier:a", "0:touch:" + Path("started"), "1:hang", "*:barrier:b"});
  stop.join();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->kind, Kind::kFailed);
  EXPECT_EQ(outcome->rank, 1) << outcome->message << *ReadFile(Path("run/logs/rank-00000.log"));
  EXPECT_THAT(outcome->message, HasSubstr("a stop was requested"));
}

TEST_F(JobTest, WhatHangsOrCrashesAfterAllIsSavedUndoesNothing) {
  options_.stop_timeout = absl::Seconds(1);
  const auto outcome = Run({"*:barrier:a", "*:leave", "0:signal:11", "1:ignore_term", "1:hang"});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->kind, Kind::kFinished);
  EXPECT_THAT(observer_->messages(),
              HasSubstr("rank 0: killed by SIGSEGV (11) after its work was done and saved"));
  EXPECT_THAT(observer_->messages(),
              HasSubstr("rank 1 has done and saved its work, but does not end within 1s"));
}

TEST_F(JobTest, AKilledKeeperTakesTheWorkersWithItAndIsReplaced) {
  options_.max_restarts = 3;
  const std::string kill_parent =
      absl::StrCat("#!/bin/sh\nif mkdir ", Path("once"),
                   " 2>/dev/null; then kill -KILL $PPID; sleep 1000; fi\nexec ", kFakeWorker, " \"$@\"\n");
  options_.worker_program = Path("program");
  ASSERT_TRUE(WriteFileAtomic(options_.worker_program, kill_parent).ok());
  ASSERT_EQ(::chmod(options_.worker_program.c_str(), 0755), 0);
  const auto outcome = Run({"*:barrier:a"});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->kind, Kind::kFinished);
  EXPECT_EQ(outcome->num_restarts, 1);
  EXPECT_THAT(observer_->messages(), HasSubstr("trainctl-keeper"));
}

// The log is a FIFO that nobody reads: once it is full, writing to it waits.
TEST_F(JobTest, ADiskThatStandsStillHoldsUpNeitherWorkersNorSignals) {
  ASSERT_TRUE(MakeDirs(Path("run/logs")).ok());
  ASSERT_TRUE(MakeDirs(Path("run/checkpoints")).ok());
  ASSERT_EQ(::mkfifo(Path("run/logs/rank-00000.log").c_str(), 0600), 0);
  const int reader = ::open(Path("run/logs/rank-00000.log").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  options_.disk_patience = absl::Milliseconds(50);
  std::thread stop([this] {
    Await(Path("flooded"));
    ::kill(::getpid(), SIGTERM);
  });
  const auto outcome =
      Run({"*:barrier:a", "0:flood:1000000", "0:touch:" + Path("flooded"), "*:steps:100000000"});
  stop.join();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->kind, Kind::kStoppedResumable);
  EXPECT_THAT(observer_->messages(), HasSubstr("does not respond"));
  ::signal(SIGPIPE, SIG_IGN);  // of the thread that still waits
  ::close(reader);
}

TEST_F(JobTest, AStopBeforeTheWorkersRunStartsNoneAndSavesNothing) {
  absl::StatusOr<SignalPipe> signals = SignalPipe::Install();
  ASSERT_TRUE(signals.ok());
  ::raise(SIGTERM);
  options_.signals = &*signals;
  const auto outcome = Run({"*:touch:" + Path("started")});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->kind, Kind::kStoppedResumable);
  EXPECT_FALSE(PathExists(Path("started")));
}

TEST_F(JobTest, AWorkerThatIgnoresSigtermIsKilled) {
  options_.stop_timeout = absl::Milliseconds(100);
  const auto outcome =
      Run({"0:ignore_term", "0:pid:" + Path("pid"), "*:barrier:a", "1:fail:broken", "0:hang"});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->rank, 1);
  EXPECT_FALSE(IsAlive(Path("pid")));
}

TEST_F(JobTest, GrandchildrenThatLeftTheirSessionEndWithTheJob) {
  const auto outcome = Run({"0:orphan:" + Path("orphan"), "1:bare_orphan:" + Path("bare"), "*:barrier:a"});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->kind, Kind::kFinished);
  EXPECT_FALSE(IsAlive(Path("orphan")));
  EXPECT_FALSE(IsAlive(Path("bare")));
}

TEST_F(JobTest, ALostWorkerIsRestartedInANewGeneration) {
  options_.max_restarts = 3;
  const auto outcome = Run({"*:barrier:a", "*:steps:20", "1:once+signal:9", "*:barrier:b", "*:print:done"});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->kind, Kind::kFinished);
  EXPECT_EQ(outcome->num_restarts, 1);
  EXPECT_EQ(outcome->generation, 2);
  // The first generation may hear of rank 1's end, and say so, before it is stopped.
  EXPECT_THAT(observer_->LinesOf(0), testing::Contains("done").Times(1));
  EXPECT_EQ(observer_->LinesOf(0).back(), "done");
  EXPECT_THAT(observer_->messages(), HasSubstr("rank 1 failed"));
  EXPECT_THAT(observer_->messages(), HasSubstr("restarting all workers (1 of 3)"));
}

TEST_F(JobTest, WhatForbidsARestartEndsTheJob) {
  options_.max_restarts = 3;
  options_.check_restart = [] { return BadDataError("corpus.txt has changed"); };
  const auto outcome = Run({"*:barrier:a", "*:steps:20", "1:once+signal:9", "0:wait_key:never"});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->kind, Kind::kFailed);
  EXPECT_EQ(outcome->num_restarts, 0);
  EXPECT_THAT(outcome->message, HasSubstr("not restarted: corpus.txt has changed"));
}

TEST_F(JobTest, AnotherProgramIsNotStartedInTheMiddleOfARun) {
  // The program is a short script, so that the launcher has read it before the test touches it. A touch
  // during the first read counts as a change.
  const auto copy_program = [&](const std::string& name, absl::string_view more) {
    const std::string script = absl::StrCat("#!/bin/sh\nexec ", kFakeWorker, " \"$@\"\n", more);
    ASSERT_TRUE(WriteFileAtomic(Path(name), script).ok());
    ASSERT_EQ(::chmod(Path(name).c_str(), 0755), 0);
  };
  copy_program("worker", "");
  options_.worker_program = Path("worker");
  options_.max_restarts = 3;
  const std::vector<std::string> script = {"*:barrier:a", "*:steps:20", "1:once+signal:9", "*:barrier:b"};
  // The same bytes are the same program, under another inode or at another time.
  const timespec touched[] = {{.tv_sec = 1, .tv_nsec = 0}, {.tv_sec = 1, .tv_nsec = 0}};
  for (const bool is_copied : {true, false}) {
    SCOPED_TRACE(is_copied);
    options_.check_restart = [&] {
      if (is_copied) {
        copy_program("worker", "");
      } else {
        EXPECT_EQ(::utimensat(AT_FDCWD, Path("worker").c_str(), touched, 0), 0);
      }
      return absl::OkStatus();
    };
    const auto same = Run(script);
    ASSERT_TRUE(same.ok()) << same.status();
    EXPECT_EQ(same->num_restarts, 1);
    ASSERT_TRUE(RemoveAll(Path("run")).ok());
  }

  options_.check_restart = [&] {
    copy_program("worker", "# another\n");
    return absl::OkStatus();
  };
  const auto replaced = Run(script);
  EXPECT_EQ(ExitCodeFor(replaced.status()), ExitCode::kEnvironment);
  EXPECT_THAT(replaced.status().message(), HasSubstr(Path("worker") + " was replaced since the launch"));
  EXPECT_EQ(State().status, run::RunStatus::kFailed);
}

TEST_F(JobTest, FailingAgainAtTheSameStepEndsTheRestarts) {
  options_.max_restarts = 10;
  const auto outcome = Run({"*:barrier:a", "*:steps:30", "1:signal:11", "0:wait_key:never"});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->kind, Kind::kFailed);
  EXPECT_EQ(outcome->num_restarts, 1);
  EXPECT_THAT(outcome->message, HasSubstr("the same place for the same cause"));
}

TEST_F(JobTest, ANewCheckpointStartsTheCountOfRestartsAgain) {
  options_.max_restarts = 1;
  std::vector<std::string> script;
  for (int i = 1; i <= 3; ++i) {
    for (const char* entry :
         {"*:barrier:before$0", "0:once+checkpoint:$0", "*:barrier:after$0", "1:once+exit:1$0"}) {
      script.push_back(absl::Substitute(entry, i));
    }
  }
  const auto outcome = Run(script);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->kind, Kind::kFinished) << outcome->message;
  EXPECT_EQ(outcome->num_restarts, 3);
  EXPECT_EQ(State().last_checkpoint_step, 3);
}

TEST_F(JobTest, WorkersAreToldTheirThreadsAndPinned) {
  options_.env = {{"TEST_NOTE", "from the recipe"}};
  options_.threads_per_worker = 1;
  const auto outcome = Run({"*:environment"});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  const std::vector<int> cores = *AllowedCores();
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(observer_->LinesOf(rank),
                ElementsAre(absl::StrCat("threads=1 assigned=1 cores=", cores[rank % cores.size()],
                                         " note=from the recipe spin=4000")));
  }
}

TEST_F(JobTest, HowThreadsWaitIsTheUsersToSay) {
  options_.env = {{"GOMP_SPINCOUNT", "7"}};
  ASSERT_TRUE(Run({"*:environment"}).ok());
  EXPECT_THAT(observer_->LinesOf(0), ElementsAre(HasSubstr("spin=7")));
}

TEST_F(JobTest, AWaitPolicyIsNotContradicted) {
  options_.env = {{"OMP_WAIT_POLICY", "active"}};
  ASSERT_TRUE(Run({"*:environment"}).ok());
  EXPECT_THAT(observer_->LinesOf(0), ElementsAre(testing::EndsWith("spin=")));
}

TEST_F(JobTest, ANameThatTheLauncherSetsItselfIsRefused) {
  options_.env = {{"OMP_NUM_THREADS", "8"}};
  const auto outcome = Run({});
  EXPECT_EQ(ExitCodeFor(outcome.status()), ExitCode::kUsage);
  EXPECT_THAT(outcome.status().message(), HasSubstr("launch.env.OMP_NUM_THREADS"));
}

TEST_F(JobTest, AProgramThatCannotBeExecutedIsAnError) {
  options_.worker_program = Path("nowhere");
  EXPECT_THAT(Run({}).status().message(), HasSubstr("nowhere"));
  ASSERT_TRUE(WriteFileAtomic(Path("rubbish"),
                              "\x7f"
                              "ELF but not really")
                  .ok());
  ASSERT_EQ(::chmod(Path("rubbish").c_str(), 0755), 0);
  options_.worker_program = Path("rubbish");
  const auto outcome = Run({});
  EXPECT_EQ(ExitCodeFor(outcome.status()), ExitCode::kEnvironment);
  EXPECT_THAT(std::string(outcome.status().message()), HasSubstr("rubbish: Exec format error"));
}

TEST_F(JobTest, ALaunchThatCannotMeetItsWorkersIsOneOfTheJournal) {
  options_.rendezvous = [](const rendezvous::ServiceOptions&) { return EnvironmentError("no port is free"); };
  for (int launches = 1; launches <= 2; ++launches) {
    EXPECT_THAT(std::string(Run({}).status().message()), HasSubstr("no port is free"));
    EXPECT_EQ(State().status, run::RunStatus::kFailed);
    EXPECT_EQ(State().message, "no port is free");
    EXPECT_EQ(State().launches_without_checkpoint, launches);
  }
}

TEST_F(JobTest, LogsAreByteExactAndConsoleLinesAreSafe) {
  // "a\0b\r\n", an escape sequence, invalid UTF-8, a progress bar, no newline at the end.
  const auto outcome = Run({"0:raw:6100620d0a1b5b326aff0a3130250d3230250a656e64"});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(Log(0), std::string("a\0b\r\n\x1b[2j\xff\n10%\r20%\nend", 22));
  EXPECT_THAT(observer_->LinesOf(0), ElementsAre("a\xEF\xBF\xBD"
                                                 "b",
                                                 "\xEF\xBF\xBD[2j\xEF\xBF\xBD", "20%", "end"));
}

TEST_F(JobTest, LogsOfARankGrowOverLaunches) {
  ASSERT_TRUE(Run({"0:print:first"}).ok());
  ASSERT_TRUE(Run({"0:print:second"}).ok());
  EXPECT_THAT(Log(0), testing::MatchesRegex("first\n-+ started again at [^\n]* UTC -+\nsecond\n"));
}

// Shows nothing before the workers have written everything: they cannot have waited for it.
class StuckObserver : public JobObserver {
 public:
  explicit StuckObserver(std::string release) : release_(std::move(release)) {}
  void OnWorkerLine(const WorkerLine& line) override {
    while (!PathExists(release_)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  void OnMessage(absl::string_view line) override {}

 private:
  const std::string release_;
};

TEST_F(JobTest, AStuckConsoleBlocksNoWorker) {
  options_.observer = std::make_shared<StuckObserver>(Path("written"));
  const auto outcome = Run({"*:flood:12000000", "*:barrier:a", "0:touch:" + Path("written")});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->kind, Kind::kFinished);
  EXPECT_EQ(*FileBytes(Path("run/logs/rank-00000.log")), 12'000'000);
  EXPECT_EQ(*FileBytes(Path("run/logs/rank-00001.log")), 12'000'000);
}

TEST_F(JobTest, ALongRunPathStillGetsASocket) {
  long_name_ = std::string(100, 'd') + "/";
  const auto outcome = Run({"*:barrier:a"});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->kind, Kind::kFinished);
  const std::string socket = State().socket;
  EXPECT_LE(socket.size(), 107u);
  EXPECT_FALSE(PathExists(socket.substr(0, socket.rfind('/')))) << "its folder is not left behind";
}

}  // namespace
}  // namespace trainctl::launcher
