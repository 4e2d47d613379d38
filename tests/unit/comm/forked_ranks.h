// Runs a test's body once for each rank of a world, in a process each, for a device can be opened once in
// one.
#pragma once

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "comm/communicator.h"
#include "comm/group.h"
#include "device/device.h"

namespace trainctl::comm {

struct Rank {
  const device::Device& device;
  Communicator& communicator;
  int index = 0;
  int world = 1;

  std::vector<int> Everyone() const {
    std::vector<int> ranks;
    for (int i = 0; i < world; ++i) ranks.push_back(i);
    return ranks;
  }
};
using Body = std::function<void(Rank& rank)>;

// In the child: does not return.
[[noreturn]] inline void RunOne(int index, int world, bool on_test_device, const std::string& store_path,
                                const Body& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  at::set_num_threads(1);
  std::unique_ptr<const device::Device> opened;
  if (on_test_device) {
    auto device = device::Device::Open(absl::StrCat(TRAINCTL_BIN_DIR, "/test_device.so"),
                                       {.ordinal = index, .deterministic = true});
    EXPECT_TRUE(device.ok()) << device.status();
    opened = *std::move(device);
    opened->UseNewStream();
  }
  const device::Device& device = opened ? *opened : device::Device::Cpu();
  auto communicator = Communicator::Create(device, c10::make_intrusive<c10d::FileStore>(store_path, world),
                                           index, world, absl::Seconds(60));
  EXPECT_TRUE(communicator.ok()) << communicator.status();
  if (communicator.ok()) {
    Rank rank{device, **communicator, index, world};
    // A body without collectives must not end this process while others still connect to it.
    std::vector<double> connected = {1};
    Group everyone = rank.communicator.MakeHostGroup(rank.Everyone(), "connected");
    EXPECT_TRUE(everyone.AllReduceScalars("connected", absl::MakeSpan(connected)).ok());
    body(rank);
  }
  std::fflush(stdout);
  std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
}

// Fails where the body fails on some rank, whose words are printed.
inline void OnEveryRank(int world, bool on_test_device, const Body& body) {
  const std::string store_path = absl::StrCat(::testing::TempDir(), "trainctl-ranks-", getpid(), "-", world,
                                              on_test_device ? "-device" : "");
  std::fflush(stdout);
  std::vector<pid_t> children;
  for (int index = 0; index < world; ++index) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) RunOne(index, world, on_test_device, store_path, body);
    children.push_back(child);
  }
  for (int index = 0; index < world; ++index) {
    int status = 0;
    ASSERT_EQ(waitpid(children[static_cast<size_t>(index)], &status, 0),
              children[static_cast<size_t>(index)]);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << "rank " << index << " of " << world << " ended with status " << status;
  }
  unlink(store_path.c_str());
}

}  // namespace trainctl::comm
