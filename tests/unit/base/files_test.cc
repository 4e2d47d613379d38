#include "base/files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace trainctl {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class Files : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = absl::StrCat(::testing::TempDir(), "files_test_XXXXXX");
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string Path(absl::string_view name) const { return absl::StrCat(dir_, "/", name); }
  size_t NumEntries() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(dir_), {}));
  }

  std::string dir_;
};

TEST_F(Files, WhatIsWrittenIsReadBack) {
  const std::string contents("a\0b\n\xff", 5);
  ASSERT_TRUE(WriteFileAtomic(Path("x"), contents).ok());
  EXPECT_EQ(*ReadFile(Path("x")), contents);
  EXPECT_EQ(*FileBytes(Path("x")), 5);
  ASSERT_TRUE(WriteFileAtomic(Path("x"), "").ok());
  EXPECT_EQ(*ReadFile(Path("x")), "");
  EXPECT_EQ(NumEntries(), 1u);  // no temporary name is left
}

TEST_F(Files, ALinkIsNeverWrittenThrough) {
  ASSERT_TRUE(WriteFileAtomic(Path("precious"), "kept").ok());
  // A name that WriteFileAtomic uses.
  const std::string temporary = absl::StrCat(Path("x"), ".tmp.", ::getpid());
  for (const std::string& link : {Path("x"), temporary, Path("log"), Path("lock")}) {
    ASSERT_EQ(::symlink(Path("precious").c_str(), link.c_str()), 0);
  }
  EXPECT_TRUE(WriteFileAtomic(Path("x"), "new").ok());
  EXPECT_FALSE(AppendFile(Path("log"), "new").ok());
  EXPECT_FALSE(FileLock::TryLock(Path("lock")).ok());
  EXPECT_EQ(*ReadFile(Path("x")), "new");
  EXPECT_EQ(*ReadFile(Path("precious")), "kept");
}

TEST_F(Files, NobodyElseCanChangeWhatIsMadeWhateverTheUmask) {
  const mode_t before = ::umask(0);
  EXPECT_TRUE(MakeDirs(Path("a/b")).ok());
  EXPECT_TRUE(WriteFileAtomic(Path("a/b/x"), "").ok());
  ::umask(before);
  for (const std::string name : {"a", "a/b", "a/b/x"}) {
    struct stat info;
    ASSERT_EQ(::stat(Path(name).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0022, 0u) << name;
  }
  EXPECT_TRUE(MakeDirs(Path("a/b")).ok()) << "they are there";
  EXPECT_FALSE(MakeDirs(Path("a/b/x/c")).ok()) << "a file is in the way";
  EXPECT_FALSE(MakeDirs("").ok());
}

TEST_F(Files, AReadHasALimit) {
  ASSERT_TRUE(WriteFileAtomic(Path("x"), std::string(100000, 'x')).ok());
  EXPECT_TRUE(ReadFile(Path("x"), 100000).ok());
  const absl::Status status = ReadFile(Path("x"), 99999).status();
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData);
  EXPECT_EQ(status.message(), absl::StrCat(Path("x"), " is larger than 99999 bytes"));
}

TEST_F(Files, APipeThatNobodyWritesToIsRefusedAndAShellsOwnIsRead) {
  ASSERT_EQ(::mkfifo(Path("pipe").c_str(), 0600), 0);
  const auto refused = ReadFile(Path("pipe"));
  EXPECT_EQ(ExitCodeFor(refused.status()), ExitCode::kBadData);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("is not a regular file"));

  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::thread writer([&] {  // what has not come yet is waited for
    EXPECT_EQ(::write(ends[1], "ab", 2), 2);
    ::close(ends[1]);
  });
  const auto text = ReadFile(absl::StrCat("/dev/fd/", ends[0]));
  writer.join();
  ::close(ends[0]);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, "ab");
}

TEST_F(Files, ErrorsNameThePathAndTheReason) {
  EXPECT_EQ(ReadFile(Path("no")).status().message(),
            absl::StrCat("cannot open ", Path("no"), ": No such file or directory"));
  EXPECT_EQ(ReadFile(dir_).status().message(), absl::StrCat("cannot read ", dir_, ": Is a directory"));
  EXPECT_EQ(ExitCodeFor(ReadFile(dir_).status()), ExitCode::kEnvironment);
  EXPECT_FALSE(FileBytes(Path("no")).ok());
  EXPECT_FALSE(AppendFile(Path("no/x"), "y").ok());
  EXPECT_FALSE(SyncDir(Path("no")).ok());
  EXPECT_FALSE(SyncFile(Path("no")).ok());
  EXPECT_FALSE(MappedFile::Open(Path("no")).ok());
  EXPECT_FALSE(FileLock::TryLock(Path("no/lock")).ok());
}

TEST_F(Files, AFailedWriteLeavesTheOldFileAndNoRemains) {
  ASSERT_TRUE(MakeDirs(Path("target")).ok());
  ASSERT_TRUE(WriteFileAtomic(Path("target/keep"), "old").ok());
  // A folder cannot be replaced by a file.
  EXPECT_THAT(std::string(WriteFileAtomic(Path("target"), "new").message()), StartsWith("cannot rename to "));
  EXPECT_EQ(*ReadFile(Path("target/keep")), "old");
  EXPECT_EQ(NumEntries(), 1u);
  // /dev/full refuses every write as a full disk does.
  EXPECT_THAT(std::string(AppendFile("/dev/full", "x").message()), HasSubstr("No space left on device"));
}

