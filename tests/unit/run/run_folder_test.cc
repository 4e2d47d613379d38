#include "run/run_folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <filesystem>
#include <string>
#include <thread>

#include "base/files.h"
#include "base/lock_owner.h"
#include "base/status.h"
#include "checkpoint/checkpoint_io.h"

namespace trainctl::run {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

class RunFolderTest : public testing::Test {
 protected:
  RunFolderTest() {
    std::string folder = "/tmp/trainctl-run-test-XXXXXX";
    EXPECT_NE(::mkdtemp(folder.data()), nullptr);
    char resolved[PATH_MAX];
    EXPECT_NE(::realpath(folder.c_str(), resolved), nullptr);
    folder_ = resolved;
    root_ = folder_ + "/runs";
  }
  ~RunFolderTest() override { (void)RemoveAll(folder_); }
  static std::string Error(const absl::Status& status) { return std::string(status.message()); }

  FakeClock clock_;  // starts at 2023-11-14 22:13:20 UTC
  std::string folder_;
  std::string root_;
};

TEST_F(RunFolderTest, NamesCarryTheTimeAndStayUnique) {
  const auto first = RunFolder::Create(root_, "llama", clock_);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->path(), root_ + "/llama-20231114-221320");
  const auto second = RunFolder::Create(root_, "llama", clock_);
  EXPECT_EQ(second->path(), root_ + "/llama-20231114-221320-2");
  EXPECT_TRUE(PathExists(first->logs_path()));
  EXPECT_TRUE(PathExists(first->checkpoints_path()));
  EXPECT_THAT(first->log_path(7), EndsWith("/logs/rank-00007.log"));
}

TEST_F(RunFolderTest, LatestPointsAtTheNewest) {
  ASSERT_TRUE(RunFolder::Create(root_, "a", clock_).ok());
  const auto newest = RunFolder::Create(root_, "b", clock_);
  ASSERT_TRUE(WriteFileAtomic(newest->recipe_path(), "{}").ok());
  const auto opened = RunFolder::Open(root_ + "/latest");
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->path(), newest->path());
}

TEST_F(RunFolderTest, LatestPointsAtANamedFolderWhereverItLies) {
  ASSERT_TRUE(RunFolder::Create(root_, "older", clock_).ok());
  const auto inside = RunFolder::CreateAt(root_ + "/tour");
  ASSERT_TRUE(inside.ok()) << inside.status();
  ASSERT_TRUE(inside->MarkAsLatest(root_).ok());
  EXPECT_EQ(std::filesystem::read_symlink(root_ + "/latest"), "tour");
  const auto outside = RunFolder::CreateAt(folder_ + "/elsewhere/run");
  ASSERT_TRUE(outside->MarkAsLatest(root_).ok());
  EXPECT_EQ(std::filesystem::read_symlink(root_ + "/latest"), outside->path());
  ASSERT_TRUE(outside->MarkAsLatest(folder_ + "/no runs yet").ok());
  EXPECT_EQ(std::filesystem::read_symlink(folder_ + "/no runs yet/latest"), outside->path());
}

TEST_F(RunFolderTest, LatestIsNeverAFolderThatIsReplaced) {
  const auto named = RunFolder::CreateAt(root_ + "/latest");
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_TRUE(named->MarkAsLatest(root_).ok()) << "it is the latest already";
  EXPECT_TRUE(std::filesystem::is_directory(std::filesystem::symlink_status(root_ + "/latest")));
  const auto other = RunFolder::CreateAt(root_ + "/other");
  EXPECT_EQ(ExitCodeFor(other->MarkAsLatest(root_)), ExitCode::kEnvironment);
  EXPECT_TRUE(PathExists(named->logs_path()));
}

TEST_F(RunFolderTest, OpenRefusesWhatIsNoRun) {
  EXPECT_EQ(ExitCodeFor(RunFolder::Open(folder_ + "/nowhere").status()), ExitCode::kUsage);
  EXPECT_THAT(Error(RunFolder::Open(folder_).status()), HasSubstr("is not a run folder"));
  ASSERT_EQ(::chdir(folder_.c_str()), 0);
  EXPECT_THAT(Error(RunFolder::Open("").status()), HasSubstr("there is no run here"));
  EXPECT_EQ(::chdir("/"), 0);
}

