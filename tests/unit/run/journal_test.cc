#include "run/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"

namespace trainctl::run {
namespace {

using testing::HasSubstr;

class JournalTest : public testing::Test {
 protected:
  JournalTest() {
    std::string folder = "/tmp/trainctl-journal-test-XXXXXX";
    EXPECT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    path_ = folder_ + "/journal.jsonl";
  }
  ~JournalTest() override { (void)RemoveAll(folder_); }

  void Append(JournalEvent event) {
    absl::StatusOr<Journal> journal = Journal::Open(path_, &clock_);
    ASSERT_TRUE(journal.ok()) << journal.status();
    ASSERT_TRUE(journal->Append(std::move(event)).ok());
  }
  std::string Text() const { return *ReadFile(path_); }

  FakeClock clock_;
  std::string folder_;
  std::string path_;
};

JournalEvent Event(EventKind kind) {
  JournalEvent event;
  event.kind = kind;
  return event;
}

TEST_F(JournalTest, TheNodesOfALaunchAreThoseOfTheLastOne) {
  JournalEvent event = Event(EventKind::kLaunch);
  event.host = "login1";
  event.nodes = {"node1", "node2"};
  Append(event);
  EXPECT_EQ(ReplayJournal(Text(), path_)->host, "login1");
  EXPECT_EQ(ReplayJournal(Text(), path_)->nodes, event.nodes);
  event.nodes.clear();
  event.host = "node1";
  Append(event);
  EXPECT_EQ(ReplayJournal(Text(), path_)->host, "node1");
  EXPECT_THAT(ReplayJournal(Text(), path_)->nodes, testing::IsEmpty());
}

TEST_F(JournalTest, EventsAreReadAsTheyWereWritten) {
  JournalEvent event = Event(EventKind::kLaunch);
  event.nodes = {"node1"};
  event.pid = 12;
  Append(event);
  Append(Event(EventKind::kFromScratch));
  const auto journal = ParseJournal(absl::StrCat(Text(), "{\"v\":1,\"ti"), path_);
  ASSERT_TRUE(journal.ok()) << journal.status();
  ASSERT_EQ(journal->events.size(), 2u) << "half a line is no event yet";
  EXPECT_EQ(absl::StrCat(EventToJson(journal->events[0]), "\n", EventToJson(journal->events[1]), "\n"),
            Text());
}

TEST_F(JournalTest, AnEventKeepsTheTimeThatItHas) {
  JournalEvent launch = Event(EventKind::kLaunch);
  launch.metrics = "http://127.0.0.1:9400/metrics";
  launch.time = absl::UnixEpoch() + absl::Hours(5);
  Append(launch);
  JournalEvent checkpoint = Event(EventKind::kCheckpoint);
  checkpoint.step = 7;
  checkpoint.time = absl::UnixEpoch() + absl::Hours(6);
  Append(checkpoint);
  JournalEvent end = Event(EventKind::kEnd);
  end.launch_exit_code = 75;
  Append(end);
  const absl::StatusOr<RunState> state = ReplayJournal(Text(), path_);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->started, launch.time);
  EXPECT_EQ(state->last_checkpoint, checkpoint.time);
  EXPECT_EQ(state->metrics, launch.metrics);
  EXPECT_EQ(state->last->launch_exit_code, 75);
  EXPECT_EQ(state->ended, clock_.Now()) << "one without a time gets that of the clock";
}

// A whole life: launch, failure, restart, checkpoint, stop; then a second launch.
TEST_F(JournalTest, StateFollowsTheEvents) {
  JournalEvent event = Event(EventKind::kLaunch);
  event.world_size = 4;
  event.pid = 123;
  event.socket = "/tmp/s";
  Append(event);
  event = Event(EventKind::kGeneration);
  event.generation = 1;
  event.world_size = 4;
  Append(event);
  event = Event(EventKind::kWorkerExit);
  event.rank = 2;
  event.step = 17;
  event.message = "killed by SIGSEGV (11)";
  Append(event);
  Append(Event(EventKind::kRestart));
  event = Event(EventKind::kCheckpoint);
  event.step = 20;
  Append(event);

  auto state = ReplayJournal(Text(), path_);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->status, RunStatus::kRunning);
  EXPECT_EQ(state->world_size, 4);
  EXPECT_EQ(state->launcher_pid, 123);
  EXPECT_EQ(state->socket, "/tmp/s");
  EXPECT_EQ(state->generation, 1);
  EXPECT_EQ(state->num_restarts, 1);
  EXPECT_EQ(state->last_checkpoint_step, 20);
  EXPECT_EQ(state->launches_without_checkpoint, 0);
  EXPECT_EQ(state->last_step, 17);
  EXPECT_EQ(state->message, "killed by SIGSEGV (11)");

