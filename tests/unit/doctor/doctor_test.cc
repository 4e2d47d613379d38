#include "doctor/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "doctor/detect_device.h"

namespace trainctl::doctor {
namespace {

using ::testing::HasSubstr;

// A machine as files: 16 GiB, an idle CPU with bf16.
class DoctorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "inspect-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    Write("/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 12582912 kB\n");
    Write("/proc/cpuinfo", "model name : Some CPU\nflags : fpu avx512_bf16\n");
    Write("/proc/loadavg", "0.00 0.50 0.70 1/100 7\n");
    SetLimits("1048576", "256000", "unlimited");
    sources_.root = root_;
    sources_.nvml = "/nonexistent/libnvidia-ml.so.1";
    sources_.environment = [this](const char* name) -> const char* {
      const auto found = variables_.find(name);
      return found == variables_.end() ? nullptr : found->second.c_str();
    };
    sources_.now = absl::FromUnixSeconds(1767355200);
    sources_.room = [this](const std::string& path) -> absl::StatusOr<DiskRoom> {
      return absl::EndsWith(path, "/dev/shm") ? shared_memory_ : disk_;
    };
  }
  void TearDown() override { EXPECT_TRUE(RemoveAll(root_).ok()); }

  void Write(const std::string& path, const std::string& text) {
    const std::string full = root_ + path;
    ASSERT_TRUE(MakeDirs(full.substr(0, full.rfind('/'))).ok());
    ASSERT_TRUE(WriteFileAtomic(full, text).ok());
  }
  void SetLimits(const std::string& files, const std::string& processes, const std::string& locked) {
    Write("/proc/self/limits",
          absl::StrCat("Limit                     Soft Limit           Hard Limit           Units     \n",
                       "Max processes             ", processes, " 256000 processes \n",
                       "Max open files            ", files, " 1048576 files     \n",
                       "Max locked memory         ", locked, " unlimited bytes     \n", more_limits_));
  }
  Machine Inspect() {
    const absl::StatusOr<Machine> machine = InspectMachine(sources_);
    EXPECT_TRUE(machine.ok()) << machine.status();
    return machine.ok() ? *machine : Machine();
  }
  static Finding Find(const Machine& machine, const std::string& name) {
    const auto found = std::find_if(machine.findings.begin(), machine.findings.end(),
                                    [&](const Finding& finding) { return finding.name == name; });
    EXPECT_NE(found, machine.findings.end()) << name;
    return found == machine.findings.end() ? Finding() : *found;
  }

  void Set(const std::string& name, const std::string& value) { variables_[name] = value; }
  void Unset(const std::string& name) { variables_.erase(name); }
  static bool Has(const Machine& machine, const std::string& name) {
    return std::any_of(machine.findings.begin(), machine.findings.end(),
                       [&](const Finding& finding) { return finding.name == name; });
  }

  std::string root_;
  std::string more_limits_;  // rows of /proc/self/limits
  Sources sources_;
  std::map<std::string, std::string> variables_;
  DiskRoom disk_ = {int64_t{100} << 30, int64_t{200} << 30};
  DiskRoom shared_memory_ = {int64_t{8} << 30, int64_t{8} << 30};
};

TEST_F(DoctorTest, TellsTheBatchJobAndWhatOfItARunDoesNotUse) {
  std::map<std::string, std::string> variables = {{"SLURM_JOB_ID", "71"}, {"SLURM_JOB_NODELIST", "n1"}};
  sources_.environment = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  EXPECT_EQ(Find(Inspect(), "batch job").health, Health::kGood);
  variables["SLURM_JOB_NODELIST"] = "n[1-4]";
  variables["SLURMD_NODENAME"] = "n2";
  const Finding several = Find(Inspect(), "batch job");
  EXPECT_EQ(several.health, Health::kNote);
  EXPECT_EQ(several.value, "Slurm's 71, on n[1-4]; this node is n2");
  EXPECT_THAT(several.advice, HasSubstr("would leave 3 of them idle"));
  variables["SLURM_STEP_NUM_TASKS"] = "4";
  EXPECT_EQ(Find(Inspect(), "copies").health, Health::kWarning);
  variables["SLURM_JOB_NODELIST"] = "n[1-";
  EXPECT_THAT(Find(Inspect(), "batch job").advice, HasSubstr("never closed"));
}

