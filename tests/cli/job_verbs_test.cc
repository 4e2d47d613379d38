// trainctl status, logs and stop against a real job.
#include <gmock/gmock.h>

#include "base/json.h"
#include "tests/unit/launcher/job_fixture.h"

namespace trainctl::launcher {
namespace {

using testing::HasSubstr;

class VerbsTest : public JobTest {
 protected:
  struct Result {
    int code = -1;
    std::string out;
    std::string error;
  };

  Subprocess StartTrainctl(std::vector<std::string> args, const std::string& name) {
    SpawnOptions spawn;
    spawn.argv = {TRAINCTL_BIN_DIR "/trainctl"};
    spawn.argv.insert(spawn.argv.end(), args.begin(), args.end());
    spawn.env = CurrentEnvironment();
    spawn.stdout_fd = ::open(Path(name + ".out").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    spawn.stderr_fd = ::open(Path(name + ".err").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    absl::StatusOr<Subprocess> process = Subprocess::Start(spawn);
    ::close(spawn.stdout_fd);
    ::close(spawn.stderr_fd);
    EXPECT_TRUE(process.ok()) << process.status();
    return *std::move(process);
  }

  Result Finish(Subprocess process, const std::string& name) {
    const ExitStatus exit = process.Wait();
    EXPECT_FALSE(exit.signaled) << exit.Describe();
    return {exit.code, *ReadFile(Path(name + ".out")), *ReadFile(Path(name + ".err"))};
  }

  Result Trainctl(std::vector<std::string> args) {
    return Finish(StartTrainctl(std::move(args), "verb"), "verb");
  }
};

TEST_F(VerbsTest, StatusAndStopOfARunningJob) {
  Subprocess launcher =
      Launch(2, {"*:barrier:a", "*:steps:3", "0:touch:" + Path("started"), "*:steps:100000000"});
  Await(Path("started"));
  const Result status = Trainctl({"status", Path("run"), "--json"});
  ASSERT_EQ(status.code, 0) << status.error;
  const Json report = *ParseJson(status.out, "status");
  EXPECT_EQ(report["schema"], "trainctl.status.v1");
  EXPECT_EQ(report["status"], "running");
  EXPECT_EQ(report["launcher_pid"], launcher.pid());
  EXPECT_EQ(report["world_size"], 2);
  ASSERT_EQ(report["workers"].size(), 2u);
  EXPECT_EQ(report["workers"][1]["rank"], 1);
  EXPECT_EQ(report["workers"][1]["state"], "running");
  EXPECT_GE(report["workers"][0]["step"].get<int>(), 2);
  EXPECT_THAT(Trainctl({"status", Path("run")}).out, HasSubstr("rank 1      running, step"));

  EXPECT_EQ(Trainctl({"stop", Path("run")}).code, 0);
  EXPECT_EQ(launcher.Wait().code, 75);
  EXPECT_EQ((*ParseJson(Trainctl({"status", Path("run"), "--json"}).out, "status"))["status"], "stopped");
  const Result again = Trainctl({"stop", Path("run")});
  EXPECT_EQ(again.code, 5);
  EXPECT_THAT(again.error, HasSubstr("is not running (stopped)"));
}

TEST_F(VerbsTest, StopNowDoesNotSave) {
  Subprocess launcher = Launch(1, {"0:touch:" + Path("started"), "0:hang"});
  Await(Path("started"));
  EXPECT_EQ(Trainctl({"stop", "--now", Path("run")}).code, 0);
  EXPECT_EQ(launcher.Wait().code, 130);
}

TEST_F(VerbsTest, AKilledLauncherShowsAsInterrupted) {
  Subprocess launcher = Launch(1, {"0:touch:" + Path("started"), "0:hang"});
  Await(Path("started"));
  launcher.Signal(SIGKILL);
  launcher.Wait();
  const Result status = Trainctl({"status", Path("run")});
  EXPECT_EQ(status.code, 0);
  EXPECT_THAT(status.out, HasSubstr("status      interrupted"));
  EXPECT_THAT(status.out, HasSubstr("Continue with: trainctl resume"));
  const Result stop = Trainctl({"stop", Path("run")});
  EXPECT_EQ(stop.code, 5);
  EXPECT_THAT(stop.error, HasSubstr("does not appear to be running: its launcher"));
}

TEST_F(VerbsTest, LogsOfOneRankAreExactAndOfAllArePrefixed) {
  ASSERT_TRUE(Run({"0:raw:6100ff0a", "1:print:one"}).ok());
  EXPECT_EQ(Trainctl({"logs", Path("run"), "--rank", "0"}).out, std::string("a\0\xff\n", 4));
  EXPECT_EQ(Trainctl({"logs", Path("run")}).out, "[rank 0] a\xEF\xBF\xBD\xEF\xBF\xBD\n[rank 1] one\n");
  const Result missing = Trainctl({"logs", Path("run"), "--rank", "9"});
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.error, HasSubstr("2 rank(s), numbered 0 to 1"));
}

TEST_F(VerbsTest, FollowingEndsWithTheRunAndMissesNothing) {
  Subprocess launcher = Launch(2, {"*:print:first", "*:barrier:a", "0:touch:" + Path("started"),
                                   "*:await:" + Path("go"), "*:print:last"});
  Await(Path("started"));
  Subprocess follower = StartTrainctl({"logs", "--follow", Path("run")}, "follow");
  while (FileBytes(Path("follow.out")).value_or(0) < 30)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  ASSERT_TRUE(WriteFileAtomic(Path("go"), "").ok());
  EXPECT_EQ(launcher.Wait().code, 0);
  const Result followed = Finish(std::move(follower), "follow");
  EXPECT_EQ(followed.code, 0) << followed.error;
  EXPECT_THAT(followed.out, HasSubstr("[rank 0] last\n"));
  EXPECT_THAT(followed.out, HasSubstr("[rank 1] last\n"));
}

}  // namespace
}  // namespace trainctl::launcher
