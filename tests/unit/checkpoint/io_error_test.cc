// Errors of the operating system while saving: the error names path and reason, earlier checkpoints
// stay, nothing half-written is ever read, and the next save works.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstring>

#include "checkpoint/phase_hook.h"
#include "tests/unit/checkpoint/checkpoint_test_util.h"

namespace trainctl::checkpoint {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

enum class Kind { kCreate, kWrite, kFsync, kClose, kFsyncDir, kMkdir, kRename, kExchange, kCount };

// Makes the `fail_at`-th call of a kind fail with `error_number`.
class FailingOps : public FileOps {
 public:
  FailingOps(Kind kind, int fail_at, int error_number)
      : kind_(kind), fail_at_(fail_at), error_number_(error_number) {}
  bool has_failed() const { return calls_ > fail_at_; }

  int CreateNew(const std::string& path, bool direct) override {
    return Fails(Kind::kCreate) ? -1 : FileOps::CreateNew(path, direct);
  }
  ssize_t Write(int fd, const void* data, size_t num_bytes) override {
    return Fails(Kind::kWrite) ? -1 : FileOps::Write(fd, data, num_bytes);
  }
  int Fsync(int fd) override { return Fails(Kind::kFsync) ? -1 : FileOps::Fsync(fd); }
  int Close(int fd) override {
    const int result = FileOps::Close(fd);
    return Fails(Kind::kClose) ? -1 : result;
  }
  int FsyncDir(const std::string& path) override {
    return Fails(Kind::kFsyncDir) ? -1 : FileOps::FsyncDir(path);
  }
  int Mkdir(const std::string& path) override { return Fails(Kind::kMkdir) ? -1 : FileOps::Mkdir(path); }
  int Rename(const std::string& from, const std::string& to) override {
    return Fails(Kind::kRename) ? -1 : FileOps::Rename(from, to);
  }
  int Exchange(const std::string& a, const std::string& b) override {
    return Fails(Kind::kExchange) ? -1 : FileOps::Exchange(a, b);
  }