TEST_F(DoctorTest, AHealthyMachineWithoutAccelerators) {
  const Machine machine = Inspect();
  EXPECT_EQ(Find(machine, "cpu").health, Health::kGood);
  EXPECT_THAT(Find(machine, "memory").value, HasSubstr("12.00 GiB free of 16.00 GiB"));
  EXPECT_EQ(Find(machine, "load").health, Health::kGood);
  EXPECT_EQ(machine.device, nullptr);
  for (const Finding& finding : machine.findings) {
    EXPECT_LT(finding.health, Health::kWarning) << finding.name << ": " << finding.value;
  }
  EXPECT_EQ(Find(machine, "open files").value, "1048576");
  EXPECT_EQ(Find(machine, "clock").value, "2026-01-02 12:00 UTC");
  EXPECT_THAT(ClusterTable(machine), HasSubstr("device = \"cpu\""));
}

TEST_F(DoctorTest, AcceleratorsOfTheDriverAreFoundInTheCatalogue) {
  for (const char* bus : {"0000:1b:00.0", "0000:43:00.0"}) {
    Write(std::string("/proc/driver/nvidia/gpus/") + bus + "/information",
          "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   	 10\n");
  }
  const Machine machine = Inspect();
  ASSERT_NE(machine.device, nullptr);
  EXPECT_STREQ(machine.device->name, "h100-sxm-80gb");
  EXPECT_EQ(ClusterTable(machine), "[cluster]\ndevice = \"h100-sxm-80gb\"\ndevices_per_node = 2\n");
  EXPECT_EQ(Find(machine, "accelerators").health, Health::kGood);
  // The kernel's module alone is half a driver.
  Write("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX\n");
  EXPECT_EQ(Find(Inspect(), "CUDA driver").health, Health::kWarning);
  EXPECT_THAT(Find(Inspect(), "CUDA driver").advice, HasSubstr("--gpus all"));
}

TEST_F(DoctorTest, UnequalOrUnknownAcceleratorsAreSaid) {
  Write("/proc/driver/nvidia/gpus/a/information", "Model: NVIDIA Frobnicator 9000\n");
  Write("/proc/driver/nvidia/gpus/b/information", "Model: NVIDIA H100 80GB HBM3\n");
  const Machine machine = Inspect();
  EXPECT_EQ(machine.device, nullptr);
  EXPECT_EQ(Find(machine, "accelerators").health, Health::kWarning);
  EXPECT_THAT(Find(machine, "accelerators").advice, HasSubstr("the devices differ"));
}

