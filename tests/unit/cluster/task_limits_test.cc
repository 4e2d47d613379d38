#include "cluster/task_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "base/files.h"

namespace trainctl::cluster {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;

// A machine as files, with processes of three users.
class TaskLimitsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "tasks-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    Write("/proc/self/uid_map", "         0          0 4294967295\n");
    AddProcess("1", 0, 9);
    AddProcess("7", 1000, 1);
    AddProcess("8", 1000, 30);
    AddProcess("9", 1001, 500);
    AddProcess("self", 1000, 30);
  }
  void TearDown() override { EXPECT_TRUE(RemoveAll(root_).ok()); }

  void Write(const std::string& path, const std::string& text) {
    const std::string full = root_ + path;
    ASSERT_TRUE(MakeDirs(full.substr(0, full.rfind('/'))).ok());
    ASSERT_TRUE(WriteFileAtomic(full, text).ok());
  }
  void AddProcess(const std::string& name, int user, int threads,
                  const std::string& capabilities = "0000000000000000") {
    Write(absl::StrCat("/proc/", name, "/status"),
          absl::StrCat("Name:\ta\nUid:\t", user, "\t0\t0\t0\nThreads:\t", threads, "\nCapEff:\t",
                       capabilities, "\n"));
  }
  static auto Is(const std::string& name, int64_t most, int64_t in_use) {
    return AllOf(Field(&TaskLimit::name, name), Field(&TaskLimit::most, most),
                 Field(&TaskLimit::in_use, in_use));
  }

  std::string root_;
};

TEST_F(TaskLimitsTest, ThreadsOfAUsersProcessesCount) {
  EXPECT_THAT(FindTaskLimits(100, root_), ElementsAre(Is("ulimit -u", 100, 31)));
  EXPECT_EQ(FindTaskLimits(100, root_)[0].room(), 69);
  EXPECT_EQ(FindTaskLimits(20, root_)[0].room(), 0);
  EXPECT_THAT(FindTaskLimits(std::nullopt, root_), IsEmpty());
}

TEST_F(TaskLimitsTest, TheUsersLimitDoesNotBindWhoMayRaiseIt) {
  AddProcess("self", 0, 30, "000001ffffffffff");
  EXPECT_THAT(FindTaskLimits(100, root_), IsEmpty());
  AddProcess("self", 1000, 30, "0000000001000000");
  EXPECT_THAT(FindTaskLimits(100, root_), IsEmpty());
  // Root of a user namespace is another user outside.
  AddProcess("self", 0, 30, "000001ffffffffff");
  Write("/proc/self/uid_map", "         0       1000          1\n");
  EXPECT_THAT(FindTaskLimits(100, root_), ElementsAre(Is("ulimit -u", 100, 9)));
}

TEST_F(TaskLimitsTest, EveryGroupAroundAProcessLimitsIt) {
  Write("/proc/self/cgroup", "5:pids:/old\n0::/a/b\n");
  Write("/sys/fs/cgroup/a/pids.max", "max\n");
  Write("/sys/fs/cgroup/a/b/pids.max", "64\n");
  Write("/sys/fs/cgroup/a/b/pids.current", "60\n");
  Write("/sys/fs/cgroup/pids/old/pids.max", "70\n");
  Write("/sys/fs/cgroup/pids/old/pids.current", "1\n");
  EXPECT_THAT(FindTaskLimits(std::nullopt, root_),
              ElementsAre(Is("pids.max of /sys/fs/cgroup/a/b", 64, 60),
                          Is("pids.max of /sys/fs/cgroup/pids/old", 70, 1)));
}

}  // namespace
}  // namespace trainctl::cluster
