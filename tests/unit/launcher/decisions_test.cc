// The launcher's pure parts: cores, the worker's command line.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/files.h"
#include "base/status.h"
#include "launcher/agent_starter.h"
#include "launcher/cpu_layout.h"
#include "launcher/progress_board.h"
#include "launcher/worker_contract.h"

namespace trainctl::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(CpuLayoutTest, WorkersGetDisjointNeighbours) {
  const auto shares = DivideCores({0, 1, 2, 3, 8, 9, 10, 11}, 2, std::nullopt);
  EXPECT_EQ(shares[0].threads, 4);
  EXPECT_THAT(shares[0].cores, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(shares[1].cores, ElementsAre(8, 9, 10, 11));
}

TEST(CpuLayoutTest, LeftOverCoresStayFree) {
  const auto shares = DivideCores({0, 1, 2, 3, 4, 5, 6}, 3, std::nullopt);
  EXPECT_THAT(shares[2].cores, ElementsAre(4, 5));
}

TEST(CpuLayoutTest, MoreWorkersThanCoresShareThem) {
  const auto shares = DivideCores({4, 7}, 3, std::nullopt);
  EXPECT_EQ(shares[0].threads, 1);
  EXPECT_THAT(shares[0].cores, ElementsAre(4));
  EXPECT_THAT(shares[1].cores, ElementsAre(7));
  EXPECT_THAT(shares[2].cores, ElementsAre(4));
}

TEST(CpuLayoutTest, ThreadsAsAskedOnAtMostAllCores) {
  EXPECT_THAT(DivideCores({0, 1, 2, 3}, 2, 1)[1].cores, ElementsAre(1));
  const auto shares = DivideCores({0, 1}, 2, 8);
  EXPECT_EQ(shares[1].threads, 8);
  EXPECT_THAT(shares[1].cores, ElementsAre(0, 1));
}

// Two NUMA nodes of four physical cores with two hardware threads each, numbered as kernels do: 0 to 3 and 8
// to 11 are of the first node, and core 8 shares a physical one with core 0.
Topology TwoSockets(std::vector<int> numa_node_of_device = {}) {
  Topology topology;
  for (int core = 0; core < 16; ++core) topology.cores[core] = {core % 8 / 4, core % 8};
  topology.numa_node_of_device = std::move(numa_node_of_device);
  return topology;
}

std::vector<int> Cores(int count) {
  std::vector<int> cores(static_cast<size_t>(count));
  std::iota(cores.begin(), cores.end(), 0);
  return cores;
}

TEST(CpuLayoutTest, NoTwoWorkersShareAPhysicalCoreOrStraddleNumaNodes) {
  const auto shares = DivideCores(Cores(16), 4, std::nullopt, TwoSockets());
  EXPECT_THAT(shares[0].cores, ElementsAre(0, 1, 8, 9));
  EXPECT_THAT(shares[1].cores, ElementsAre(2, 3, 10, 11));
  EXPECT_THAT(shares[2].cores, ElementsAre(4, 5, 12, 13));
  EXPECT_THAT(shares[3].cores, ElementsAre(6, 7, 14, 15));
}

TEST(CpuLayoutTest, FewThreadsHaveAPhysicalCoreEach) {
  const auto shares = DivideCores(Cores(16), 4, 2, TwoSockets());
  EXPECT_THAT(shares[0].cores, ElementsAre(0, 1));
  EXPECT_THAT(shares[3].cores, ElementsAre(6, 7));
  EXPECT_THAT(DivideCores(Cores(16), 3, 3, TwoSockets())[0].cores, ElementsAre(0, 1, 8))
      << "9 are not to be had";
}

TEST(CpuLayoutTest, AWorkerIsNearItsDevice) {
  const auto shares = DivideCores(Cores(16), 4, std::nullopt, TwoSockets({1, 1, 0, 0}));
  EXPECT_THAT(shares[0].cores, ElementsAre(4, 5, 12, 13));
  EXPECT_THAT(shares[1].cores, ElementsAre(6, 7, 14, 15));
  EXPECT_THAT(shares[2].cores, ElementsAre(0, 1, 8, 9));
  // Not where one's place is unknown, or too many are near one node.
  for (const std::vector<int>& devices : {std::vector<int>{1, -1, 0, 0}, {1, 1, 1, 0}, {1, 1, 0}}) {
    EXPECT_THAT(DivideCores(Cores(16), 4, std::nullopt, TwoSockets(devices))[0].cores,
                ElementsAre(0, 1, 8, 9));
  }
}

class TopologyTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path whole = root_ + path;
    std::filesystem::create_directories(whole.parent_path());
    ASSERT_TRUE(WriteFileAtomic(whole.string(), text).ok());
  }
  void SetUp() override {
    root_ = ::testing::TempDir() + "trainctl-topology-XXXXXX";
    ASSERT_NE(::mkdtemp(root_.data()), nullptr);
    Write("/sys/devices/system/node/node0/cpulist", "0-1,4-5\n");
    Write("/sys/devices/system/node/node1/cpulist", "2-3,6-7\n");
    Write("/sys/devices/system/node/possible", "0-1\n");
    for (const int core : Cores(8)) {
      Write(absl::StrCat("/sys/devices/system/cpu/cpu", core, "/topology/thread_siblings_list"),
            absl::StrCat(core % 4, ",", core % 4 + 4, "\n"));
    }
    Write("/proc/driver/nvidia/gpus/0000:9a:00.0/information", "Model: x\nGPU UUID: \t GPU-9a00\n");
    Write("/proc/driver/nvidia/gpus/0000:1b:00.0/information", "Model: x\nGPU UUID: \t GPU-1b00\n");
    Write("/sys/bus/pci/devices/0000:1b:00.0/numa_node", "1\n");
    Write("/sys/bus/pci/devices/0000:9a:00.0/numa_node", "0\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  std::string root_;
};

TEST_F(TopologyTest, IsReadFromTheKernel) {
  const Topology topology = ReadTopology(root_, {});
  ASSERT_EQ(topology.cores.size(), 8u);
  EXPECT_EQ(topology.cores.at(6).numa_node, 1);
  EXPECT_EQ(topology.cores.at(6).physical_core, 2);
  EXPECT_EQ(topology.cores.at(1).numa_node, 0);
  EXPECT_THAT(topology.numa_node_of_device, ElementsAre(1, 0)) << "in the order of the bus";
  const auto nodes = [&](const std::string& visible) {
    return ReadTopology(root_, {.visible_devices = visible}).numa_node_of_device;
  };
  EXPECT_THAT(nodes("1,0"), ElementsAre(0, 1));
  EXPECT_THAT(nodes("GPU-9a,GPU-1b"), ElementsAre(0, 1));
  // As CUDA reads it: nothing after an entry that names no GPU, and nothing at all if one is there twice.
  EXPECT_THAT(nodes("1,GPU-8ee3,0"), ElementsAre(0));
  EXPECT_THAT(nodes("1,1"), ElementsAre());
  EXPECT_THAT(nodes("MIG-1"), ElementsAre()) << "the kernel does not list it";
  EXPECT_THAT(nodes(""), ElementsAre());
}

TEST_F(TopologyTest, OfThisMachineKnowsTheCoresThatMayBeUsed) {
  const auto cores = AllowedCores();
  ASSERT_TRUE(cores.ok());
  const Topology topology = ReadTopology("", {});
  if (topology.cores.empty()) GTEST_SKIP() << "this kernel does not tell of NUMA nodes";
  for (const int core : *cores) EXPECT_EQ(topology.cores.count(core), 1u) << core;
}

TEST(WorkerContractTest, FlagsSurviveTheTripAndOthersStay) {
  std::vector<std::string> args =
      FormatWorkerFlags({"/runs/a b", "/tmp/s", "/tmp/t", 3, 17, "n1", "10.0.0.1", 5});
  args.insert(args.begin(), "--generate");
  args.push_back("prompt");
  const auto flags = ParseWorkerFlags(args);
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->run_dir, "/runs/a b");
  EXPECT_EQ(flags->socket, "/tmp/s");
  EXPECT_EQ(flags->token_file, "/tmp/t");
  EXPECT_EQ(flags->worker_id, 3);
  EXPECT_EQ(flags->progress_fd, 17);
  EXPECT_EQ(flags->node, "n1");
  EXPECT_EQ(flags->address, "10.0.0.1");
  EXPECT_EQ(flags->incarnation, 5);
  EXPECT_THAT(args, ElementsAre("--generate", "prompt"));
}