TEST_F(DoctorTest, WhatIsWrongHasAnAdvice) {
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

TEST_F(DoctorTest, InterfacesThatAreUpWithTheirRates) {
  Write("/sys/class/net/eth0/operstate", "up\n");
  Write("/sys/class/net/eth0/speed", "100000\n");
  Write("/sys/class/net/eth1/operstate", "down\n");
  EXPECT_EQ(Find(Inspect(), "network").value, "eth0 (100 Gb/s)");
}

TEST_F(DoctorTest, RdmaPortsWithTheirRatesAndWhatTheyNeed) {
  const auto port = [&](const std::string& adapter, const std::string& state) {
    const std::string at = "/sys/class/infiniband/" + adapter + "/ports/1/";
    Write(at + "state", state + "\n");
    Write(at + "rate", "400 Gb/sec (4X NDR)\n");
    Write(at + "link_layer", "InfiniBand\n");
  };
  port("mlx5_0", "4: ACTIVE");
  EXPECT_EQ(Find(Inspect(), "RDMA").value, "mlx5_0/1: 400 Gb/sec (4X NDR), InfiniBand");
  EXPECT_EQ(Find(Inspect(), "locked memory").health, Health::kGood);
  SetLimits("1048576", "256000", "8388608");
  EXPECT_EQ(Find(Inspect(), "locked memory").health, Health::kWarning);
  EXPECT_EQ(Find(Inspect(), "locked memory").value, "8.00 MiB");
  port("mlx5_1", "1: DOWN");
  EXPECT_EQ(Find(Inspect(), "RDMA").health, Health::kNote);
  EXPECT_THAT(Find(Inspect(), "RDMA").advice, HasSubstr("inactive: mlx5_1/1"));
  port("mlx5_0", "2: INIT");
  EXPECT_EQ(Find(Inspect(), "RDMA").health, Health::kWarning);
}

TEST_F(DoctorTest, LimitsThatAreTooLowAreSaidWithTheWayUp) {
  SetLimits("256", "500", "65536");
  const Machine machine = Inspect();
  EXPECT_EQ(Find(machine, "open files").health, Health::kWarning);
  EXPECT_THAT(Find(machine, "open files").advice, HasSubstr("raise it to 1048576"));
  EXPECT_EQ(Find(machine, "processes").health, Health::kWarning);
  // Without RDMA nothing is locked.
  EXPECT_EQ(Find(machine, "locked memory").health, Health::kGood);
}

TEST_F(DoctorTest, EveryLimitOfAProcessIsListed) {
  const auto set = [&](const std::string& address_space, const std::string& file, const std::string& core) {
    more_limits_ = absl::StrCat("Max address space         ", address_space, " unlimited bytes     \n",
                                "Max file size             ", file, " unlimited bytes     \n",
                                "Max core file size        ", core, " unlimited bytes     \n");
    SetLimits("1048576", "256000", "unlimited");
  };
  set("unlimited", "unlimited", "0");
  for (const char* name : {"address space", "file size", "processes", "tasks of group", "core files"}) {
    EXPECT_EQ(Find(Inspect(), name).health, Health::kGood) << name;
  }
  EXPECT_EQ(Find(Inspect(), "core files").value, "off");
  set("1073741824", "104857600", "unlimited");
  EXPECT_EQ(Find(Inspect(), "address space").health, Health::kBad);
  EXPECT_EQ(Find(Inspect(), "address space").value, "1.00 GiB");
  EXPECT_EQ(Find(Inspect(), "file size").health, Health::kWarning);
  EXPECT_EQ(Find(Inspect(), "core files").health, Health::kNote);
  Write("/proc/sys/kernel/core_pattern", "|/usr/lib/systemd/systemd-coredump %P\n");
  EXPECT_EQ(Find(Inspect(), "core files").health, Health::kGood);
  set("8589934592", "1099511627776", "0");
  EXPECT_EQ(Find(Inspect(), "address space").health, Health::kWarning);
  EXPECT_EQ(Find(Inspect(), "file size").health, Health::kGood);

  Write("/proc/self/cgroup", "0::/job\n");
  Write("/sys/fs/cgroup/job/pids.max", "20\n");
  Write("/sys/fs/cgroup/job/pids.current", "3\n");
  EXPECT_EQ(Find(Inspect(), "tasks of group").health, Health::kWarning);
  EXPECT_EQ(Find(Inspect(), "tasks of group").value, "20, 3 in use (pids.max of /sys/fs/cgroup/job)");
  // The kernel does not apply ulimit -u to root.
  SetLimits("1048576", "100", "unlimited");
  EXPECT_EQ(Find(Inspect(), "processes").health, Health::kWarning);
  Write("/proc/self/status", "Name: a\nUid:\t0\t0\t0\t0\nThreads:\t1\n");
  EXPECT_EQ(Find(Inspect(), "processes").health, Health::kGood);
}

TEST_F(DoctorTest, AFolderThatCannotBeWrittenIsBad) {
  EXPECT_EQ(Find(Inspect(), "disk").health, Health::kGood);
  sources_.is_writable = [](const std::string&) { return false; };
  EXPECT_EQ(Find(Inspect(), "disk").health, Health::kBad);
  EXPECT_THAT(Find(Inspect(), "disk").advice, HasSubstr("run.root"));
}

TEST_F(DoctorTest, AFullDiskIsBadAndALittleRoomAWarning) {
  disk_.free_bytes = int64_t{5} << 30;
  EXPECT_EQ(Find(Inspect(), "disk").health, Health::kWarning);
  disk_.free_bytes = 1 << 20;
  EXPECT_EQ(Find(Inspect(), "disk").health, Health::kBad);
}

// An object store that is mounted as a file system.
TEST_F(DoctorTest, ADiskThatReportsNoSizeIsANote) {
  disk_ = {.free_bytes = 0, .total_bytes = 0};
  const Finding disk = Find(Inspect(), "disk");
  EXPECT_EQ(disk.health, Health::kNote);
  EXPECT_EQ(disk.value, "the file system reports no size in this folder");
  sources_.is_writable = [](const std::string&) { return false; };
  EXPECT_EQ(Find(Inspect(), "disk").health, Health::kBad);
  disk_ = {.free_bytes = 0, .total_bytes = int64_t{1} << 40};
  sources_.is_writable = [](const std::string&) { return true; };
  EXPECT_EQ(Find(Inspect(), "disk").health, Health::kBad) << "it is full";
}

TEST_F(DoctorTest, SharedMemoryOfAContainerMattersToAccelerators) {
  shared_memory_ = {int64_t{64} << 20, int64_t{64} << 20};
  EXPECT_EQ(Find(Inspect(), "shared memory").health, Health::kNote);
  Write("/proc/driver/nvidia/gpus/a/information", "Model: NVIDIA H100 80GB HBM3\n");
  EXPECT_EQ(Find(Inspect(), "shared memory").health, Health::kWarning);
  EXPECT_THAT(Find(Inspect(), "shared memory").advice, HasSubstr("--shm-size"));
}

TEST_F(DoctorTest, WhatAContainerCutsOffIsSaid) {
  EXPECT_EQ(Find(Inspect(), "limits of group").health, Health::kGood);
  Write("/proc/self/cgroup", "0::/job\n");
  Write("/sys/fs/cgroup/job/memory.max", "4294967296\n");
  Write("/sys/fs/cgroup/job/memory.current", "1073741824\n");
  Write("/.dockerenv", "");
  const Finding finding = Find(Inspect(), "limits of group");
  EXPECT_THAT(finding.value, HasSubstr("4.00 GiB of the machine's 16.00 GiB (memory.max)"));
  EXPECT_THAT(finding.value, HasSubstr("in a container"));
  EXPECT_EQ(finding.health, Health::kNote);
  EXPECT_THAT(finding.advice, HasSubstr("the kernel kills a worker"));
  Write("/sys/fs/cgroup/job/memory.high", "2147483648\n");
  EXPECT_THAT(Find(Inspect(), "limits of group").value,
              HasSubstr("2.00 GiB of the machine's 16.00 GiB (memory.high)"));
  EXPECT_THAT(Find(Inspect(), "limits of group").advice, HasSubstr("throttles the group's processes"));
}

TEST_F(DoctorTest, ASlowOrResetClockAndStrictOvercommitAreWarnings) {
  Write("/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n");
  Write("/proc/sys/vm/overcommit_memory", "2\n");
  EXPECT_EQ(Find(Inspect(), "clock").health, Health::kWarning);
  EXPECT_EQ(Find(Inspect(), "overcommit").health, Health::kWarning);
  Write("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n");
  EXPECT_EQ(Find(Inspect(), "clock").health, Health::kGood);
  sources_.now = absl::UnixEpoch();
  EXPECT_EQ(Find(Inspect(), "clock").health, Health::kWarning);
}

TEST_F(DoctorTest, TheDriverIsAskedThroughItsLibrary) {
  sources_.nvml = FAKE_NVML_LIBRARY;
  unsetenv("FAKE_NVML");
  const Machine machine = Inspect();
  ASSERT_TRUE(machine.driver.ok()) << machine.driver.status();
  EXPECT_EQ(Find(machine, "CUDA driver").value, "580.65.06, CUDA up to 13.0, 2 devices");
  EXPECT_EQ(Find(machine, "CUDA driver").health, Health::kGood);
  // No /proc/driver in this tree: the library's names do.
  EXPECT_EQ(Find(machine, "accelerators").value, "2 x NVIDIA H100 80GB HBM3");
  EXPECT_EQ(machine.driver->devices[1].memory_bytes, 85520809984);
  EXPECT_EQ(Find(machine, "device memory").health, Health::kGood);
  EXPECT_EQ(Find(machine, "NCCL").health, Health::kWarning);

  setenv("FAKE_NVML_CUDA", "12040", 1);
  EXPECT_EQ(Find(Inspect(), "CUDA driver").health, Health::kWarning);
  EXPECT_THAT(Find(Inspect(), "CUDA driver").advice, HasSubstr("580 or later"));
  unsetenv("FAKE_NVML_CUDA");
  setenv("FAKE_NVML_USED", "1", 1);
  EXPECT_EQ(Find(Inspect(), "device memory").health, Health::kWarning);
  unsetenv("FAKE_NVML_USED");
  for (const auto& [mode, word] : {std::pair("refuse", "version mismatch"), std::pair("lost", "device 1")}) {
    setenv("FAKE_NVML", mode, 1);
    EXPECT_EQ(Find(Inspect(), "CUDA driver").health, Health::kWarning) << mode;
    EXPECT_THAT(Find(Inspect(), "CUDA driver").advice, HasSubstr(word));
  }
  setenv("FAKE_NVML", "0", 1);
  EXPECT_EQ(Find(Inspect(), "CUDA driver").health, Health::kWarning);
  unsetenv("FAKE_NVML");
  // A library that is none of NVIDIA's.
  sources_.nvml = "libdl.so.2";
  EXPECT_THAT(Find(Inspect(), "CUDA driver").advice, HasSubstr("nvmlInit_v2"));
}

TEST_F(DoctorTest, AutoIsTheDeviceThatTheDriverShows) {
  sources_.nvml = FAKE_NVML_LIBRARY;
  for (const char* name : {"FAKE_NVML", "FAKE_NVML_NAME", "FAKE_NVML_MEMORY"}) unsetenv(name);
  absl::StatusOr<DetectedDevice> found = DetectDevice(sources_);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->device, "h100-sxm-80gb");
  EXPECT_EQ(found->num_devices, 2);
  EXPECT_EQ(found->memory_bytes, 0) << "as in the catalogue";
  EXPECT_THAT(found->words, HasSubstr("NVIDIA H100 80GB HBM3 -> h100-sxm-80gb, 2 per node"));
  setenv("FAKE_NVML_MEMORY", "42949672960", 1);
  EXPECT_EQ(DetectDevice(sources_)->memory_bytes, 42949672960);
  EXPECT_THAT(DetectDevice(sources_)->words, HasSubstr("with 40.00 GiB each"));
  unsetenv("FAKE_NVML_MEMORY");

  setenv("FAKE_NVML_NAME", "NVIDIA H1000 Mega", 1);
  const absl::Status unknown = DetectDevice(sources_).status();
  EXPECT_EQ(ExitCodeFor(unknown), ExitCode::kUsage);
  EXPECT_THAT(unknown.message(), HasSubstr("2 x NVIDIA H1000 Mega"));
  EXPECT_THAT(unknown.message(), HasSubstr("nearest: h"));
  EXPECT_THAT(unknown.message(), HasSubstr("cluster.memory_bandwidth"));
  unsetenv("FAKE_NVML_NAME");

  setenv("FAKE_NVML", "unlike", 1);
  EXPECT_THAT(DetectDevice(sources_).status().message(),
              HasSubstr("different kinds of devices (NVIDIA H100 80GB HBM3, NVIDIA L4)"));
  setenv("FAKE_NVML", "refuse", 1);
  EXPECT_EQ(ExitCodeFor(DetectDevice(sources_).status()), ExitCode::kEnvironment);
  EXPECT_THAT(DetectDevice(sources_).status().message(), HasSubstr("version mismatch"));
  setenv("FAKE_NVML", "0", 1);
  EXPECT_EQ(DetectDevice(sources_)->device, "cpu");
  unsetenv("FAKE_NVML");
}

