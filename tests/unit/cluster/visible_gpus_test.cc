#include "cluster/visible_gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <map>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/status.h"
#include "cluster/kernel_gpus.h"

namespace trainctl::cluster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kFirst[] = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";
constexpr char kSecond[] = "GPU-8932aaaa-0000-4106-c12f-20bd9faed9f6";
constexpr char kThird[] = "GPU-01234567-89ab-cdef-0123-456789abcdef";

const std::vector<ListedGpu> kTwo = {{"H100", kFirst}, {"H100", kSecond}};
const std::vector<ListedGpu> kThree = {{"H100", kFirst}, {"H100", kSecond}, {"H100", kThird}};
const std::vector<ListedGpu> kUnlike = {{"H100", kFirst}, {"L4", kSecond}};

absl::StatusOr<VisibleGpus> Find(const std::string& value, const std::vector<ListedGpu>& listed) {
  return FindVisibleGpus({.visible_devices = value}, listed);
}

// "0 2": the indices of the GPUs; of a MIG instance, "0.1". The message if the value is refused.
std::string Text(const absl::StatusOr<VisibleGpus>& visible) {
  if (!visible.ok()) {
    EXPECT_EQ(ExitCodeFor(visible.status()), ExitCode::kEnvironment);
    return std::string(visible.status().message());
  }
  std::string text;
  for (const VisibleGpu& gpu : visible->gpus) {
    absl::StrAppend(&text, text.empty() ? "" : " ", gpu.gpu);
    if (gpu.instance.has_value()) absl::StrAppend(&text, ".", *gpu.instance);
  }
  return text;
}

std::string Shown(const std::string& value, const std::vector<ListedGpu>& listed = kThree) {
  return Text(Find(value, listed));
}

std::string Hidden(const std::string& value, const std::vector<ListedGpu>& listed = kTwo) {
  const absl::StatusOr<VisibleGpus> visible = Find(value, listed);
  EXPECT_TRUE(visible.ok()) << visible.status();
  return visible.ok() ? visible->hidden : "";
}

TEST(VisibleGpus, WithoutTheVariableAllAreVisible) {
  EXPECT_EQ(Text(FindVisibleGpus({}, kThree)), "0 1 2");
  EXPECT_EQ(FindVisibleGpus({}, kThree)->hidden, "");
  EXPECT_EQ(Text(FindVisibleGpus({}, {})), "");
  EXPECT_EQ(Text(FindVisibleGpus({}, kUnlike)), "0 1");
}

TEST(VisibleGpus, NumbersAreTakenInTheirOrder) {
  EXPECT_EQ(Shown("1"), "1");
  EXPECT_EQ(Shown("2,0"), "2 0");
  EXPECT_EQ(Shown(" 2 , 0\t"), "2 0");
  EXPECT_EQ(Shown("+1"), "1");
  EXPECT_EQ(Shown("-0"), "0");
  EXPECT_EQ(Shown("01"), "1");
  EXPECT_EQ(Shown("1gpu,2"), "1 2") << "what follows the digits is not read";
}

TEST(VisibleGpus, NothingCountsFromTheFirstEntryThatNamesNone) {
  EXPECT_EQ(Shown(""), "");
  EXPECT_EQ(Shown("-1"), "");
  EXPECT_EQ(Shown("0,-1,1"), "0");
  EXPECT_EQ(Shown("0,2,-1,1"), "0 2");
  EXPECT_EQ(Shown("0,7", kTwo), "0");
  EXPECT_EQ(Shown("7,0", kTwo), "");
  EXPECT_EQ(Shown("0,,1"), "0");
  EXPECT_EQ(Shown("0,"), "0");
  EXPECT_EQ(Shown("1,none,0"), "1");
  EXPECT_EQ(Shown("NoDevFiles"), "");
  EXPECT_EQ(Shown("99999999999999999999"), "");
  EXPECT_EQ(Shown("0,-1,0"), "0") << "the second 0 is not read";
  EXPECT_EQ(Shown("0", {}), "");
  EXPECT_EQ(Shown("0,0", {}), "");
}