TEST_F(RunFolderTest, CreateAtDoesNotSettleInAForeignFolder) {
  ASSERT_TRUE(WriteFileAtomic(folder_ + "/thesis.tex", "").ok());
  EXPECT_THAT(Error(RunFolder::CreateAt(folder_).status()), HasSubstr("is not a run folder"));
  EXPECT_TRUE(RunFolder::CreateAt(folder_ + "/new").ok());
  EXPECT_TRUE(RunFolder::CreateAt(folder_ + "/new").ok()) << "what it made itself it takes again";
}

TEST_F(RunFolderTest, NamesThatAreNoFolderNamesAreRefused) {
  for (const char* name : {"", "..", "a/b"}) {
    EXPECT_EQ(ExitCodeFor(RunFolder::Create(root_, name, clock_).status()), ExitCode::kUsage) << name;
  }
}

TEST_F(RunFolderTest, ALockedFolderNamesItsHolder) {
  auto first = RunFolder::CreateAt(folder_ + "/run");
  auto second = RunFolder::CreateAt(folder_ + "/run");
  ASSERT_TRUE(first->Lock().ok());
  EXPECT_TRUE(first->Lock().ok()) << "twice by the same is fine";
  const absl::Status refused = second->Lock();
  EXPECT_EQ(ExitCodeFor(refused), ExitCode::kEnvironment);
  EXPECT_THAT(Error(refused), HasSubstr(absl::StrCat("in use by process ", ::getpid())));
}

TEST_F(RunFolderTest, WhoeverAsksSeesThatALaunchWorksOnARun) {
  const auto asking = RunFolder::CreateAt(folder_ + "/run");
  EXPECT_FALSE(asking->IsWorkedOn());
  {
    auto launch = RunFolder::CreateAt(folder_ + "/run");
    ASSERT_TRUE(launch->Lock().ok());
    EXPECT_TRUE(asking->IsWorkedOn());
  }
  EXPECT_FALSE(asking->IsWorkedOn()) << "the lock names a process that lives, and that holds it no more";
}

// A host that does not see the other's lock, as on file systems whose locks are each host's own.
LockOwner OwnerElsewhere() {
  return {.pid = 4711,
          .host = "node1",
          .boot_id = "boot-of-node1",
          .pid_namespace = ThisProcessAsOwner().pid_namespace,
          .since = absl::FromUnixSeconds(1767355200)};  // 2026-01-02 12:00 UTC
}

TEST_F(RunFolderTest, ALaunchOfAnotherHostWhoseLockIsNotSeenMayStillRun) {
  auto run = RunFolder::CreateAt(folder_ + "/run");
  const std::string text = FormatLockOwner(OwnerElsewhere());
  ASSERT_TRUE(WriteFileAtomic(folder_ + "/run/lock", text).ok());
  EXPECT_EQ(run->FindWork(), RunFolder::Work::kUnknown);
  EXPECT_TRUE(run->IsWorkedOn());
  const absl::Status refused = run->Lock();
  EXPECT_EQ(ExitCodeFor(refused), ExitCode::kEnvironment);
  EXPECT_THAT(Error(refused),
              HasSubstr("has been in use by process 4711 on node1 since 2026-01-02 12:00:00 UTC"));
  EXPECT_THAT(Error(refused), HasSubstr(folder_ + "/run --take-over"));
  EXPECT_EQ(*ReadFile(folder_ + "/run/lock"), text) << "who was refused is not written down";
  EXPECT_EQ(run->FindWork(), RunFolder::Work::kUnknown);
  ASSERT_TRUE(run->TakeOver().ok());
  EXPECT_EQ(run->Owner().pid, ::getpid());
  EXPECT_EQ(run->FindWork(), RunFolder::Work::kSeen);
}

TEST_F(RunFolderTest, ALockThatIsSeenIsNotTakenOverWhoeverHoldsIt) {
  auto run = RunFolder::CreateAt(folder_ + "/run");
  ASSERT_TRUE(WriteFileAtomic(folder_ + "/run/lock", FormatLockOwner(OwnerElsewhere())).ok());
  const int held = ::open((folder_ + "/run/lock").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(held, LOCK_EX), 0);
  EXPECT_EQ(run->FindWork(), RunFolder::Work::kSeen) << "4711 is no process here, and need not be";
  EXPECT_THAT(Error(run->TakeOver()), HasSubstr("is in use by process 4711 on node1"));
  ::close(held);
}