// One list of GPUs under each value of CUDA_VISIBLE_DEVICES: doctor and "auto" see what CUDA would show.
TEST_F(DoctorTest, DoctorAndAutoSeeTheGpusThatTheEnvironmentShows) {
  sources_.nvml = FAKE_NVML_LIBRARY;
  for (const char* name : {"FAKE_NVML", "FAKE_NVML_NAME", "FAKE_NVML_MEMORY"}) unsetenv(name);
  Set("CUDA_VISIBLE_DEVICES", "1");
  EXPECT_EQ(DetectDevice(sources_)->num_devices, 1);
  EXPECT_THAT(DetectDevice(sources_)->words,
              HasSubstr("1 per node (" FAKE_NVML_LIBRARY
                        "); CUDA_VISIBLE_DEVICES=\"1\" shows 1 of this machine's 2 GPUs"));
  Machine machine = Inspect();
  EXPECT_EQ(Find(machine, "accelerators").value, "1 x NVIDIA H100 80GB HBM3");
  EXPECT_EQ(Find(machine, "visible GPUs").value, "1");
  EXPECT_EQ(Find(machine, "visible GPUs").health, Health::kNote);
  EXPECT_THAT(Find(machine, "visible GPUs").advice, HasSubstr("1 of this machine's 2 GPUs"));
  EXPECT_THAT(Find(machine, "CUDA driver").value, HasSubstr("2 devices"));
  EXPECT_THAT(Find(machine, "device memory").value, HasSubstr("on device 1"));
  EXPECT_THAT(ClusterTable(machine), HasSubstr("devices_per_node = 1\n"));

  for (const char* all : {"0,1", "1,0", "GPU-1a,GPU-1b"}) {
    Set("CUDA_VISIBLE_DEVICES", all);
    EXPECT_EQ(DetectDevice(sources_)->num_devices, 2) << all;
    EXPECT_EQ(DetectDevice(sources_)->hidden, "") << all;
    EXPECT_FALSE(Has(Inspect(), "visible GPUs")) << all;
  }
  Set("CUDA_VISIBLE_DEVICES", "0,7");
  EXPECT_EQ(DetectDevice(sources_)->num_devices, 1);
  EXPECT_THAT(Find(Inspect(), "visible GPUs").advice, HasSubstr("CUDA stops at \"7\""));
  for (const char* none : {"", "-1"}) {
    Set("CUDA_VISIBLE_DEVICES", none);
    EXPECT_EQ(DetectDevice(sources_)->device, "cpu") << none;
    EXPECT_THAT(DetectDevice(sources_)->words, HasSubstr("shows none of this machine's 2 GPUs -> cpu"))
        << none;
    machine = Inspect();
    EXPECT_EQ(machine.device, nullptr);
    EXPECT_EQ(Find(machine, "accelerators").value, "none visible to a run");
    EXPECT_EQ(Find(machine, "visible GPUs").value, "0");
    EXPECT_FALSE(Has(machine, "device memory"));
    EXPECT_THAT(ClusterTable(machine), HasSubstr("device = \"cpu\""));
  }
}

