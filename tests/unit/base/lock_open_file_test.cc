#include "base/lock_open_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace trainctl {
namespace {

using testing::AllOf;
using testing::HasSubstr;

int flock_error = 0;
int range_error = 0;

// A file system whose flock fails with flock_error.
LockCalls WithoutFlock() {
  LockCalls calls = SystemLockCalls();
  calls.lock_file = [](int, int) {
    errno = flock_error;
    return -1;
  };
  return calls;
}

// One whose locks of open files fail as well.
LockCalls WithoutLocks() {
  LockCalls calls = WithoutFlock();
  calls.lock_range = [](int, struct ::flock*) {
    errno = range_error;
    return -1;
  };
  return calls;
}

class LockOpenFile : public testing::Test {
 protected:
  LockOpenFile() {
    const int fd = ::mkstemp(path_.data());
    EXPECT_GE(fd, 0);
    ::close(fd);
  }
  ~LockOpenFile() override { ::unlink(path_.c_str()); }
  int Open(int flags = O_RDWR) const { return ::open(path_.c_str(), flags | O_CLOEXEC); }
  bool Lock(int fd, LockKind kind, const LockCalls& calls) const {
    const absl::StatusOr<bool> locked = TryLockOpenFile(fd, kind, path_, calls);
    EXPECT_TRUE(locked.ok()) << locked.status();
    return locked.value_or(false);
  }
  void ExpectExclusion(const LockCalls& calls) const {
    const int first = Open();
    const int second = Open();
    EXPECT_TRUE(Lock(first, LockKind::kExclusive, calls));
    EXPECT_FALSE(Lock(second, LockKind::kExclusive, calls));
    EXPECT_FALSE(Lock(second, LockKind::kShared, calls));
    ::close(Open());
    EXPECT_FALSE(Lock(second, LockKind::kExclusive, calls)) << "another descriptor was closed";
    const int inherited = ::dup(first);
    ::close(first);
    EXPECT_FALSE(Lock(second, LockKind::kExclusive, calls)) << "a helper still has it open";
    ::close(inherited);
    EXPECT_TRUE(Lock(second, LockKind::kShared, calls));
    const int reader = Open(O_RDONLY);
    EXPECT_TRUE(Lock(reader, LockKind::kShared, calls));
    ::close(reader);
    ::close(second);
  }

  std::string path_ = testing::TempDir() + "/lock-open-file-XXXXXX";
};

TEST_F(LockOpenFile, OneOpenFileAtATimeHasAnExclusiveLock) { ExpectExclusion(SystemLockCalls()); }

TEST_F(LockOpenFile, AFileSystemWithoutFlockTakesTheOtherKind) {
  for (const int error : {ENOSYS, EOPNOTSUPP, ENOTSUP, ENOLCK, EINVAL, EPERM}) {
    flock_error = error;
    SCOPED_TRACE(error);
    ExpectExclusion(WithoutFlock());
  }
}

TEST_F(LockOpenFile, TheOtherKindExcludesOtherProcesses) {
  flock_error = ENOSYS;
  const int fd = Open();
  EXPECT_TRUE(Lock(fd, LockKind::kExclusive, WithoutFlock()));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const absl::StatusOr<bool> locked = TryLockOpenFile(Open(), LockKind::kExclusive, path_, WithoutFlock());
    ::_exit(locked.ok() && !*locked ? 7 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  ::close(fd);
}

TEST_F(LockOpenFile, AFileSystemWithoutLocksIsAnEnvironmentErrorThatSaysWhatToDo) {
  flock_error = ENOSYS;
  for (const int error : {ENOSYS, EOPNOTSUPP, ENOLCK, EINVAL, EPERM, EIO}) {
    range_error = error;
    const absl::Status status =
        TryLockOpenFile(0, LockKind::kExclusive, "runs/a/lock", WithoutLocks()).status();
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kEnvironment);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("cannot lock runs/a/lock"), HasSubstr("-o flock"), HasSubstr("local_lock"),
                      HasSubstr("nolock"), HasSubstr("run.root")));
  }
}

TEST_F(LockOpenFile, OtherFailuresOfFlockDoNotChangeTheKind) {
  flock_error = EIO;
  const absl::Status status = TryLockOpenFile(0, LockKind::kExclusive, "f", WithoutFlock()).status();
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kEnvironment);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("cannot lock f: the file locks of its file system fail (Input/output error)"),
                    HasSubstr("--run-dir")));
  flock_error = EWOULDBLOCK;
  EXPECT_FALSE(Lock(0, LockKind::kExclusive, WithoutFlock()));
}

TEST_F(LockOpenFile, WithoutFlockAFileThatIsOpenForReadingTakesASharedLockOnly) {
  flock_error = ENOSYS;
  const int fd = Open(O_RDONLY);
  EXPECT_TRUE(Lock(fd, LockKind::kShared, WithoutFlock()));
  EXPECT_FALSE(TryLockOpenFile(fd, LockKind::kExclusive, path_, WithoutFlock()).ok());
  ::close(fd);
}

}  // namespace
}  // namespace trainctl