TEST(VisibleGpus, UuidsMayBeAbbreviated) {
  EXPECT_EQ(Shown(kThird), "2");
  EXPECT_EQ(Shown("GPU-0123"), "2");
  EXPECT_EQ(Shown("GPU-8932f,GPU-8932a"), "0 1");
  EXPECT_EQ(Shown("GPU-01,0"), "2 0") << "both forms may be mixed";
  EXPECT_EQ(Shown("GPU-ffff,0"), "");
  EXPECT_EQ(Shown("0,GPU-ffff,1"), "0");
  EXPECT_EQ(Shown("GPU-0123456789"), "") << "the UUID does not begin so";
  EXPECT_EQ(Shown("gpu-0123"), "");
  EXPECT_THAT(Shown("GPU-8932"), AllOf(HasSubstr("CUDA_VISIBLE_DEVICES=\"GPU-8932\""), HasSubstr(kFirst),
                                       HasSubstr(kSecond), HasSubstr("use more digits of the UUID")));
  EXPECT_THAT(Shown("GPU-1", {{"H100", ""}}), HasSubstr("lists no UUIDs"));
  EXPECT_EQ(Shown("0", {{"H100", ""}}), "0");
}

TEST(VisibleGpus, NamingOneTwiceIsRefused) {
  EXPECT_EQ(Shown("0,0", kTwo),
            "CUDA_VISIBLE_DEVICES=\"0,0\" names GPU 0 twice, the second time as \"0\", in which case CUDA "
            "shows no GPU at all; list each only once");
  EXPECT_THAT(Shown("0,1,0"), HasSubstr("GPU 0 twice"));
  EXPECT_THAT(Shown("1,+1"), HasSubstr("the second time as \"+1\""));
  EXPECT_THAT(Shown("GPU-01,GPU-01"), HasSubstr("GPU 2 twice"));
  EXPECT_THAT(Shown("2,GPU-01"), HasSubstr("the second time as \"GPU-01\""));
}

TEST(VisibleGpus, WhatIsHiddenIsSaid) {
  EXPECT_EQ(Hidden("1"), "CUDA_VISIBLE_DEVICES=\"1\" shows 1 of this machine's 2 GPUs");
  EXPECT_EQ(Hidden(""), "CUDA_VISIBLE_DEVICES=\"\" shows none of this machine's 2 GPUs");
  EXPECT_EQ(Hidden("-1"), "CUDA_VISIBLE_DEVICES=\"-1\" shows none of this machine's 2 GPUs");
  EXPECT_EQ(Hidden("0,7"),
            "CUDA_VISIBLE_DEVICES=\"0,7\" shows 1 of this machine's 2 GPUs (CUDA stops at \"7\", which "
            "matches none of them)");
  EXPECT_EQ(Hidden("1,0"), "");
  EXPECT_EQ(Hidden("0,1,7"), "") << "all are visible";
  EXPECT_EQ(Hidden("0", {{"H100", kFirst}}), "");
  EXPECT_THAT(Hidden("-1", {{"H100", kFirst}}), HasSubstr("this machine's 1 GPU"));
  EXPECT_THAT(Hidden("a\x1b[31m"), HasSubstr("\"a\\033[31m\"")) << "a terminal is not told what to do";
}

// CUDA's own order is known only if it is that of the bus, or if all are alike.
TEST(VisibleGpus, NumbersAmongUnlikeOnesNeedTheOrderOfTheBus) {
  EXPECT_THAT(Shown("1", kUnlike), AllOf(HasSubstr("different GPUs (H100, L4)"),
                                         HasSubstr("Set CUDA_DEVICE_ORDER=PCI_BUS_ID"), HasSubstr("UUIDs")));
  EXPECT_EQ(Text(FindVisibleGpus({.visible_devices = "1", .in_bus_order = true}, kUnlike)), "1");
  EXPECT_EQ(Shown("GPU-8932a", kUnlike), "1");
  EXPECT_EQ(Shown("-1", kUnlike), "");
  EXPECT_EQ(Shown("", kUnlike), "");
  EXPECT_EQ(Shown("1,0", kUnlike), "1 0") << "all are visible, whichever is first";
}

// Two GPUs: the first in MIG mode with two instances.
std::vector<ListedGpu> WithMig() {
  const std::string path = std::string("MIG-") + kFirst;
  return {{"H100", kFirst, true, {{"MIG-aaaa", path + "/7/0"}, {"MIG-bbbb", path + "/9/0"}}},
          {"H100", kSecond}};
}