TEST_F(Files, AppendAddsAtTheEnd) {
  ASSERT_TRUE(AppendFile(Path("log"), "a").ok());
  ASSERT_TRUE(AppendFile(Path("log"), "b").ok());
  EXPECT_EQ(*ReadFile(Path("log")), "ab");
}

TEST_F(Files, FoldersAreMadeAndRemoved) {
  ASSERT_TRUE(MakeDirs(Path("a/b/c")).ok());
  ASSERT_TRUE(MakeDirs(Path("a/b/c")).ok());
  EXPECT_TRUE(PathExists(Path("a/b/c")));
  EXPECT_TRUE(SyncDir(Path("a/b/c")).ok());
  ASSERT_TRUE(RemoveAll(Path("a")).ok());
  EXPECT_FALSE(PathExists(Path("a")));
  EXPECT_TRUE(RemoveAll(Path("a")).ok());
  ASSERT_TRUE(WriteFileAtomic(Path("f"), "").ok());
  EXPECT_FALSE(MakeDirs(Path("f/g")).ok());
}

TEST_F(Files, AMapShowsTheWholeFileAndNoticesThatItShrank) {
  ASSERT_TRUE(WriteFileAtomic(Path("x"), "hello").ok());
  absl::StatusOr<MappedFile> map = MappedFile::Open(Path("x"));
  ASSERT_TRUE(map.ok()) << map.status();
  MappedFile moved = *std::move(map);
  EXPECT_EQ(std::string(moved.bytes().begin(), moved.bytes().end()), "hello");
  EXPECT_EQ(*moved.CurrentBytes(), 5);
  ASSERT_EQ(::truncate(Path("x").c_str(), 2), 0);
  EXPECT_EQ(*moved.CurrentBytes(), 2);
  EXPECT_EQ(moved.bytes().size(), 5u);
  EXPECT_EQ(moved.path(), Path("x"));
}

TEST_F(Files, AnEmptyFileMapsToNothingAndAFolderDoesNotMap) {
  ASSERT_TRUE(WriteFileAtomic(Path("x"), "").ok());
  EXPECT_TRUE(MappedFile::Open(Path("x"))->bytes().empty());
  EXPECT_EQ(MappedFile::Open(dir_).status().message(), absl::StrCat(dir_, " is not a regular file"));
}

TEST_F(Files, ALockIsHeldUntilItIsDestroyedAndNamesItsHolder) {
  {
    absl::StatusOr<FileLock> lock = FileLock::TryLock(Path("lock"));
    ASSERT_TRUE(lock.ok()) << lock.status();
    const absl::Status status = FileLock::TryLock(Path("lock")).status();
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kEnvironment);
    EXPECT_EQ(status.message(), absl::StrCat(Path("lock"), " is locked by process ", ::getpid()));
    FileLock moved = *std::move(lock);
    EXPECT_FALSE(FileLock::TryLock(Path("lock")).ok());
  }
  EXPECT_TRUE(FileLock::TryLock(Path("lock")).ok());
}

TEST_F(Files, TheLockOfADeadProcessIsFree) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const absl::StatusOr<FileLock> lock = FileLock::TryLock(Path("lock"));
    ::_exit(lock.ok() ? 7 : 1);  // without running the destructor
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_TRUE(FileLock::TryLock(Path("lock")).ok());
}

TEST_F(Files, AFileSystemThatReportsNoSizeHasUnknownRoom) {
  struct ::statvfs info = {};
  info.f_frsize = 4096;
  EXPECT_FALSE(RoomOf(info).is_known());
  info.f_blocks = 10;
  EXPECT_TRUE(RoomOf(info).is_known());
  EXPECT_EQ(RoomOf(info).free_bytes, 0) << "full, which is not unknown";
  EXPECT_EQ(RoomOf(info).total_bytes, 40960);
  info.f_bavail = UINT64_MAX / 2;
  EXPECT_EQ(RoomOf(info).free_bytes, INT64_MAX);
}

TEST_F(Files, FreeBytesAreThoseOfTheDiskThatAFolderWillLieOn) {
  const absl::StatusOr<std::optional<int64_t>> here = FreeBytes(dir_);
  ASSERT_TRUE(here.ok()) << here.status();
  EXPECT_GT(here->value_or(0), 0);
  EXPECT_TRUE(FreeBytes(dir_ + "/not/yet/made").ok());
  ASSERT_TRUE(WriteFileAtomic(dir_ + "/file", "x").ok());
  const absl::Status in_the_way = FreeBytes(dir_ + "/file/runs").status();
  EXPECT_EQ(ExitCodeFor(in_the_way), ExitCode::kEnvironment);
  EXPECT_THAT(std::string(in_the_way.message()), HasSubstr(dir_ + "/file"));
}

}  // namespace
}  // namespace trainctl