TEST_F(DoctorTest, AnEnvironmentThatCannotBeFollowedIsRefused) {
  sources_.nvml = FAKE_NVML_LIBRARY;
  unsetenv("FAKE_NVML");
  for (const char* value : {"0,0", "GPU-1", "GPU-1a,0", "MIG-1a"}) {
    Set("CUDA_VISIBLE_DEVICES", value);
    const absl::Status refused = DetectDevice(sources_).status();
    EXPECT_EQ(ExitCodeFor(refused), ExitCode::kEnvironment) << value;
    EXPECT_THAT(refused.message(), HasSubstr(absl::StrCat("CUDA_VISIBLE_DEVICES=\"", value, "\""))) << value;
    EXPECT_EQ(FindShownDevices(sources_)->selection, refused);
    EXPECT_TRUE(FindShownDevices(sources_)->models.empty());
    EXPECT_EQ(Find(Inspect(), "visible GPUs").health, Health::kWarning) << value;
    EXPECT_THAT(Find(Inspect(), "visible GPUs").advice, HasSubstr(std::string(refused.message())));
  }
  setenv("FAKE_NVML_NO_UUIDS", "1", 1);
  Set("CUDA_VISIBLE_DEVICES", "GPU-1a");
  EXPECT_THAT(DetectDevice(sources_).status().message(), HasSubstr("lists no UUIDs"));
  unsetenv("FAKE_NVML_NO_UUIDS");
}

