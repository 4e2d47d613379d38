#include "device/device.h"

#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/aten.h"
#include "device/graph.h"
#include "kernels/kernels.h"

namespace trainctl::device {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Plugin(const std::string& name) { return absl::StrCat(TRAINCTL_BIN_DIR, "/", name, ".so"); }

std::string WhyNot(const std::string& path, int ordinal = 0) {
  const auto device = Device::Open(path, {.ordinal = ordinal});
  return device.ok() ? "" : std::string(device.status().message());
}

// A device can be opened once in a process, so all tests share it.
const Device& TestDevice() {
  static const Device* const device = [] {
    auto opened = Device::Open(Plugin("test_device"), {.deterministic = true});
    if (!opened.ok()) std::abort();
    return opened->release();
  }();
  return *device;
}

TEST(OpenPlugin, AMissingOneIsNamed) {
  EXPECT_THAT(WhyNot("/nowhere/libtrainctl_cuda.so"), HasSubstr("/nowhere/libtrainctl_cuda.so"));
}

TEST(OpenPlugin, AnotherLibraryIsNoPlugin) {
  EXPECT_THAT(WhyNot("libz.so.1"), HasSubstr("is not a device plugin: it has no trainctl_device_api"));
}

TEST(OpenPlugin, AnotherTableIsRefusedWithBothVersions) {
  EXPECT_THAT(
      WhyNot(Plugin("device_of_another_abi")),
      AllOf(HasSubstr("version 999"), HasSubstr("Install the plugin and trainctl-worker of one build")));
}

TEST(OpenPlugin, AnotherLibTorchIsRefusedWithBothVersions) {
  EXPECT_THAT(WhyNot(Plugin("device_of_another_torch")),
              AllOf(HasSubstr("made for LibTorch 1.0.0"), HasSubstr("this program for 2.")));
}

TEST(OpenPlugin, DeterministicIsSaidToLibTorch) {
  (void)TestDevice();
  EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
  EXPECT_FALSE(at::globalContext().deterministicAlgorithmsWarnOnly());
}

TEST(OpenPlugin, WhatTheDriverSaysIsPassedOn) {
  setenv("TRAINCTL_TEST_DEVICE_REFUSES", "the driver is on strike", 1);
  EXPECT_THAT(WhyNot(Plugin("test_device")),
              HasSubstr("no test device can be used: the driver is on strike"));
  unsetenv("TRAINCTL_TEST_DEVICE_REFUSES");
}

TEST(OpenPlugin, ADeviceTooFarIsRefused) {
  EXPECT_THAT(WhyNot(Plugin("test_device"), 8),
              HasSubstr("there is no test device 8 for this worker: 8 can be used"));
}

TEST(Device, CopiesThereAndBack) {
  const Device& device = TestDevice();
  const at::Tensor there = at::empty({1000}, device.Options(at::kFloat));
  std::vector<float> values(1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  device.CopyToDevice(there.data_ptr(), values.data(), 4000);
  device.Zero(there.data_ptr<float>() + 10, 8);
  device.Copy(there.data_ptr<float>() + 20, there.data_ptr<float>() + 30, 4);
  std::vector<float> back(1000);
  device.CopyToHost(back.data(), there.data_ptr(), 4000);
  values[10] = values[11] = 0;
  values[20] = 30;
  EXPECT_EQ(back, values);
}

// Nothing but an event orders the streams of two threads: the host's own order does not.
TEST(Device, AStreamWaitsForAnothersEventAndForNothingElse) {
  setenv("TRAINCTL_TEST_DEVICE_LATE", "communication", 1);
  const Device& device = TestDevice();
  const at::Tensor sum = at::zeros({1}, device.Options(at::kFloat));
  const at::Tensor one = at::ones({1}, device.Options(at::kFloat));
  const auto value = [&] {
    float here = -1;
    device.CopyToHost(&here, sum.data_ptr(), sizeof(here));
    return here;
  };
  EXPECT_EQ(value(), 0);
  Event added(device);
  std::thread([&] {
    for (int i = 0; i < 2; ++i) device.UseNewStream();  // the first one counts as the compute stream
    device.kernels().f32.add(sum.data_ptr(), one.data_ptr(), 1);
    added.Record();
  }).join();
  EXPECT_EQ(value(), 0);
  added.HoldStream();
  EXPECT_EQ(value(), 1);
  unsetenv("TRAINCTL_TEST_DEVICE_LATE");
}

TEST(Device, WhatFailsBehindTheCallersBackIsTold) {
  const Device& device = TestDevice();
  // Of another shape than its operands, which the device finds out when it comes to it.
  at::Tensor square = at::zeros({2, 2}, device.Options(at::kFloat));
  square.addmm_(at::zeros({2, 3}, device.Options(at::kFloat)), at::zeros({4, 2}, device.Options(at::kFloat)));
  EXPECT_THAT(std::string(device.Synchronize().message()), HasSubstr("test device: "));
  EXPECT_TRUE(device.Synchronize().ok());
}

// What makes the other tests mean something: host code that forgets where memory lies does not pass.
TEST(DeviceDeathTest, TheHostCannotTouchItsMemory) {
  const at::Tensor there = at::zeros({4}, TestDevice().Options(at::kFloat));
  EXPECT_DEATH(*there.data_ptr<float>() = 1, "");
  float here = 0;
  EXPECT_DEATH(TestDevice().kernels().f32.add(there.data_ptr(), &here, 1), "memory of the host");
}

// A graph does its work when it is launched, each time, with what memory holds by then.
TEST(Graph, DoesItsWorkAtEachLaunch) {
  const Device& device = TestDevice();
  ASSERT_TRUE(Graph::IsThereFor(device));
  EXPECT_FALSE(Graph::IsThereFor(Device::Cpu()));
  at::Tensor sum = at::zeros({1}, device.Options(at::kFloat));
  const at::Tensor summand = at::ones({1}, device.Options(at::kFloat));
  const auto value = [&] {
    float here = -1;
    device.CopyToHost(&here, sum.data_ptr(), sizeof(here));
    return here;
  };
  const auto graph = Graph::Capture(device, [&] {
    at::Tensor twice = at::empty({1}, device.Options(at::kFloat));
    device.Copy(twice.data_ptr(), summand.data_ptr(), sizeof(float));
    device.kernels().f32.add(twice.data_ptr(), summand.data_ptr(), 1);
    device.kernels().f32.add(sum.data_ptr(), twice.data_ptr(), 1);
    return absl::OkStatus();
  });
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(value(), 0);
  EXPECT_TRUE((*graph)->Launch().ok());
  EXPECT_EQ(value(), 2);
  const float three = 3;
  device.CopyToDevice(summand.data_ptr(), &three, sizeof(three));
  EXPECT_TRUE((*graph)->Launch().ok());
  EXPECT_EQ(value(), 8);
}

TEST(Graph, WhatItAllocatedDoesNotOutliveIt) {
  const Device& device = TestDevice();
  at::Tensor outlives;
  const auto graph = Graph::Capture(device, [&] {
    outlives = at::empty({1}, device.Options(at::kFloat));
    return absl::OkStatus();
  });
  EXPECT_THAT(std::string(graph.status().message()), HasSubstr("outlives"));
  const auto failed = Graph::Capture(device, [] { return absl::InternalError("of its work"); });
  EXPECT_EQ(failed.status().message(), "a graph cannot be made: of its work");
}

TEST(GraphDeathTest, NobodyWaitsWhileItIsMade) {
  const Device& device = TestDevice();
  const at::Tensor there = at::zeros({1}, device.Options(at::kFloat));
  const auto while_made = [&](const std::function<void()>& work) {
    (void)Graph::Capture(device, [&] {
      work();
      return absl::OkStatus();
    });
  };
  float here = 0;
  EXPECT_DEATH(while_made([&] { (void)device.Synchronize(); }), "the host waits");
  EXPECT_DEATH(while_made([&] { device.CopyToHost(&here, there.data_ptr(), sizeof(here)); }),
               "memory of the host");
  EXPECT_DEATH(while_made([&] { device.CopyToDevice(there.data_ptr(), &here, sizeof(here)); }),
               "memory of the host");
  Event event(device);
  EXPECT_DEATH(while_made([&] { event.Record(); }), "an event");
}

TEST(Device, MemoryIsCountedByTag) {
  const Device& device = TestDevice();
  const int64_t before = device.memory().live;
  device.ResetPeak();
  at::Tensor kept;
  {
    const ScopedMemoryTag tag(device, 3);
    kept = at::zeros({1024}, device.Options(at::kByte));
  }
  at::zeros({512}, device.Options(at::kByte));
  const MemoryUse use = device.memory();
  EXPECT_EQ(use.live, before + 1024);
  EXPECT_GE(use.peak, before + 1024 + 512);
  EXPECT_EQ(use.at_peak[3], 1024);
  int64_t sum = 0;
  for (int64_t bytes : use.at_peak) sum += bytes;
  EXPECT_EQ(sum, use.peak);
}

TEST(Device, TheCpuIsOneToo) {
  const Device& cpu = Device::Cpu();
  float from[2] = {1, 2}, to[2] = {0, 0};
  cpu.CopyToDevice(to, from, 8);
  cpu.Zero(to, 4);
  EXPECT_EQ(to[0], 0);
  EXPECT_EQ(to[1], 2);
  EXPECT_TRUE(cpu.Synchronize().ok());
  Event event(cpu);
  event.Record();
  event.HoldStream();
}

}  // namespace
}  // namespace trainctl::device