TEST_F(RunFolderTest, WhatRanBeforeThisHostWasStartedAgainIsGone) {
  auto run = RunFolder::CreateAt(folder_ + "/run");
  LockOwner before = ThisProcessAsOwner();
  before.boot_id = "the boot before";
  ASSERT_TRUE(WriteFileAtomic(folder_ + "/run/lock", FormatLockOwner(before)).ok());
  EXPECT_EQ(run->FindWork(), RunFolder::Work::kNone);
  EXPECT_TRUE(run->Lock().ok());
}

// A container that was replaced by another one of this machine.
TEST_F(RunFolderTest, OnOneKernelALockThatIsFreeIsFreeWhateverTheHostIsCalled) {
  auto run = RunFolder::CreateAt(folder_ + "/run");
  LockOwner other = ThisProcessAsOwner();
  other.host = "container-1";
  other.pid_namespace = "pid:[1]";
  ASSERT_TRUE(WriteFileAtomic(folder_ + "/run/lock", FormatLockOwner(other)).ok());
  EXPECT_EQ(run->FindWork(), RunFolder::Work::kNone);
  const int held = ::open((folder_ + "/run/lock").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(held, LOCK_EX), 0);
  EXPECT_EQ(run->FindWork(), RunFolder::Work::kSeen) << "its pid counts in another namespace";
  ::close(held);
  EXPECT_TRUE(run->Lock().ok());
}

TEST_F(RunFolderTest, ALaunchThatHasEndedLeavesNoOpenQuestion) {
  {
    auto run = RunFolder::CreateAt(folder_ + "/run");
    ASSERT_TRUE(run->Lock().ok());
    EXPECT_EQ(run->Owner().host, HostName());
  }
  const LockOwner left = ReadLockOwner(folder_ + "/run/lock");
  EXPECT_EQ(left.host, "");
  EXPECT_TRUE(HasSurelyEnded(left, OwnerElsewhere())) << "also for another host";
}

TEST_F(RunFolderTest, WhatAKilledLaunchLeftHalfWrittenGoes) {
  auto run = RunFolder::CreateAt(folder_ + "/run");
  for (const char* name : {"recipe.json.tmp.4711", "plan.json.tmp.1", "trace.json.tmp.2", "recipe.json"}) {
    ASSERT_TRUE(WriteFileAtomic(absl::StrCat(folder_, "/run/", name), "{").ok());
  }
  ASSERT_TRUE(run->Lock().ok());
  EXPECT_FALSE(PathExists(folder_ + "/run/recipe.json.tmp.4711"));
  EXPECT_FALSE(PathExists(folder_ + "/run/plan.json.tmp.1"));
  EXPECT_TRUE(PathExists(folder_ + "/run/trace.json.tmp.2")) << "of another, who may be at it";
  EXPECT_TRUE(PathExists(folder_ + "/run/recipe.json"));
}

TEST_F(RunFolderTest, ItsOwnFilesAreKnownUnderEveryName) {
  const auto run = RunFolder::CreateAt(folder_ + "/run");
  ASSERT_EQ(::symlink("run", (folder_ + "/link").c_str()), 0);
  EXPECT_TRUE(run->IsOwnFile(folder_ + "/link/./recipe.json"));
  EXPECT_TRUE(run->IsOwnFile(folder_ + "/run/logs/../traces/rank-00000.json"));
  EXPECT_FALSE(run->IsOwnFile(folder_ + "/run/trace.json"));
  EXPECT_FALSE(run->IsOwnFile(folder_ + "/recipe.json"));
  EXPECT_FALSE(run->IsOwnFile("-"));
}