TEST_F(DoctorTest, OneOfUnlikeGpusIsSelectedInTheOrderOfTheBus) {
  sources_.nvml = FAKE_NVML_LIBRARY;
  setenv("FAKE_NVML", "unlike", 1);
  Set("CUDA_VISIBLE_DEVICES", "1");
  EXPECT_THAT(DetectDevice(sources_).status().message(), HasSubstr("Set CUDA_DEVICE_ORDER=PCI_BUS_ID"));
  Set("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
  EXPECT_EQ(FindShownDevices(sources_)->models, std::vector<std::string>({"NVIDIA L4"}));
  Set("CUDA_VISIBLE_DEVICES", "GPU-1a");
  EXPECT_EQ(DetectDevice(sources_)->device, "h100-sxm-80gb");
  unsetenv("FAKE_NVML");
}

TEST_F(DoctorTest, AMigInstanceHasItsOwnMemory) {
  sources_.nvml = FAKE_NVML_LIBRARY;
  setenv("FAKE_NVML", "mig", 1);
  for (const char* value :
       {"MIG-1b111111-2222-3333-4444-555555555555", "MIG-GPU-1a111111-2222-3333-4444-555555555555/9/0"}) {
    Set("CUDA_VISIBLE_DEVICES", value);
    const absl::StatusOr<DetectedDevice> found = DetectDevice(sources_);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->device, "h100-sxm-80gb");
    EXPECT_EQ(found->num_devices, 1);
    EXPECT_EQ(found->memory_bytes, 85520809984 / 8);
    EXPECT_THAT(found->words, HasSubstr("NVIDIA H100 80GB HBM3 MIG 1g.10gb -> h100-sxm-80gb, 1 per node"));
    EXPECT_THAT(found->words, HasSubstr("MIG-1b111111-2222-3333-4444-555555555555 of GPU 0"));
    EXPECT_THAT(found->words, HasSubstr("planned with the rates of the whole GPU"));
  }
  const Machine machine = Inspect();
  EXPECT_EQ(Find(machine, "accelerators").value, "1 x NVIDIA H100 80GB HBM3 MIG 1g.10gb");
  EXPECT_THAT(Find(machine, "device memory").value, HasSubstr("of 9.96 GiB"));
  // CUDA does not show the other GPU, which is whole, next to an instance.
  Unset("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(DetectDevice(sources_)->num_devices, 1);
  EXPECT_THAT(DetectDevice(sources_)->words, HasSubstr("MIG-1a111111"));
  Set("CUDA_VISIBLE_DEVICES", "1");
  EXPECT_EQ(DetectDevice(sources_)->memory_bytes, 0) << "the other GPU, as in the catalogue";
  unsetenv("FAKE_NVML");
}

TEST_F(DoctorTest, TheKernelsListIsSelectedFromToo) {
  for (const char* bus : {"0000:1b:00.0", "0000:43:00.0"}) {
    Write(
        std::string("/proc/driver/nvidia/gpus/") + bus + "/information",
        absl::StrCat("Model: \t\t NVIDIA H100 80GB HBM3\nGPU UUID: \t GPU-", std::string(bus).substr(5, 2)));
  }
  Set("CUDA_VISIBLE_DEVICES", "GPU-43");
  EXPECT_EQ(DetectDevice(sources_)->num_devices, 1);
  Set("CUDA_VISIBLE_DEVICES", "MIG-1");
  EXPECT_THAT(DetectDevice(sources_).status().message(), HasSubstr("lists no MIG instances"));
}

TEST_F(DoctorTest, AutoWithoutADriverIsTheCpu) {
  absl::StatusOr<DetectedDevice> found = DetectDevice(sources_);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->device, "cpu");
  EXPECT_EQ(found->num_devices, 0);
  EXPECT_THAT(found->words, HasSubstr("-> cpu, "));
  EXPECT_THAT(found->words, HasSubstr("16.00 GiB"));
  // The kernel's module alone names them too.
  Write("/proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t NVIDIA A100-SXM4-80GB\nIRQ: 1\n");
  found = DetectDevice(sources_);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->device, "a100-sxm-80gb");
  EXPECT_EQ(found->num_devices, 1);
}