  event = Event(EventKind::kEnd);
  event.status = RunStatus::kStopped;
  event.message = "saved and stopped";
  Append(event);
  state = ReplayJournal(Text(), path_);
  EXPECT_EQ(state->status, RunStatus::kStopped);
  EXPECT_EQ(state->ended, clock_.Now());

  Append(Event(EventKind::kLaunch));
  state = ReplayJournal(Text(), path_);
  EXPECT_EQ(state->status, RunStatus::kRunning);
  EXPECT_EQ(state->num_launches, 2);
  EXPECT_EQ(state->num_restarts, 0) << "restarts are of one launch";
  EXPECT_EQ(state->generation, 1) << "generations are of the run";
  EXPECT_EQ(state->last_checkpoint_step, 20);
  EXPECT_EQ(state->launches_without_checkpoint, 1);
}

TEST_F(JournalTest, FromScratchForgetsTheCheckpointsBefore) {
  JournalEvent event = Event(EventKind::kCheckpoint);
  event.step = 6;
  Append(event);
  Append(Event(EventKind::kFromScratch));
  EXPECT_EQ(ReplayJournal(Text(), path_)->last_checkpoint_step, -1);
  event.step = 2;
  Append(event);
  EXPECT_EQ(ReplayJournal(Text(), path_)->last_checkpoint_step, 2);
}

TEST_F(JournalTest, WhatResumesChangedIsKeptInItsOrder) {
  JournalEvent event = Event(EventKind::kChange);
  event.message = "optimizer.lr is 0.1 and was 1.0";
  Append(event);
  event.step = 40;
  event.message = "optimizer.lr is 0.01 and was 0.1";
  Append(event);
  Append(Event(EventKind::kLaunch));
  EXPECT_EQ(ReplayJournal(Text(), path_)->changes,
            (std::vector<telemetry::RunChange>{{-1, "optimizer.lr is 0.1 and was 1.0"},
                                               {40, "optimizer.lr is 0.01 and was 0.1"}}));
  Append(Event(EventKind::kFromScratch));
  EXPECT_TRUE(ReplayJournal(Text(), path_)->changes.empty());
}

TEST_F(JournalTest, FailuresAreKeptUntilTheNextCheckpoint) {
  JournalEvent event = Event(EventKind::kEnd);
  event.status = RunStatus::kFailed;
  for (const char* message : {"first", "second", "first"}) {
    Append(Event(EventKind::kLaunch));
    event.message = message;
    Append(event);
  }
  EXPECT_THAT(ReplayJournal(Text(), path_)->failures, testing::ElementsAre("first", "second"));
  Append(Event(EventKind::kCheckpoint));
  EXPECT_THAT(ReplayJournal(Text(), path_)->failures, testing::ElementsAre());
}

TEST_F(JournalTest, AFailureNamesItsRankAndExitCodeUntilTheNextLaunch) {
  JournalEvent event = Event(EventKind::kEnd);
  event.status = RunStatus::kFailed;
  event.rank = 1;
  event.step = 7;
  event.exit_code = 7;
  Append(event);
  auto state = ReplayJournal(Text(), path_);
  EXPECT_EQ(state->failed_rank, 1);
  EXPECT_EQ(state->last_step, 7);
  EXPECT_EQ(state->exit_code, 7);
  Append(Event(EventKind::kLaunch));
  state = ReplayJournal(Text(), path_);
  EXPECT_EQ(state->failed_rank, -1);
  EXPECT_FALSE(state->exit_code.has_value());
}