TEST(WorkerContractTest, BadFlagsAreUsageErrors) {
  const std::vector<std::string> good = FormatWorkerFlags({"/r", "/s", "/t", 0});
  std::vector<std::vector<std::string>> bad = {{}, {good.begin(), good.end() - 1}, good, good, good, good};
  bad[2].back() = "-1";
  bad[3].back() = "x";
  bad[4].insert(bad[4].end(), {"--socket", "/again"});
  bad[5].insert(bad[5].end(), {"--incarnation", "soon"});
  for (std::vector<std::string>& args : bad) {
    EXPECT_EQ(ExitCodeFor(ParseWorkerFlags(args).status()), ExitCode::kUsage);
  }
}

TEST(ProgressBoardTest, BothSidesSeeTheSame) {
  auto board = ProgressBoard::Create();
  ASSERT_TRUE(board.ok()) << board.status();
  EXPECT_EQ(board->Read().step, -1);
  auto other = ProgressBoard::Open(::dup(board->fd()));
  ASSERT_TRUE(other.ok()) << other.status();
  other->Write({42, "a phase whose name is longer than the board has room for it"});
  EXPECT_EQ(board->Read().step, 42);
  EXPECT_EQ(board->Read().phase, "a phase whose name is longer than the board has");
  other->Write({43, "save"});
  EXPECT_EQ(board->Read().phase, "save");
  const int not_a_board = ::open("/dev/null", O_RDWR);
  EXPECT_FALSE(ProgressBoard::Open(not_a_board).ok());
  ::close(not_a_board);
}