 private:
  bool Fails(Kind kind) {
    if (kind != kind_ || calls_++ != fail_at_) return false;
    errno = error_number_;
    return true;
  }
  Kind kind_;
  int fail_at_;
  int error_number_;
  int calls_ = 0;
};

TEST(CheckpointIoErrors, AnyCallThatFailsIsReportedAndHarmsNothing) {
  int num_failures = 0;
  for (int kind = 0; kind < static_cast<int>(Kind::kCount); ++kind) {
    for (const int error_number : {ENOSPC, EIO}) {
      for (int fail_at = 0;; ++fail_at) {
        SCOPED_TRACE(testing::Message() << "kind " << kind << ", call " << fail_at);
        TempFolder folder;
        ASSERT_TRUE(Save(folder.path(), 1, TwoRanks(), 1).ok());
        ASSERT_TRUE(Save(folder.path(), 2, TwoRanks(), 2).ok());
        FailingOps ops(static_cast<Kind>(kind), fail_at, error_number);
        const absl::Status status =
            Save(folder.path(), 2, TwoRanks(), 3, &ops);  // replaces: every call is made
        std::vector<std::string> warnings;
        const auto found = FindNewestGood(folder.path(), &warnings);
        ASSERT_TRUE(found.ok()) << found.status();
        EXPECT_EQ(found->step, 2);
        EXPECT_THAT(warnings, IsEmpty());
        if (!ops.has_failed()) {
          EXPECT_TRUE(status.ok()) << status;
          break;
        }
        ++num_failures;
        EXPECT_EQ(ExitCodeFor(status), ExitCode::kEnvironment) << status;
        EXPECT_THAT(std::string(status.message()), HasSubstr(folder.path()));
        EXPECT_THAT(std::string(status.message()), HasSubstr(std::strerror(error_number)));
        ASSERT_TRUE(Save(folder.path(), 2, TwoRanks(), 4).ok());
        ExpectContents(*CheckpointReader::Open(StepPath(folder.path(), 2)), TwoRanksWhole(), 4);
        ASSERT_TRUE(ApplyRetention(folder.path(), {1, 0}, 2).ok());
        EXPECT_EQ(ListCheckpoints(folder.path())->size(), 1u);
      }
    }
  }
  std::printf("%d failures injected\n", num_failures);
  EXPECT_GE(num_failures, 2 * 16);
}

// As a network file system does with a folder that another machine has open.
TEST(CheckpointIoErrors, AFolderThatStaysKeepsNoOther) {
  class StayingFolder : public FileOps {
   public:
    int Rmdir(const std::string& path) override {
      if (path.find("step-00000020") == std::string::npos) return FileOps::Rmdir(path);
      errno = ENOTEMPTY;
      return -1;
    }
  };
  TempFolder folder;
  for (int64_t step : {10, 20, 30, 40}) ASSERT_TRUE(Save(folder.path(), step, TwoRanks(), 1).ok());
  StayingFolder ops;
  for (int again = 0; again < 2; ++again) {
    const absl::Status status = ApplyRetention(folder.path(), {2, 0}, 40, &ops);
    EXPECT_NE(std::string(status.message()).find("step-00000020"), std::string::npos) << status;
    EXPECT_EQ(ListCheckpoints(folder.path())->size(), 2u);
  }
  EXPECT_TRUE(ApplyRetention(folder.path(), {2, 0}, 40).ok()) << "it could be removed at last";
  EXPECT_FALSE(PathExists(folder.path() + "/.tmp-removed-step-00000020"));
}

TEST(CheckpointIoErrors, ACommitWhoseSyncFailedStaysFailed) {
  TempFolder folder;
  for (int fail_at = 0; fail_at < 2; ++fail_at) {  // the temporary folder, its parent
    FailingOps ops(Kind::kFsyncDir, fail_at, EIO);
    CheckpointWriter writer(folder.path(), 1, 0, 1, "", &ops);
    ASSERT_TRUE(writer.Begin().ok());
    ASSERT_TRUE(writer.Write(TwoRanksWhole(), ContentsOf(TwoRanksWhole(), 1)).ok());
    const absl::Status first = writer.Commit({1, "{}"});
    EXPECT_FALSE(first.ok());
    EXPECT_EQ(writer.Commit({1, "{}"}), first) << "the second sync was trusted";
  }
}

// Also breaks the alignment of direct writes, which then end.
class ShortWrites : public FileOps {
 public:
  explicit ShortWrites(size_t max_bytes) : max_bytes_(max_bytes) {}
  ssize_t Write(int fd, const void* data, size_t num_bytes) override {
    if (++calls_ % 3 == 0) {
      errno = EINTR;
      return -1;
    }
    return FileOps::Write(fd, data, std::min<size_t>(num_bytes, max_bytes_));
  }