// Nobody who works on the run: a look at its state while the launch begins must not turn it away.
TEST_F(RunFolderTest, ALockThatItsHolderHasLeftIsWaitedFor) {
  auto run = RunFolder::CreateAt(folder_ + "/run");
  ASSERT_TRUE(WriteFileAtomic(folder_ + "/run/lock", absl::StrCat(::getppid())).ok());
  const int look = ::open((folder_ + "/run/lock").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(look, LOCK_SH), 0);
  std::thread looked([look] {
    ::usleep(30'000);  // long enough for a launch that does not wait to be refused
    ::close(look);
  });
  const absl::Status locked = run->Lock();
  looked.join();
  EXPECT_TRUE(locked.ok()) << locked;
}

// The holder is dead, but what cleans up after it still holds the lock.
TEST_F(RunFolderTest, TheCleanUpAfterADeadHolderIsAwaited) {
  const std::string path = folder_ + "/run";
  ASSERT_TRUE(RunFolder::CreateAt(path).ok());
  int cleaned[2];  // written by the cleaner before it ends
  ASSERT_EQ(::pipe(cleaned), 0);
  int locked[2];
  ASSERT_EQ(::pipe(locked), 0);
  const pid_t holder = ::fork();
  if (holder == 0) {
    auto run = RunFolder::CreateAt(path);
    if (!run->Lock().ok()) ::_exit(1);
    if (::fork() == 0) {
      (void)!::write(locked[1], "l", 1);
      while (::kill(::getppid(), 0) == 0 && ::getppid() != 1) ::usleep(1000);
      ::usleep(50'000);
      (void)!::write(cleaned[1], "c", 1);
      ::_exit(0);
    }
    ::_exit(0);
  }
  char byte;
  ASSERT_EQ(::read(locked[0], &byte, 1), 1);
  ASSERT_EQ(::waitpid(holder, nullptr, 0), holder);
  auto run = RunFolder::CreateAt(path);
  EXPECT_TRUE(run->Lock().ok());
  ::close(cleaned[1]);
  EXPECT_EQ(::read(cleaned[0], &byte, 1), 1) << "the lock was given away before the cleaner was done";
  for (const int fd : {cleaned[0], locked[0], locked[1]}) ::close(fd);
}

// Whether it can be bound there, and stays there.
int ListenAt(const std::string& path) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  path.copy(address.sun_path, sizeof(address.sun_path));
  EXPECT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0) << path;
  EXPECT_EQ(::listen(fd, 1), 0);
  return fd;
}