TEST_F(JournalTest, RubbishIsWhatHoldsNoEventOfAnyVersion) {
  Append(Event(EventKind::kLaunch));
  const std::string event = Text();
  for (const char* text :
       {"no json\n", "\n\x01\n[1]\n", "{}\n{\"v\":1}\n", "{\"v\":1,\"event\":\"launch\"}\n"}) {
    EXPECT_TRUE(IsRubbish(text)) << text;
    EXPECT_FALSE(ReplayJournal(text, path_).ok()) << text;
    EXPECT_FALSE(IsRubbish(text + event)) << text;
  }
  EXPECT_FALSE(IsRubbish("{\"v\":2,\"event\":\"of a newer version\"}\n"));
  EXPECT_FALSE(IsRubbish(""));
}

TEST_F(JournalTest, EveryPrefixOfBytesIsReadable) {
  for (const int64_t generation : {1, 2, 3}) {
    JournalEvent event = Event(EventKind::kGeneration);
    event.generation = generation;
    Append(event);
  }
  const std::string text = Text();
  for (size_t length = 0; length <= text.size(); ++length) {
    const std::string prefix = text.substr(0, length);
    const auto state = ReplayJournal(prefix, path_);
    ASSERT_TRUE(state.ok()) << state.status() << " after " << length << " bytes";
    EXPECT_EQ(state->generation, std::count(prefix.begin(), prefix.end(), '\n'));
  }
}

TEST_F(JournalTest, ATornLineIsCutOffBeforeTheNextEvent) {
  JournalEvent event = Event(EventKind::kGeneration);
  event.generation = 1;
  Append(event);
  ASSERT_TRUE(AppendFile(path_, "{\"v\":1,\"ti").ok());
  event.generation = 2;
  Append(event);
  const auto state = ReplayJournal(Text(), path_);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->generation, 2);
}

// What a file may grow to: the write that meets it is short, as on a disk that fills up.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(size_t bytes) {
    ::signal(SIGXFSZ, SIG_IGN);
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit limit = {bytes, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() { EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before_), 0); }

 private:
  rlimit before_ = {};
};

TEST_F(JournalTest, AnEventThatDoesNotFitLeavesNoHalfLine) {
  absl::StatusOr<Journal> journal = Journal::Open(path_, &clock_);
  ASSERT_TRUE(journal->Append(Event(EventKind::kLaunch)).ok());
  const std::string before = Text();
  {
    const FileSizeLimit limit(before.size() + 20);
    EXPECT_EQ(ExitCodeFor(journal->Append(Event(EventKind::kRestart))), ExitCode::kEnvironment);
  }
  EXPECT_EQ(Text(), before);
  JournalEvent event = Event(EventKind::kGeneration);
  event.generation = 7;
  ASSERT_TRUE(journal->Append(std::move(event)).ok());
  const auto state = ReplayJournal(Text(), path_);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->generation, 7);
  EXPECT_EQ(state->damage, "");
}

TEST_F(JournalTest, DamageInTheMiddleIsNamedWithItsLineAndPassedOver) {
  Append(Event(EventKind::kLaunch));
  ASSERT_TRUE(AppendFile(path_, "{\"v\":1,\"time\":\"20\n").ok());
  JournalEvent event = Event(EventKind::kGeneration);
  event.generation = 3;
  Append(event);
  auto state = ReplayJournal(Text(), path_);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_THAT(state->damage, HasSubstr("journal.jsonl:2"));
  EXPECT_EQ(state->status, RunStatus::kRunning);
  EXPECT_EQ(state->generation, 3);
  state = ReplayJournal("rubbish\nrubbish\n", path_);
  EXPECT_EQ(ExitCodeFor(state.status()), ExitCode::kBadData);
  EXPECT_THAT(std::string(state.status().message()), HasSubstr("journal.jsonl:1"));
}

TEST_F(JournalTest, ANewerFormatIsRefused) {
  const auto state =
      ReplayJournal("{\"v\":2,\"time\":\"2026-01-01T00:00:00+00:00\",\"event\":\"launch\"}\n", path_);
  EXPECT_EQ(ExitCodeFor(state.status()), ExitCode::kBadData);
  EXPECT_THAT(std::string(state.status().message()), HasSubstr("newer than this trainctl reads"));
}

TEST_F(JournalTest, AnUnknownEventIsRefused) {
  const auto state =
      ReplayJournal("{\"v\":1,\"time\":\"2026-01-01T00:00:00+00:00\",\"event\":\"teleport\"}\n", path_);
  EXPECT_THAT(std::string(state.status().message()), HasSubstr("unknown event 'teleport'"));
}

}  // namespace
}  // namespace trainctl::run