TEST(VisibleGpus, OneMigInstanceIsVisibleAndThenNothingElse) {
  EXPECT_EQ(Shown("MIG-bbbb", WithMig()), "0.1");
  EXPECT_EQ(Shown(std::string("MIG-") + kFirst + "/9/0", WithMig()), "0.1") << "the older name";
  EXPECT_EQ(Shown("MIG-bbbb,MIG-aaaa", WithMig()), "0.1");
  EXPECT_EQ(Shown("1,MIG-bbbb", WithMig()), "0.1");
  EXPECT_EQ(Shown("0", WithMig()), "0.0") << "of a whole GPU in MIG mode, its first instance";
  EXPECT_EQ(Shown("GPU-8932f", WithMig()), "0.0");
  EXPECT_EQ(Shown("1", WithMig()), "1");
  EXPECT_EQ(Text(FindVisibleGpus({}, WithMig())), "0.0");
  EXPECT_EQ(Shown("MIG-cccc", WithMig()), "");
  EXPECT_EQ(Shown("MIG-bb", WithMig()), "") << "only UUIDs of GPUs may be abbreviated";
  EXPECT_THAT(Shown("MIG-bbbb,MIG-bbbb", WithMig()), HasSubstr("names a MIG instance twice"));
  EXPECT_EQ(Hidden("MIG-bbbb,MIG-aaaa", WithMig()),
            "CUDA_VISIBLE_DEVICES=\"MIG-bbbb,MIG-aaaa\" shows 1 of this machine's 2 GPUs; CUDA shows one MIG "
            "instance and no other GPU: MIG-bbbb of GPU 0");
  EXPECT_EQ(FindVisibleGpus({}, WithMig())->hidden,
            "CUDA shows one MIG instance and no other GPU: MIG-aaaa of GPU 0");
}

TEST(VisibleGpus, AGpuInMigModeWithoutInstancesIsNotVisible) {
  const std::vector<ListedGpu> listed = {{"H100", kFirst, true, {}}, {"H100", kSecond}};
  EXPECT_EQ(Text(FindVisibleGpus({}, listed)), "1");
  EXPECT_EQ(FindVisibleGpus({}, listed)->hidden, "1 GPU in MIG mode without an instance");
  EXPECT_EQ(Shown("0", listed), "");
  EXPECT_EQ(Shown("MIG-aaaa", listed), "");
}

// The kernel's own list has no instances, and an old driver's neither.
TEST(VisibleGpus, AnInstanceThatTheDriverDoesNotListIsRefused) {
  EXPECT_THAT(Shown("MIG-aaaa"),
              AllOf(HasSubstr("the driver lists no MIG instances on this machine"),
                    HasSubstr("\"MIG-aaaa\" cannot be found"), HasSubstr("nvidia-smi -L")));
}

TEST(VisibleGpus, TheEnvironmentIsReadInOnePlace) {
  std::map<std::string, std::string> variables;
  const Environment environment = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  EXPECT_FALSE(ReadGpuSelection(environment).visible_devices.has_value());
  variables["CUDA_VISIBLE_DEVICES"] = "";
  EXPECT_EQ(ReadGpuSelection(environment).visible_devices, "");
  variables["CUDA_DEVICE_ORDER"] = "FASTEST_FIRST";
  EXPECT_FALSE(ReadGpuSelection(environment).in_bus_order);
  variables["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID";
  EXPECT_TRUE(ReadGpuSelection(environment).in_bus_order);
}

TEST(KernelGpus, AreListedByTheirAddresses) {
  std::string root = ::testing::TempDir() + "kernel-gpus-XXXXXX";
  ASSERT_NE(::mkdtemp(root.data()), nullptr);
  const auto write = [&](const std::string& address, const std::string& text) {
    const std::string folder = root + "/proc/driver/nvidia/gpus/" + address;
    ASSERT_TRUE(MakeDirs(folder).ok());
    ASSERT_TRUE(WriteFileAtomic(folder + "/information", text).ok());
  };
  write("0000:9a:00.0", "Model: \t\t NVIDIA L4\nGPU UUID: \t GPU-?\n");
  write("0000:1b:00.0", "Model: \t\t NVIDIA A100\nIRQ:   \t 10\nGPU UUID: \t GPU-1b\n");
  write("0000:00:00.0", "nothing that is known\n");
  const std::vector<KernelGpu> gpus = ListGpusOfKernel(root);
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0].pci_address, "0000:1b:00.0");
  EXPECT_EQ(gpus[0].gpu.model, "NVIDIA A100");
  EXPECT_EQ(gpus[0].gpu.uuid, "GPU-1b");
  EXPECT_EQ(gpus[1].gpu.model, "NVIDIA L4");
  EXPECT_EQ(gpus[1].gpu.uuid, "") << "of a GPU that nothing has opened";
  EXPECT_TRUE(ListGpusOfKernel(root + "/none").empty());
  EXPECT_TRUE(RemoveAll(root).ok());
}

}  // namespace
}  // namespace trainctl::cluster
