// Real programs that are given events.
#include "monitor/event_hook.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/files.h"
#include "base/json.h"
#include "base/status.h"

namespace trainctl::monitor {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

class EventHookTest : public testing::Test {
 protected:
  EventHookTest() : folder_(absl::StrCat(testing::TempDir(), "/event_hook_", ::getpid())) {
    EXPECT_TRUE(MakeDirs(folder_).ok());
    std::string metrics;
    for (int step = 0; step <= 9; ++step) {
      absl::StrAppend(&metrics, "{\"step\":", step,
                      ",\"loss\":", step == 0 ? "null" : absl::StrCat(4 - step * 0.25),
                      ",\"tokens\":", step * 64, step == 5 ? ",\"eval\":{\"held-out\":3.5}" : "", "}\n");
    }
    EXPECT_TRUE(WriteFileAtomic(folder_ + "/metrics.jsonl", metrics).ok());
  }
  ~EventHookTest() override { (void)RemoveAll(folder_); }

  EventHook::Options Options(const std::string& script) const {
    return {.command = {"/bin/sh", "-c", script, folder_ + "/out"},
            .run_name = "a run",
            .run_dir = folder_,
            .metrics_path = folder_ + "/metrics.jsonl",
            .timings_path = folder_ + "/timings.jsonl"};
  }
  static run::JournalEvent Event(run::EventKind kind, int64_t step = -1) {
    run::JournalEvent event{kind};
    event.time = absl::UnixEpoch() + absl::Hours(9);
    event.step = step;
    return event;
  }
  std::string Output() const { return ReadFile(folder_ + "/out").value_or(""); }