TEST_F(DoctorTest, NcclIsFoundWithItsVersion) {
  Write("/usr/local/cuda/lib64/libnccl.so.2.27.3", "");
  ASSERT_EQ(::symlink("libnccl.so.2.27.3", (root_ + "/usr/local/cuda/lib64/libnccl.so.2").c_str()), 0);
  EXPECT_THAT(Find(Inspect(), "NCCL").value, HasSubstr("2.27.3, "));
  Write("/mine/libnccl.so.2", "");
  sources_.nccl_folders = {root_ + "/nothing", root_ + "/mine"};
  EXPECT_EQ(Find(Inspect(), "NCCL").value, root_ + "/mine/libnccl.so.2");
}

TEST_F(DoctorTest, TheWorkerIsTriedAndItsWordsAreKept) {
  const auto script = [&](const std::string& text) {
    Write("/worker", "#!/bin/sh\n" + text + "\n");
    EXPECT_EQ(::chmod((root_ + "/worker").c_str(), 0755), 0);
    return InspectWorker(root_ + "/worker", absl::Minutes(5));
  };
  EXPECT_EQ(script("echo \"starts, $1\"").value, "starts, version");
  const Finding broken = script(
      "echo 'worker: error while loading shared libraries: libtorch_cpu.so: cannot open' >&2; exit 127");
  EXPECT_EQ(broken.health, Health::kBad);
  EXPECT_THAT(broken.advice, HasSubstr("libtorch_cpu.so"));
  EXPECT_THAT(broken.advice, HasSubstr("TRAINCTL_LIBTORCH"));
  EXPECT_THAT(script("kill -SEGV $$").advice, HasSubstr("SIGSEGV"));
  EXPECT_EQ(InspectWorker(absl::NotFoundError("nowhere")).advice, "nowhere");
  EXPECT_EQ(InspectWorker(root_ + "/absent").health, Health::kBad);
  // One that hangs, with its output open or closed, or never stops to talk, is ended.
  for (const char* hang : {"exec sleep 1000", "exec >&- 2>&-; exec sleep 1000"}) {
    Write("/worker", absl::StrCat("#!/bin/sh\n", hang, "\n"));
    ASSERT_EQ(::chmod((root_ + "/worker").c_str(), 0755), 0);
    EXPECT_THAT(InspectWorker(root_ + "/worker", absl::Milliseconds(300)).advice,
                HasSubstr("did not finish within"));
  }
  EXPECT_EQ(script("exec yes").health, Health::kBad);
}

TEST_F(DoctorTest, EveryPrefixOfTheLimitsIsReadWithoutHarm) {
  const absl::StatusOr<std::string> text = ReadFile(root_ + "/proc/self/limits");
  ASSERT_TRUE(text.ok());
  for (size_t length = 0; length < text->size(); length += 5) {
    Write("/proc/self/limits", text->substr(0, length));
    EXPECT_TRUE(InspectMachine(sources_).ok());
  }
}

TEST_F(DoctorTest, DamagedFilesAreNoCrash) {
  Write("/proc/loadavg", "");
  Write("/proc/driver/nvidia/gpus/a/information", std::string(100, '\0') + ":::\nModel\nModel:");
  Write("/sys/class/net/eth0/operstate", "up");
  Write("/sys/class/net/eth0/speed", "-1\n");
  EXPECT_EQ(Find(Inspect(), "network").value, "eth0");
}

}  // namespace
}  // namespace trainctl::doctor