 private:
  size_t max_bytes_;
  int calls_ = 0;
};

TEST(CheckpointIoErrors, ShortAndInterruptedWritesAreContinued) {
  TempFolder folder;
  ShortWrites few_bytes(7);
  ASSERT_TRUE(Save(folder.path(), 1, TwoRanks(), 1, &few_bytes).ok());
  ExpectContents(*CheckpointReader::Open(StepPath(folder.path(), 1)), TwoRanksWhole(), 1);
  ShortWrites odd_sizes(100'001);
  const Slice large = Whole("w", DType::kF32, {1'000'003});
  ASSERT_TRUE(Save(folder.path(), 2, {{large}}, 2, &odd_sizes).ok());
  ExpectContents(*CheckpointReader::Open(StepPath(folder.path(), 2)), {large}, 2);
}

// More than the writer's buffer, so that most of it is written while the rest is being filled.
TEST(CheckpointIoErrors, LargeFilesComeBackAndAFailureInTheMiddleIsReported) {
  TempFolder folder;
  const std::vector<Slice> slices = {Whole("w", DType::kF32, {6'000'001}),
                                     Whole("v", DType::kBF16, {3, 1'000'003}), Whole("u", DType::kU8, {5})};
  int num_failures = 0;
  for (int fail_at = 0;; ++fail_at) {
    FailingOps ops(Kind::kWrite, fail_at, EIO);
    const absl::Status status = Save(folder.path(), 1, {slices}, 1, &ops);
    if (!ops.has_failed()) {
      EXPECT_TRUE(status.ok()) << status;
      break;
    }
    ++num_failures;
    EXPECT_THAT(std::string(status.message()), HasSubstr("Input/output error"));
    EXPECT_TRUE(ListCheckpoints(folder.path())->empty());
  }
  EXPECT_GE(num_failures, 5);
  ExpectContents(*CheckpointReader::Open(StepPath(folder.path(), 1)), slices, 1);
}

TEST(CheckpointIoErrors, AFullDiskIsAnErrorAndGivesTheRoomBack) {
  // A mount of its own that ends with this process.
  if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    GTEST_SKIP() << "cannot make a mount namespace: " << std::strerror(errno);
  }
  TempFolder folder;
  if (::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=6m") != 0) {
    GTEST_SKIP() << "cannot mount a small tmpfs: " << std::strerror(errno);
  }
  const std::string root = folder.path() + "/checkpoints";
  const Slice small = Whole("w", DType::kF32, {500'000});    // 2 MB
  const Slice large = Whole("w", DType::kF32, {2'000'000});  // 8 MB
  ASSERT_TRUE(Save(root, 1, {{small}}, 1).ok());
  const absl::Status status = Save(root, 2, {{large}}, 2);
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kEnvironment);
  EXPECT_THAT(std::string(status.message()), HasSubstr(".tmp-step-00000002/rank-00000.safetensors"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("No space left on device"));
  std::vector<std::string> warnings;
  EXPECT_EQ(FindNewestGood(root, &warnings)->step, 1);
  EXPECT_THAT(warnings, IsEmpty());
  EXPECT_TRUE(Save(root, 3, {{small}}, 3).ok()) << "the failed save kept its room";
  ExpectContents(*CheckpointReader::Open(StepPath(root, 3)), {small}, 3);
  EXPECT_EQ(::umount2(folder.path().c_str(), MNT_DETACH), 0);
}

TEST(CheckpointIoErrors, AFolderThatCannotBeMadeIsNamed) {
  TempFolder folder;
  WriteOrDie(folder.path() + "/file", "x");
  CheckpointWriter writer(folder.path() + "/file/checkpoints", 1, 0, 1);
  const absl::Status status = writer.Begin();
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kEnvironment);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/file/checkpoints"));
}

TEST(CheckpointIoErrors, ARankThatDidNotWriteIsNamed) {
  TempFolder folder;
  CheckpointWriter writer(folder.path(), 1, 0, 2);
  ASSERT_TRUE(writer.Begin().ok());
  ASSERT_TRUE(writer.Write(TwoRanksWhole(), ContentsOf(TwoRanksWhole(), 1)).ok());
  const absl::Status status = writer.Commit({1, "{}"});
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1"));
  EXPECT_TRUE(ListCheckpoints(folder.path())->empty());
}

TEST(CheckpointPhases, AreReachedInOrderWithTheFileHalfWritten) {
  TempFolder folder;
  std::vector<std::string> phases;
  SetPhaseHook([&](const char* phase) { phases.push_back(phase); });
  const absl::Status status = Save(folder.path(), 1, {{Whole("w", DType::kF32, {1 << 20})}}, 1);
  SetPhaseHook({});
  ASSERT_TRUE(status.ok());
  EXPECT_THAT(phases, testing::ElementsAre("saving", "before_commit_rename", "after_commit_rename"));
  ASSERT_TRUE(Save(folder.path(), 2, TwoRanks(), 1).ok());
  EXPECT_EQ(phases.size(), 3u);
}

}  // namespace
}  // namespace trainctl::checkpoint
