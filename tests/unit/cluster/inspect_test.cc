#include "cluster/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "base/files.h"

namespace trainctl::cluster {
namespace {

using ::testing::HasSubstr;

// A machine as files: 16 GiB, an idle CPU with bf16.
class InspectTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "inspect-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    Write("/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 12582912 kB\n");
    Write("/proc/cpuinfo", "model name : Some CPU\nflags : fpu avx512_bf16\n");
    Write("/proc/loadavg", "0.00 0.50 0.70 1/100 7\n");
  }
  void TearDown() override { EXPECT_TRUE(RemoveAll(root_).ok()); }

  void Write(const std::string& path, const std::string& text) {
    const std::string full = root_ + path;
    ASSERT_TRUE(MakeDirs(full.substr(0, full.rfind('/'))).ok());
    ASSERT_TRUE(WriteFileAtomic(full, text).ok());
  }
  Machine Inspect() {
    const absl::StatusOr<Machine> machine = InspectMachine(root_);
    EXPECT_TRUE(machine.ok()) << machine.status();
    return machine.ok() ? *machine : Machine();
  }
  static Finding Find(const Machine& machine, const std::string& name) {
    const auto found = std::find_if(machine.findings.begin(), machine.findings.end(),
                                    [&](const Finding& finding) { return finding.name == name; });
    EXPECT_NE(found, machine.findings.end()) << name;
    return found == machine.findings.end() ? Finding() : *found;
  }

  std::string root_;
};

TEST_F(InspectTest, AHealthyMachineWithoutAccelerators) {
  const Machine machine = Inspect();
  EXPECT_EQ(Find(machine, "cpu").health, Health::kGood);
  EXPECT_THAT(Find(machine, "memory").value, HasSubstr("12.00 GiB free of 16.00 GiB"));
  EXPECT_EQ(Find(machine, "load").health, Health::kGood);
  EXPECT_EQ(machine.device, nullptr);
  EXPECT_THAT(ClusterTable(machine), HasSubstr("device = \"cpu\""));
}

TEST_F(InspectTest, AcceleratorsOfTheDriverAreFoundInTheCatalogue) {
  for (const char* bus : {"0000:1b:00.0", "0000:43:00.0"}) {
    Write(std::string("/proc/driver/nvidia/gpus/") + bus + "/information",
          "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   	 10\n");
  }
  const Machine machine = Inspect();
  ASSERT_NE(machine.device, nullptr);
  EXPECT_STREQ(machine.device->name, "h100-sxm-80gb");
  EXPECT_EQ(ClusterTable(machine), "[cluster]\ndevice = \"h100-sxm-80gb\"\ndevices_per_node = 2\n");
  EXPECT_EQ(Find(machine, "accelerators").health, Health::kNote);
}

TEST_F(InspectTest, UnequalOrUnknownAcceleratorsAreSaid) {
  Write("/proc/driver/nvidia/gpus/a/information", "Model: NVIDIA Frobnicator 9000\n");
  Write("/proc/driver/nvidia/gpus/b/information", "Model: NVIDIA H100 80GB HBM3\n");
  const Machine machine = Inspect();
  EXPECT_EQ(machine.device, nullptr);
  EXPECT_EQ(Find(machine, "accelerators").health, Health::kWarning);
  EXPECT_THAT(Find(machine, "accelerators").advice, HasSubstr("not alike"));
}

TEST_F(InspectTest, WhatIsWrongHasAnAdvice) {
  Write("/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 1000000 kB\n");
  Write("/proc/cpuinfo", "model name : Old CPU\nflags : fpu\n");
  Write("/proc/loadavg", "9000.00 1 1 1/1 1\n");
  const Machine machine = Inspect();
  EXPECT_EQ(Find(machine, "memory").health, Health::kWarning);
  for (const char* name : {"cpu", "load"}) EXPECT_EQ(Find(machine, name).health, Health::kNote) << name;
  for (const Finding& finding : machine.findings) {
    EXPECT_TRUE(finding.health == Health::kGood || finding.value == "unknown" || !finding.advice.empty())
        << finding.name;
  }
}

TEST_F(InspectTest, InterfacesThatAreUpWithTheirRates) {
  Write("/sys/class/net/eth0/operstate", "up\n");
  Write("/sys/class/net/eth0/speed", "100000\n");
  Write("/sys/class/net/eth1/operstate", "down\n");
  Write("/sys/class/infiniband/mlx5_0/node_type", "1: CA\n");
  EXPECT_EQ(Find(Inspect(), "network").value, "eth0 (100 Gb/s), mlx5_0 (InfiniBand)");
}

TEST_F(InspectTest, DamagedFilesAreNoCrash) {
  Write("/proc/loadavg", "");
  Write("/proc/driver/nvidia/gpus/a/information", std::string(100, '\0') + ":::\nModel\nModel:");
  Write("/sys/class/net/eth0/operstate", "up");
  Write("/sys/class/net/eth0/speed", "-1\n");
  EXPECT_EQ(Find(Inspect(), "network").value, "eth0");
}

}  // namespace
}  // namespace trainctl::cluster
