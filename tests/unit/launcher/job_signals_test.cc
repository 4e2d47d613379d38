// What happens to a launcher process from outside: signals, death, a rival on the same folder.
#include <gmock/gmock.h>

#include "base/clock.h"
#include "rpc/admin_client.h"
#include "tests/unit/launcher/job_fixture.h"

namespace trainctl::launcher {
namespace {

using testing::HasSubstr;

constexpr char kManySteps[] = "*:steps:100000000";

using JobSignalsTest = JobTest;

TEST_F(JobSignalsTest, OneStopSignalSavesAndStops) {
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) {
    const std::string started = Path(absl::StrCat("started", signal_number));
    Subprocess launcher = Launch(2, {"*:barrier:a", "0:touch:" + started, kManySteps});
    Await(started);
    launcher.Signal(signal_number);
    EXPECT_EQ(launcher.Wait().Describe(), "exited with code 75") << *ReadFile(Path("launch.out"));
    EXPECT_EQ(State().status, run::RunStatus::kStopped);
    EXPECT_GE(State().last_checkpoint_step, 0);
  }
}

TEST_F(JobSignalsTest, ASecondInterruptStopsAtOnce) {
  Subprocess launcher = Launch(
      2, {"*:ignore_term", "0:pid:" + Path("pid"), "*:barrier:a", "0:touch:" + Path("started"), "*:hang"});
  Await(Path("started"));
  launcher.Signal(SIGINT);
  // The journal tells that the first one was seen: two signals at once would be one.
  while (ReadFile(Path("run/journal.jsonl"))->find("save and stop") == std::string::npos) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  launcher.Signal(SIGINT);
  while (ReadFile(Path("run/journal.jsonl"))->find("stop now") == std::string::npos) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  launcher.Signal(SIGINT);  // not even the grace of SIGTERM, which these ignore
  EXPECT_EQ(launcher.Wait().Describe(), "exited with code 130");
  EXPECT_EQ(State().status, run::RunStatus::kStoppedUnsaved);
  EXPECT_FALSE(IsAlive(Path("pid")));
}

// A socket whose peer is gone answers a plain write (Gloo's are) with SIGPIPE. That must not end the worker:
// it would be named for a failure of which it is the first to hear.
TEST_F(JobSignalsTest, AConnectionThatIsGoneEndsNoWorker) {
  Subprocess launcher = Launch(2, {"*:barrier:a", "0:send_to_nobody", "*:steps:3"});
  EXPECT_EQ(launcher.Wait().Describe(), "exited with code 0") << *ReadFile(Path("launch.out"));
}

// A launcher that stands still (its terminal was suspended, its machine swaps) hears what was said
// meanwhile. The limit is reached only by workers that do wait, and passes what they once waited.
class StandingStillTest : public JobTest {
 protected:
  void Suspend(Subprocess& launcher) {
    launcher.Signal(SIGSTOP);
    const std::string stat = absl::StrCat("/proc/", launcher.pid(), "/stat");
    while (ReadFile(stat)->find(") T") == std::string::npos) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  void AwaitEndOrLimit(const std::string& pid_file, absl::Duration limit) {
    const RealClock clock;
    const absl::Duration end = clock.Monotonic() + limit;
    while (IsAlive(pid_file) && clock.Monotonic() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
};

TEST_F(StandingStillTest, WhoFailsWaitsUntilItIsHeard) {
  const std::string go = Path("go");
  Subprocess launcher =
      Launch(3, {"0:pid:" + Path("pid0"), "1:pid:" + Path("pid1"), "2:pid:" + Path("pid2"), "*:barrier:a",
                 "0:touch:" + Path("started"), "1:await:" + go, "2:await:" + go, "0:once+wait_key:never",
                 "1:steps:100", "1:once+echo:connection closed by peer", "2:steps:20",
                 "2:once+fail:loss is not a number in layers.3"});
  Await(Path("started"));
  Suspend(launcher);
  ASSERT_TRUE(WriteFileAtomic(go, "").ok());
  for (const char* name : {"pid1", "pid2"}) AwaitEndOrLimit(Path(name), absl::Seconds(1.5));
  EXPECT_TRUE(IsAlive(Path("pid1")));
  EXPECT_TRUE(IsAlive(Path("pid2")));
  launcher.Signal(SIGCONT);
  const ExitStatus end = launcher.Wait();
  const std::string out = *ReadFile(Path("launch.out"));
  EXPECT_TRUE(end.Success()) << out;
  EXPECT_THAT(out, HasSubstr("rank 2 failed in step 21: loss is not a number in layers.3"));
}

TEST_F(StandingStillTest, WhoHasFinishedWaitsUntilItIsHeard) {
  Subprocess launcher = Launch(
      2, {"0:pid:" + Path("pid"), "*:barrier:a", "0:touch:" + Path("started"), "*:await:" + Path("go")});
  Await(Path("started"));
  Suspend(launcher);
  ASSERT_TRUE(WriteFileAtomic(Path("go"), "").ok());
  AwaitEndOrLimit(Path("pid"), absl::Seconds(6));
  EXPECT_TRUE(IsAlive(Path("pid")));
  launcher.Signal(SIGCONT);
  EXPECT_TRUE(launcher.Wait().Success()) << *ReadFile(Path("launch.out"));
  EXPECT_EQ(State().status, run::RunStatus::kFinished);
}

TEST_F(JobSignalsTest, NothingSurvivesAKilledLauncher) {
  Subprocess launcher = Launch(
      2, {"*:ignore_term", "0:pid:" + Path("pid0"), "1:pid:" + Path("pid1"), "0:orphan:" + Path("orphan"),
          "1:bare_orphan:" + Path("bare"), "*:barrier:a", "0:touch:" + Path("started"), "*:hang"});
  Await(Path("started"));
  const std::string socket = State().socket;
  EXPECT_TRUE(PathExists(socket)) << socket;
  launcher.Signal(SIGKILL);
  launcher.Wait();
  for (const char* name : {"pid0", "pid1", "orphan", "bare"}) AwaitEnd(Path(name));
  while (PathExists(socket)) std::this_thread::yield();
  EXPECT_EQ(State().status, run::RunStatus::kRunning) << "nobody could write its end";
}

TEST_F(JobSignalsTest, ALaunchRightAfterAKilledOneSucceeds) {
  Subprocess launcher = Launch(2, {"1:pid:" + Path("pid"), "0:orphan:" + Path("orphan"), "*:barrier:a",
                                   "0:touch:" + Path("started"), "*:hang"});
  Await(Path("started"));
  launcher.Signal(SIGKILL);
  launcher.Wait();
  const auto outcome = Run({"*:barrier:a"});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->kind, JobOutcome::Kind::kFinished);
  EXPECT_EQ(outcome->generation, 2);
  // The folder was not given away before the last process of the killed one was gone.
  EXPECT_FALSE(IsAlive(Path("pid")));
  EXPECT_FALSE(IsAlive(Path("orphan")));
}

TEST_F(JobSignalsTest, ASecondLaunchOnTheFolderIsRefused) {
  Subprocess launcher = Launch(1, {"0:touch:" + Path("started"), "0:await:" + Path("end")});
  Await(Path("started"));
  const auto second = Run({"*:barrier:a"});
  EXPECT_EQ(ExitCodeFor(second.status()), ExitCode::kEnvironment);
  EXPECT_THAT(second.status().message(), HasSubstr(absl::StrCat("in use by process ", launcher.pid())));
  EXPECT_THAT(second.status().message(), HasSubstr("trainctl stop"));
  ASSERT_TRUE(WriteFileAtomic(Path("end"), "").ok());
  EXPECT_TRUE(launcher.Wait().Success());
}

TEST_F(JobSignalsTest, AKilledJobLeavesANeighbourAlone) {
  Subprocess launcher =
      Launch(1, {"0:pid:" + Path("pid"), "0:touch:" + Path("started"), "0:await:" + Path("end")});
  Await(Path("started"));
  {
    auto run = run::RunFolder::CreateAt(Path("other"));
    options_.run = &*run;
    options_.worker_args = {"*:barrier:a", "1:fail:broken", "0:hang"};
    const auto outcome = RunJob(options_);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(outcome->kind, JobOutcome::Kind::kFailed);
  }
  EXPECT_TRUE(IsAlive(Path("pid")));
  ASSERT_TRUE(WriteFileAtomic(Path("end"), "").ok());
  EXPECT_TRUE(launcher.Wait().Success());
}

TEST_F(JobSignalsTest, TheAdminCallsShowAndStopAJob) {
  Subprocess launcher = Launch(2, {"*:barrier:a", "0:touch:" + Path("started"), kManySteps});
  Await(Path("started"));
  const run::RunState state = State();
  const auto status = rpc::GetJobStatus({state.socket, Path("run") + "/token"});
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->pid, launcher.pid());
  EXPECT_EQ(status->phase, "running");
  ASSERT_EQ(status->workers.size(), 2u);
  EXPECT_EQ(status->workers[1].state, "running");
  ASSERT_TRUE(rpc::StopJob({state.socket, Path("run") + "/token"}, false, "test").ok());
  EXPECT_EQ(launcher.Wait().code, 75);
}

}  // namespace
}  // namespace trainctl::launcher
