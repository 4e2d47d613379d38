// Counters of made-up machines, and of this one where control groups with limits can be made.
#include "launcher/oom_counter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/files.h"

namespace trainctl::launcher {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::Optional;

constexpr char kV1Mounts[] =
    "22 1 0:20 / /proc rw - proc proc rw\n"
    "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:5 - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:6 - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 master:1 - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr char kV2Mounts[] =
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

std::string Events(int64_t kills) {
  return absl::StrCat("low 0\nhigh 0\nmax 812\noom 3\noom_kill ", kills, "\noom_group_kill 0\n");
}
std::string OomControl(int64_t kills) {
  return absl::StrCat("oom_kill_disable 0\nunder_oom 0\noom_kill ", kills, "\n");
}

class OomCounterTest : public testing::Test {
 protected:
  OomCounterTest() {
    root_ = "/tmp/trainctl-oom-test-XXXXXX";
    EXPECT_NE(::mkdtemp(root_.data()), nullptr);
    Write("/proc/vmstat", "nr_free_pages 1234\noom_kill 100\noom_kill_other 7\n");
  }
  ~OomCounterTest() override { (void)RemoveAll(root_); }

  void Write(const std::string& path, const std::string& text) {
    EXPECT_TRUE(MakeDirs(root_ + path.substr(0, path.rfind('/'))).ok());
    EXPECT_TRUE(WriteFileAtomic(root_ + path, text).ok());
  }
  void Machine(const std::string& groups, const std::string& mounts) {
    Write("/proc/self/cgroup", groups);
    Write("/proc/self/mountinfo", mounts);
  }
  OomKills Count() const { return CountOomKills(root_); }

  std::string root_;
};

TEST_F(OomCounterTest, Version2CountsTheOwnGroupAndNotThoseAboveOrBelow) {
  Machine("0::/system.slice/job.scope\n", kV2Mounts);
  Write("/sys/fs/cgroup/system.slice/memory.events", Events(90));
  Write("/sys/fs/cgroup/system.slice/memory.events.local", Events(80));
  Write("/sys/fs/cgroup/system.slice/job.scope/memory.events", Events(70));
  Write("/sys/fs/cgroup/system.slice/job.scope/memory.events.local", Events(3));
  Write("/sys/fs/cgroup/system.slice/job.scope/below/memory.events.local", Events(60));
  EXPECT_THAT(Count().group, Optional(3));
  EXPECT_THAT(Count().machine, Optional(100));
}

TEST_F(OomCounterTest, AnOlderKernelsVersion2HasTheSumWithThoseBelow) {
  Machine("0::/job\n", kV2Mounts);
  Write("/sys/fs/cgroup/job/memory.events", Events(4));
  EXPECT_THAT(Count().group, Optional(4));
}

TEST_F(OomCounterTest, AContainerOfVersion2SeesItsGroupAtTheTop) {
  Machine("0::/\n", kV2Mounts);
  Write("/sys/fs/cgroup/memory.events.local", Events(5));
  EXPECT_THAT(Count().group, Optional(5));
}

TEST_F(OomCounterTest, TheTopOfAMachineOfVersion2CountsNothing) {
  Machine("0::/\n", kV2Mounts);
  EXPECT_EQ(Count().group, std::nullopt);
  EXPECT_THAT(Count().machine, Optional(100));
}

TEST_F(OomCounterTest, Version1IsAskedWhereItHasTheMemory) {
  Machine("12:cpu,cpuacct:/else\n4:memory:/outer/job\n1:name=systemd:/\n0::/unified/place\n", kV1Mounts);
  Write("/sys/fs/cgroup/memory/memory.oom_control", OomControl(90));
  Write("/sys/fs/cgroup/memory/outer/memory.oom_control", OomControl(80));
  Write("/sys/fs/cgroup/memory/outer/job/memory.oom_control", OomControl(6));
  Write("/sys/fs/cgroup/unified/unified/place/memory.events.local", Events(70));
  EXPECT_THAT(Count().group, Optional(6));
}

TEST_F(OomCounterTest, Version1BeforeItCountedIsUnknown) {
  Machine("4:memory:/job\n", kV1Mounts);
  Write("/sys/fs/cgroup/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n");
  EXPECT_EQ(Count().group, std::nullopt);
}

// The container's mount begins at its group; the path is told from the top of the machine.
TEST_F(OomCounterTest, AContainerOfVersion1SeesPartOfTheHierarchy) {
  const std::string mounts =
      "1135 1130 0:32 /docker/abc /sys/fs/cgroup/memory ro,nosuid master:15 - cgroup cgroup rw,memory\n";
  Machine("4:memory:/docker/abc\n", mounts);
  Write("/sys/fs/cgroup/memory/memory.oom_control", OomControl(8));
  EXPECT_THAT(Count().group, Optional(8));
  Machine("4:memory:/docker/abc/job\n", mounts);
  Write("/sys/fs/cgroup/memory/job/memory.oom_control", OomControl(9));
  EXPECT_THAT(Count().group, Optional(9));
  Machine("4:memory:/docker/abcdef\n", mounts);
  EXPECT_EQ(Count().group, std::nullopt) << "another container's";
}

TEST_F(OomCounterTest, WhatCannotBeReadIsUnknown) {
  EXPECT_EQ(Count().group, std::nullopt);
  Machine("rubbish\n::\n0:\n", "rubbish\n - \n1 2 3 4 5 - cgroup2\n");
  EXPECT_EQ(Count().group, std::nullopt);
  Machine("0::/job\n", "");
  EXPECT_EQ(Count().group, std::nullopt);
  ASSERT_TRUE(RemoveAll(root_ + "/proc/vmstat").ok());
  EXPECT_EQ(Count().machine, std::nullopt);
}

TEST(DescribeSigkillTest, TheOwnGroupsCounterDecides) {
  EXPECT_EQ(DescribeSigkill({1, 10}, {2, 11}), ": the kernel killed it because memory ran out");
  EXPECT_EQ(DescribeSigkill({1, std::nullopt}, {2, std::nullopt}),
            ": the kernel killed it because memory ran out");
  EXPECT_EQ(DescribeSigkill({1, 10}, {1, 10}), ": another process killed it (no OOM kill was recorded)");
}

TEST(DescribeSigkillTest, KillsElsewhereOnTheMachineAreAMaybe) {
  for (const std::optional<int64_t> group : {std::optional<int64_t>(1), std::optional<int64_t>()}) {
    EXPECT_EQ(DescribeSigkill({group, 10}, {group, 12}),
              ": either another process killed it or memory ran out; the kernel killed 2 processes on this "
              "machine in the meantime");
    EXPECT_THAT(DescribeSigkill({group, 10}, {group, 11}), HasSubstr("killed 1 process on"));
  }
}

TEST(DescribeSigkillTest, WithoutCountersItSaysSo) {
  EXPECT_EQ(DescribeSigkill({}, {}),
            ": either another process killed it or memory ran out; this machine does not record which");
  EXPECT_THAT(DescribeSigkill({std::nullopt, 10}, {std::nullopt, 10}), Not(HasSubstr("memory ran out")));
}

// A control group of this machine. Of version 1: in version 2 a group that has processes, as this one's, can
// have none below it with a limit.
class RealGroup {
 public:
  RealGroup(const std::string& parent, const std::string& name) : path_(parent + "/" + name) {
    made_ = ::mkdir(path_.c_str(), 0755) == 0;
  }
  ~RealGroup() {
    if (made_) ::rmdir(path_.c_str());
  }
  const std::string& path() const { return path_; }
  // Of memory, and of memory with swap.
  bool Limit(int64_t bytes) const {
    return Write("memory.limit_in_bytes", absl::StrCat(bytes)) &&
           Write("memory.memsw.limit_in_bytes", absl::StrCat(bytes));
  }
  bool Write(const std::string& file, const std::string& text) const {
    return made_ && PathExists(path_ + "/" + file) && AppendFile(path_ + "/" + file, text).ok();
  }

