#include "cluster/host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"

namespace trainctl::cluster {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kGiB = int64_t{1} << 30;

// A machine of 16 GiB, 12 of them available, as files.
class HostTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "host-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    Write("/proc/meminfo",
          "MemTotal:       16777216 kB\nMemFree:         1048576 kB\nMemAvailable:   12582912 kB\n");
  }
  void TearDown() override { EXPECT_TRUE(RemoveAll(root_).ok()); }

  void Write(const std::string& path, const std::string& text) {
    const std::string full = root_ + path;
    ASSERT_TRUE(MakeDirs(full.substr(0, full.rfind('/'))).ok());
    ASSERT_TRUE(WriteFileAtomic(full, text).ok());
  }
  Host Detect() {
    const absl::StatusOr<Host> host = DetectHost(root_);
    EXPECT_TRUE(host.ok()) << host.status();
    return host.ok() ? *host : Host();
  }

  std::string root_;
};

TEST_F(HostTest, WithoutGroupsTheMachineIsWhatMeminfoSays) {
  const Host host = Detect();
  EXPECT_EQ(host.memory_total_bytes, 16 * kGiB);
  EXPECT_EQ(host.memory_available_bytes, 12 * kGiB);
  EXPECT_GE(host.allowed_cores, 1);
  EXPECT_FALSE(host.native_bf16);
}

TEST_F(HostTest, AnEnclosingGroupOfVersion2LimitsMemoryAndCores) {
  Write("/proc/self/cgroup", "0::/a/b\n");
  Write("/sys/fs/cgroup/a/memory.max", absl::StrCat(4 * kGiB, "\n"));
  Write("/sys/fs/cgroup/a/memory.current", absl::StrCat(3 * kGiB, "\n"));
  Write("/sys/fs/cgroup/a/memory.stat",
        absl::StrCat("anon 5\ninactive_file ", 2 * kGiB, "\nactive_file 7\n"));
  Write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  Write("/sys/fs/cgroup/a/cpu.max", "50000 100000\n");
  const Host host = Detect();
  EXPECT_EQ(host.memory_total_bytes, 4 * kGiB);
  EXPECT_EQ(host.memory_available_bytes, 3 * kGiB);  // 4 - (3 used - 2 reclaimable)
  EXPECT_EQ(host.allowed_cores, 1);                  // half a core, rounded up
  EXPECT_EQ(host.memory_limit, "memory.max");
}

// Above memory.high nothing is killed, and nothing gets on.
TEST_F(HostTest, TheLowerOfTheTwoLimitsOfAGroupOfVersion2Counts) {
  Write("/proc/self/cgroup", "0::/a\n");
  Write("/sys/fs/cgroup/a/memory.max", absl::StrCat(4 * kGiB, "\n"));
  Write("/sys/fs/cgroup/a/memory.high", "max\n");
  Write("/sys/fs/cgroup/a/memory.current", absl::StrCat(kGiB, "\n"));
  EXPECT_EQ(Detect().memory_available_bytes, 3 * kGiB);
  Write("/sys/fs/cgroup/a/memory.high", absl::StrCat(2 * kGiB, "\n"));
  EXPECT_EQ(Detect().memory_total_bytes, 2 * kGiB);
  EXPECT_EQ(Detect().memory_available_bytes, kGiB);
  EXPECT_EQ(Detect().memory_limit, "memory.high");
  Write("/sys/fs/cgroup/a/memory.high", absl::StrCat(5 * kGiB, "\n"));
  EXPECT_EQ(Detect().memory_limit, "memory.max");
}

TEST_F(HostTest, AContainerSeesItsGroupAtTheRootOfTheMount) {
  Write("/proc/self/cgroup", "0::/docker/0123\n");  // outside: no such folder in here
  Write("/sys/fs/cgroup/memory.max", absl::StrCat(2 * kGiB, "\n"));
  Write("/sys/fs/cgroup/memory.current", "0\n");
  EXPECT_EQ(Detect().memory_available_bytes, 2 * kGiB);
}

TEST_F(HostTest, AGroupOfVersion1LimitsMemory) {
  Write("/proc/self/cgroup", "9:name=systemd:/\n4:cpu,cpuacct:/x\n3:memory:/x\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", absl::StrCat(8 * kGiB, "\n"));
  Write("/sys/fs/cgroup/memory/x/memory.usage_in_bytes", absl::StrCat(5 * kGiB, "\n"));
  Write("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
  const Host host = Detect();
  EXPECT_EQ(host.memory_total_bytes, 8 * kGiB);
  EXPECT_EQ(host.memory_available_bytes, 3 * kGiB);
}

TEST_F(HostTest, AFullGroupHasNothingLeft) {
  Write("/proc/self/cgroup", "0::/a\n");
  Write("/sys/fs/cgroup/a/memory.max", "1000\n");
  Write("/sys/fs/cgroup/a/memory.current", "5000\n");
  EXPECT_EQ(Detect().memory_available_bytes, 0);
}

TEST_F(HostTest, Bf16NeedsAnInstructionOfThatKindAndNotOneWithALongerName) {
  Write("/proc/cpuinfo", "model name\t: Some CPU\nflags\t\t: fpu avx512_bf16_not avx2\n");
  EXPECT_FALSE(Detect().native_bf16);
  EXPECT_EQ(Detect().cpu, "Some CPU");
  for (const char* flag : {"avx512_bf16", "amx_bf16"}) {
    Write("/proc/cpuinfo", absl::StrCat("model name\t: Some CPU\nflags\t\t: fpu ", flag, " avx2\n"));
    EXPECT_TRUE(Detect().native_bf16) << flag;
  }
  Write("/proc/cpuinfo", "Features\t: fp asimd bf16\n");
  EXPECT_TRUE(Detect().native_bf16);
}

TEST_F(HostTest, AMachineWithoutMeminfoIsAnEnvironmentError) {
  Write("/proc/meminfo", "rubbish\n");
  const absl::Status status = DetectHost(root_).status();
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kEnvironment);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/proc/meminfo"));
  EXPECT_EQ(ExitCodeFor(DetectHost(root_ + "/nowhere").status()), ExitCode::kEnvironment);
}

TEST(Host, ThisMachineHasCoresAndMemory) {
  const absl::StatusOr<Host> host = DetectHost();
  ASSERT_TRUE(host.ok()) << host.status();
  EXPECT_GE(host->allowed_cores, 1);
  EXPECT_GT(host->memory_available_bytes, 0);
  EXPECT_LE(host->memory_available_bytes, host->memory_total_bytes);
  EXPECT_FALSE(host->name.empty());
}

}  // namespace
}  // namespace trainctl::cluster