TEST_F(RunFolderTest, ASocketPathIsNeverTooLong) {
  const auto near = RunFolder::CreateAt(folder_ + "/run");
  EXPECT_EQ(*near->MakeSocketPath(), near->path() + "/control.sock");
  const auto far = RunFolder::CreateAt(folder_ + "/" + std::string(120, 'x'));
  const std::string socket = *far->MakeSocketPath();
  EXPECT_LE(socket.size(), 107u);
  const std::string parent = socket.substr(0, socket.rfind('/'));
  struct stat info;
  ASSERT_EQ(::stat(parent.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  (void)RemoveAll(parent);

  const char* const before = std::getenv("TMPDIR");
  ASSERT_EQ(::setenv("TMPDIR", folder_.c_str(), 1), 0);
  const std::string chosen = *far->MakeSocketPath();
  EXPECT_EQ(chosen.substr(0, folder_.size() + 10), folder_ + "/trainctl-");
  ::close(ListenAt(chosen));
  far->RemoveStaleSockets(chosen);
  EXPECT_FALSE(PathExists(chosen.substr(0, chosen.rfind('/'))));
  ASSERT_EQ(::setenv("TMPDIR", (folder_ + "/absent").c_str(), 1), 0);
  EXPECT_EQ(far->MakeSocketPath()->substr(0, 14), "/tmp/trainctl-")
      << "/tmp is tried where TMPDIR cannot be used";
  EXPECT_EQ(::setenv("TMPDIR", (folder_ + "/" + std::string(90, 'x')).c_str(), 1), 0);
  EXPECT_EQ(far->MakeSocketPath()->substr(0, 14), "/tmp/trainctl-") << "its path is too long";
  std::error_code error;
  const std::string relative = std::filesystem::relative(folder_, error).string();
  EXPECT_EQ(::setenv("TMPDIR", relative.c_str(), 1), 0);
  EXPECT_EQ(far->MakeSocketPath()->substr(0, folder_.size() + 10), folder_ + "/trainctl-");
  before == nullptr ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", before, 1);
}

TEST_F(RunFolderTest, OfWhatTheJournalCallsASocketOnlyStaleOnesOfALaunchAreRemoved) {
  const auto run = RunFolder::CreateAt(folder_ + "/run");
  const std::string own = run->path() + "/control.sock";
  const std::string file = folder_ + "/thesis.tex", other = folder_ + "/other.sock";
  ASSERT_TRUE(WriteFileAtomic(file, "years of work").ok());
  ::close(ListenAt(other));
  for (const std::string& recorded : {file, other}) {
    run->RemoveStaleSockets(recorded);
    EXPECT_TRUE(PathExists(recorded)) << recorded;
  }
  std::string shared = "/tmp/trainctl-XXXXXX";  // as for a run whose path is too long
  ASSERT_NE(::mkdtemp(shared.data()), nullptr);
  const std::string short_socket = shared + "/control.sock";
  for (const std::string& socket : {own, short_socket}) {
    const int listener = ListenAt(socket);
    run->RemoveStaleSockets(short_socket);
    EXPECT_TRUE(PathExists(socket)) << "somebody listens: the run of which this one is a copy";
    ::close(listener);
    run->RemoveStaleSockets(short_socket);
    EXPECT_FALSE(PathExists(socket));
  }
  EXPECT_FALSE(PathExists(shared));
  ASSERT_TRUE(WriteFileAtomic(own, "no socket").ok());
  run->RemoveStaleSockets("");
  EXPECT_TRUE(PathExists(own));
}

TEST_F(RunFolderTest, ACopyHasAnotherIdAndAMovedFolderTheSame) {
  const std::string id = RunFolder::CreateAt(folder_ + "/run")->id();
  EXPECT_NE(RunFolder::CreateAt(folder_ + "/copy")->id(), id);
  ASSERT_EQ(::rename((folder_ + "/run").c_str(), (folder_ + "/moved").c_str()), 0);
  EXPECT_EQ(RunFolder::CreateAt(folder_ + "/moved")->id(), id);
}

TEST_F(RunFolderTest, OnlyCommittedCheckpointsCount) {
  const auto run = RunFolder::CreateAt(folder_ + "/run");
  EXPECT_EQ(run->NewestCheckpointStep(), -1);
  for (const char* name : {"step-00000300", ".tmp-step-00000200", "step-00000400.tmp", "other"}) {
    ASSERT_TRUE(MakeDirs(run->checkpoints_path() + "/" + name).ok());
  }
  for (const int64_t step : {20, 100}) {
    checkpoint::CheckpointWriter writer(run->checkpoints_path(), step, 0, 1);
    ASSERT_TRUE(writer.Begin().ok());
    ASSERT_TRUE(writer.Write({}, nullptr).ok());
    EXPECT_NE(run->NewestCheckpointStep(), step) << "it is not committed yet";
    ASSERT_TRUE(writer.Commit({.step = step}).ok());
  }
  EXPECT_EQ(run->NewestCheckpointStep(), 100);
  EXPECT_EQ(run->NewestCheckpointStep(100), -1);
  EXPECT_THAT(run->Checkpoints().Problems(), ElementsAre(HasSubstr("step 300 is damaged")));
  ASSERT_EQ(::rename((run->checkpoints_path() + "/step-00000100").c_str(),
                     (run->checkpoints_path() + "/step-00000200").c_str()),
            0);
  EXPECT_EQ(run->NewestCheckpointStep(), 20) << "step 100 under another step's name";
}

TEST_F(RunFolderTest, ARunThatHadACheckpointDoesNotBeginAtStepOne) {
  const auto run = RunFolder::CreateAt(folder_ + "/run");
  EXPECT_TRUE(run->CheckMayBegin({}).ok()) << "it was killed before its first one";
  const RunState state{.last_checkpoint_step = 6};
  absl::Status status = run->CheckMayBegin(state);
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData);
  EXPECT_THAT(Error(status), HasSubstr("records a checkpoint at step 6"));
  EXPECT_THAT(Error(status), HasSubstr("trainctl resume " + run->path() + " --from-scratch"));
  ASSERT_TRUE(MakeDirs(run->checkpoints_path() + "/step-00000006").ok());
  EXPECT_THAT(Error(run->CheckMayBegin(state)), HasSubstr("checkpoint at step 6 is damaged"));
}

TEST_F(RunFolderTest, WhatIsSetAsideTakesNothingsName) {
  auto run = RunFolder::CreateAt(folder_ + "/run");
  ASSERT_TRUE(run->Lock().ok());
  for (const char* aside : {"metrics.jsonl.set-aside-1", "metrics.jsonl.set-aside-2"}) {
    ASSERT_TRUE(WriteFileAtomic(run->metrics_path(), aside).ok());
    const auto name = run->SetAside("metrics.jsonl");
    ASSERT_TRUE(name.ok()) << name.status();
    EXPECT_EQ(*name, aside);
    EXPECT_EQ(*ReadFile(run->path() + "/" + aside), aside);
  }
  EXPECT_EQ(ExitCodeFor(run->SetAside("metrics.jsonl").status()), ExitCode::kEnvironment);
}

TEST_F(RunFolderTest, ARunWithoutAJournalIsNew) {
  const auto run = RunFolder::CreateAt(folder_ + "/run");
  const auto state = run->ReadState();
  ASSERT_TRUE(state.ok());
  EXPECT_EQ(state->status, RunStatus::kNew);
}

}  // namespace
}  // namespace trainctl::run