TEST(SshHostName, IsWhatSshConnectsTo) {
  EXPECT_EQ(ParseSshHostName("user me\nhostname 10.0.0.7\nport 22\n"), "10.0.0.7");
  EXPECT_EQ(ParseSshHostName("canonicalizehostname false\nhostname node1\r"), "node1");
  EXPECT_EQ(ParseSshHostName("ssh: unknown option -- G"), "");
}

// srun takes the last of several --export.
TEST(SrunCommand, AgentsGetALoginsEnvironmentUnlessTheRecipeSaysOtherwise) {
  const std::vector<std::string> command =
      SrunCommand({"--export=ALL"}, {"n1", "n2"}, "/opt/trainctl", "/run/invitations-1");
  const auto ours =
      absl::c_find_if(command, [](const std::string& word) { return absl::StartsWith(word, "--export="); });
  ASSERT_NE(ours, command.end());
  const std::vector<std::string> names = absl::StrSplit(ours->substr(sizeof("--export=") - 1), ',');
  EXPECT_THAT(names, testing::IsSupersetOf({"HOME", "LD_LIBRARY_PATH", "PATH", "USER"}));
  EXPECT_THAT(names, testing::Each(testing::AllOf(testing::Ne("ALL"), testing::Ne("NONE"))));
  EXPECT_GT(absl::c_find(command, "--export=ALL"), ours);
}