 private:
  std::string path_;
  bool made_ = false;
};

std::string OwnVersion1Folder() {
  for (const absl::string_view line : absl::StrSplit(*ReadFile("/proc/self/cgroup"), '\n')) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() == 3 && fields[1] == "memory") return absl::StrCat("/sys/fs/cgroup/memory", fields[2]);
  }
  return "";
}

// Takes memory until the kernel has had enough.
[[noreturn]] void EatMemory() {
  for (size_t num_bytes = 0; num_bytes < (size_t{512} << 20); num_bytes += 1 << 20) {
    void* memory = ::mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) ::_exit(1);
    for (size_t at = 0; at < (1 << 20); at += 4096) static_cast<volatile char*>(memory)[at] = 1;
  }
  ::_exit(0);
}

// Enters the group `own`, has a process killed in the group `victims`, and exits with 1 if the words say that
// it was for lack of memory, with 0 if they do not.
int SayWhy(const RealGroup& own, const RealGroup& victims) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (!own.Write("cgroup.procs", "0")) ::_exit(10);
    const OomKills before = CountOomKills();
    const pid_t victim = ::fork();
    if (victim == 0) {
      if (!victims.Write("cgroup.procs", "0")) ::_exit(10);
      EatMemory();
    }
    int status = 0;
    ::waitpid(victim, &status, 0);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) ::_exit(11);
    const std::string why = DescribeSigkill(before, CountOomKills());
    ::_exit(why == ": the kernel killed it because memory ran out" ? 1 : 0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(RealOomTest, TheKernelsKillIsToldFromThatOfAnotherGroup) {
  const std::string above = OwnVersion1Folder();
  const RealGroup outer(above, absl::StrCat("trainctl-test-", ::getpid()));
  const RealGroup own(outer.path(), "own"), other(outer.path(), "other");
  // The limit is of the group above both: what counts is in which one the kernel has ended a process.
  if (above.empty() || !outer.Limit(int64_t{64} << 20)) {
    GTEST_SKIP() << "no control groups with limits can be made here";
  }
  EXPECT_EQ(SayWhy(own, own), 1);
  EXPECT_EQ(SayWhy(own, other), 0);
}

}  // namespace
}  // namespace trainctl::launcher