  const std::string folder_;
};

TEST_F(EventHookTest, EachEventIsALineOnStdin) {
  EventHook hook(Options("cat >> \"$0\""));
  hook.OnEvent(Event(run::EventKind::kLaunch));
  hook.OnEvent(Event(run::EventKind::kCheckpoint, 8));
  run::JournalEvent end = Event(run::EventKind::kEnd);
  end.status = run::RunStatus::kFailed;
  end.launch_exit_code = 4;
  hook.OnEvent(end);
  hook.Finish();
  EXPECT_THAT(hook.TakeMessages(), IsEmpty());
  const std::vector<std::string> lines = absl::StrSplit(Output(), '\n', absl::SkipEmpty());
  ASSERT_THAT(lines, SizeIs(3));
  const Json launch = Json::parse(lines[0]), checkpoint = Json::parse(lines[1]), last = Json::parse(lines[2]);
  EXPECT_EQ(launch["event"], "launch");
  EXPECT_EQ(launch["run"], "a run");
  EXPECT_EQ(launch["run_dir"], folder_);
  EXPECT_EQ(launch["time"], "1970-01-01T09:00:00+00:00");
  EXPECT_FALSE(launch.contains("logged"));
  EXPECT_EQ(checkpoint["step"], 8);
  EXPECT_EQ(checkpoint["path"], folder_ + "/checkpoints/step-00000008");
  // The values of the last line of metrics.jsonl, with the last evaluation.
  EXPECT_EQ(checkpoint["logged"],
            Json({{"step", 9}, {"loss", 1.75}, {"tokens", 576}, {"eval", {{"held-out", 3.5}}}}));
  EXPECT_EQ(last["status"], "failed");
  EXPECT_EQ(last["launch_exit_code"], 4);
  EXPECT_EQ(last["logged"], checkpoint["logged"]);
}

TEST_F(EventHookTest, AFailureIsAMessageWithTheStatusAndTheFirstLineOfStderr) {
  EventHook hook(Options("echo discarded; echo 'no \033route' >&2; echo more >&2; exit 3"));
  hook.OnEvent(Event(run::EventKind::kLaunch));
  hook.Finish();
  EXPECT_THAT(hook.TakeMessages(), ElementsAre("warning: launch.on_event: /bin/sh for the event launch: "
                                               "exited with code 3: no \xEF\xBF\xBDroute"));
  EventHook::Options absent = Options("");
  absent.command = {folder_ + "/absent"};
  EventHook other(absent);
  other.OnEvent(Event(run::EventKind::kLaunch));
  other.Finish();
  EXPECT_THAT(other.TakeMessages(), ElementsAre(AllOf(HasSubstr("cannot execute"), HasSubstr("/absent"))));
}

// All processes of the group hold a lock, which is free after they have ended. A survivor writes first.
TEST_F(EventHookTest, AProgramThatIsLateIsKilledWithItsGroup) {
  EventHook::Options options =
      Options("exec 9> \"$0\"; flock 9; (sleep 20; echo late >&9) & echo waiting >&2; wait");
  options.patience = absl::Milliseconds(100);
  EventHook hook(options);
  hook.OnEvent(Event(run::EventKind::kLaunch));
  hook.Finish();
  EXPECT_THAT(hook.TakeMessages(),
              ElementsAre(AllOf(HasSubstr("did not end within"), HasSubstr("was killed: waiting"))));
  const int lock = ::open((folder_ + "/out").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(lock, LOCK_EX), 0);
  ::close(lock);
  EXPECT_EQ(Output(), "");
}

// A program that leaves a process behind, with its stderr, is done when it ends itself.
TEST_F(EventHookTest, WhatAProgramLeavesBehindIsNotWaitedFor) {
  EventHook::Options options = Options("sleep 1000 & echo $! > \"$0\"");
  EventHook hook(options);
  hook.OnEvent(Event(run::EventKind::kLaunch));
  hook.Finish();
  EXPECT_THAT(hook.TakeMessages(), IsEmpty());
  const int left = std::atoi(Output().c_str());
  ASSERT_GT(left, 0);
  EXPECT_EQ(::kill(left, SIGKILL), 0) << "it lives";
}

// Every event takes longer than there is time; the end gets its turn.
TEST_F(EventHookTest, TheEndIsToldToASlowProgramToo) {
  EventHook::Options options = Options("read -r line; echo \"$line\" >> \"$0\"; sleep 1000");
  options.patience = absl::Seconds(1);
  EventHook hook(options);
  for (size_t i = 0; i < EventHook::kMaxWaiting + 10; ++i) hook.OnEvent(Event(run::EventKind::kLaunch));
  hook.OnEvent(Event(run::EventKind::kEnd));
  hook.Finish();
  EXPECT_THAT(Output(), HasSubstr("\"event\":\"end\""));
  EXPECT_THAT(hook.TakeMessages().back(), HasSubstr("was too slow; events left out: "));
}

TEST_F(EventHookTest, AnInterruptEndsTheWait) {
  EventHook hook(Options("sleep 1000"));
  hook.OnEvent(Event(run::EventKind::kEnd));
  int asked = 0;
  hook.Finish([&asked] { return ++asked > 1; });
  EXPECT_EQ(asked, 2);
}

// Not even a file that the launcher forgot to close.
TEST_F(EventHookTest, TheProgramGetsNoOpenFile) {
  const int folder = ::open(folder_.c_str(), O_RDONLY | O_CLOEXEC);
  const int kept = ::fcntl(folder, F_DUPFD, 100);  // without O_CLOEXEC
  ASSERT_GE(kept, 100);
  EventHook hook(Options("ls /proc/self/fd > \"$0\""));
  hook.OnEvent(Event(run::EventKind::kLaunch));
  hook.Finish();
  ::close(folder);
  ::close(kept);
  EXPECT_THAT(hook.TakeMessages(), IsEmpty());
  const std::vector<std::string> open_files = absl::StrSplit(Output(), '\n', absl::SkipEmpty());
  EXPECT_THAT(open_files, AllOf(Contains("2"), Not(Contains(absl::StrCat(kept)))));
}

}  // namespace
}  // namespace trainctl::monitor