TEST(SrunEnvironment, LeavesTheAgentTheWholeNode) {
  const std::vector<std::string> kept = {"PATH=/bin",
                                         "SLURM_JOB_ID=7",
                                         "SLURM_GPUS_ON_NODE=8",
                                         "MY_PER_TASK=1",
                                         "SLURM_JOB_CPUS_PER_NODE=4",
                                         "SLURM_CONF=/etc/s"};
  std::vector<std::string> given = kept;
  // From the input environment variables in srun's manual. Scripts export SRUN_CPUS_PER_TASK since 22.05.
  for (const char* per_task : {"SLURM_GPUS_PER_TASK=1",    "SLURM_CPUS_PER_TASK=2",
                               "SRUN_CPUS_PER_TASK=1",     "SLURM_TRES_PER_TASK=cpu:1",
                               "SLURM_CPUS_PER_GPU=1",     "SLURM_GPUS_PER_SOCKET=1",
                               "SLURM_NTASKS_PER_GPU=1",   "SLURM_NTASKS_PER_TRES=1",
                               "SLURM_NTASKS_PER_CORE=1",  "SLURM_THREADS_PER_CORE=1",
                               "SLURM_GPU_BIND=single:1",  "SLURM_CPU_BIND=cores",
                               "SLURM_MEM_BIND=local",     "SLURM_TRES_BIND=gres/gpu:per_task:1",
                               "SLURM_HINT=nomultithread", "SLURM_DISTRIBUTION=cyclic",
                               "SLURM_DIST_PLANESIZE=2",   "SLURM_GPUS=4",
                               "SLURM_GPUS_PER_NODE=1",    "SLURM_MEM_PER_CPU=500",
                               "SLURM_MEM_PER_GPU=500",    "SLURM_MEM_PER_NODE=300",
                               "SLURM_GRES=gpu:1",         "SLURM_GRES_FLAGS=enforce-binding",
                               "SLURM_STEP_GRES=gpu:1",    "SLURM_EXACT=1",
                               "SLURM_EXCLUSIVE=1",        "SLURM_OVERCOMMIT=1",
                               "SLURM_CORE_SPEC=2",        "SLURM_THREAD_SPEC=2",
                               "SLURM_LABELIO=1",          "SLURM_STDOUTMODE=out.%j",
                               "SLURM_STDERRMODE=err.%j",  "SRUN_OUTPUT=out.%j",
                               "SRUN_ERROR=err.%j",        "SLURM_WAIT=1",
                               "SLURM_TIMELIMIT=1"}) {
    given.insert(given.begin() + 1, per_task);
  }
  EXPECT_EQ(SrunEnvironment(given), kept);
}

TEST(SrunGpuOptions, AskForTheRunsGpusUnlessTheRecipeDoes) {
  const std::vector<std::string> asked = {"--gpus-per-node=4"};
  EXPECT_EQ(SrunGpuOptions({}, 4, true), asked);
  EXPECT_EQ(SrunGpuOptions({"--export=ALL"}, 4, true), asked);
  EXPECT_TRUE(SrunGpuOptions({}, 0, true).empty()) << "a run on CPUs";
  EXPECT_TRUE(SrunGpuOptions({}, 4, false).empty()) << "GPUs that Slurm knows nothing of";
  for (const char* own :
       {"--gres=gpu:8", "--gpus-per-task=1", "--gpus=8", "-G8", "--tres-per-task=gres/gpu:1"}) {
    EXPECT_TRUE(SrunGpuOptions({own}, 4, true).empty()) << own;
  }
}

// Of an option that is given twice ssh takes the first.
TEST(SshCommand, WhatTheRecipeSaysComesBeforeWhatIsTakenOtherwise) {
  const std::vector<std::string> command =
      SshCommand({"-o", "ConnectTimeout=5", "-p", "2222"}, "me@node1", "/opt/train ctl");
  const std::string line = absl::StrJoin(command, " ");
  EXPECT_LT(line.find("ConnectTimeout=5"), line.find("ConnectTimeout=20"));
  EXPECT_LT(line.find("BatchMode=yes"), line.find("ConnectTimeout=5")) << "nobody can type a password";
  EXPECT_THAT(line, testing::EndsWith("-- me@node1 exec '/opt/train ctl' agent"));
}

}  // namespace
}  // namespace trainctl::launcher
