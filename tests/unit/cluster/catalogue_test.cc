#include "cluster/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "cluster/links.h"

namespace trainctl::cluster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const Device& Named(const std::string& name) {
  for (const Device& device : Devices()) {
    if (name == device.name) return device;
  }
  ADD_FAILURE() << "no device " << name;
  return Devices().front();
}

DeviceMatch Found(const std::string& text) {
  const absl::StatusOr<DeviceMatch> match = FindDevice(text);
  EXPECT_TRUE(match.ok()) << text << ": " << match.status();
  return match.ok() ? *match : DeviceMatch{&Devices().front(), "not found"};
}

bool IsCanonical(const std::string& name) {
  return !name.empty() &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-.") == std::string::npos;
}

// A printed figure has a digit in it; a reason for having none has words.
void ExpectSourced(const Constant& constant, const std::string& what) {
  ASSERT_NE(constant.source, nullptr) << what;
  const std::string source = constant.source;
  EXPECT_GT(source.size(), 15u) << what << ": '" << source << "'";
  EXPECT_TRUE(std::isfinite(constant.value)) << what;
  EXPECT_GE(constant.value, 0) << what;
  if (constant.value > 0) {
    EXPECT_NE(source.find_first_of("0123456789"), std::string::npos)
        << what << " has a value, but its source prints none: '" << source << "'";
  }
}

TEST(Catalogue, EveryDeviceHasAtMostTenConstantsAndEachNamesItsSource) {
  for (const Device& device : Devices()) {
    const auto constants = DeviceConstants(device);
    EXPECT_LE(constants.size(), 10u);
    EXPECT_STREQ(constants[0].unit, "B");
    for (const auto& [name, unit, constant] : constants)
      ExpectSourced(constant, std::string(device.name) + "." + name);
    // Constants that the list does not show would escape the count: the rest of a device are names and words.
    static_assert(sizeof(Device) ==
                  3 * sizeof(char*) + kDeviceConstants * sizeof(Constant) + 5 * sizeof(char*));
  }
}

TEST(Catalogue, EveryLinkNamesTheSourceOfItsConstants) {
  for (const Link& link : Links()) {
    const std::string name = link.name;
    ExpectSourced(link.bandwidth, name + ".bandwidth");
    EXPECT_GT(link.bandwidth.value, 0) << name;
    ExpectSourced(link.latency_s, name + ".latency_s");
    EXPECT_LT(link.latency_s.value, 1e-3) << name;
    ExpectSourced(link.in_network_all_reduce, name + ".in_network_all_reduce");
    ExpectSourced(link.low_latency_limit, name + ".low_latency_limit");
    for (const Constant& share : {link.all_reduce, link.all_gather, link.reduce_scatter, link.all_to_all}) {
      ExpectSourced(share, name + ", a share of the bandwidth");
      EXPECT_GT(share.value, 0.1) << name;
      EXPECT_LE(share.value, 1.0) << name << ": more than the wire carries";
    }
    EXPECT_EQ(link.domain == 0, link.kind == LinkKind::kNetwork) << name;
    if (link.kind != LinkKind::kNetwork) {
      EXPECT_GT(link.low_latency_limit.value, 0) << name;
    }
  }
}

TEST(Catalogue, NamesAreUniqueAndCanonical) {
  std::set<std::string> names;
  for (const Device& device : Devices()) {
    EXPECT_TRUE(IsCanonical(device.name)) << device.name;
    EXPECT_TRUE(names.insert(device.name).second) << device.name;
  }
  for (const Link& link : Links()) {
    EXPECT_TRUE(IsCanonical(link.name)) << link.name;
    EXPECT_TRUE(names.insert(link.name).second) << link.name;
  }
  for (const Node& node : Nodes()) {
    EXPECT_TRUE(IsCanonical(node.name)) << node.name;
    EXPECT_TRUE(names.insert(node.name).second) << node.name;
  }
}

TEST(Catalogue, RatesStandInTheOrderThatHardwareGivesThem) {
  for (const Device& device : Devices()) {
    SCOPED_TRACE(device.name);
    EXPECT_GT(device.memory_bytes.value, 8e9);
    EXPECT_LT(device.memory_bytes.value, 400e9);
    EXPECT_GT(device.memory_bandwidth.value, 100e9);
    EXPECT_GT(device.single_flops.value, 0);
    EXPECT_GT(device.half_flops.value, device.single_flops.value);
    EXPECT_GE(device.watts.value, 150);
    EXPECT_LE(device.watts.value, 1400);
    EXPECT_GE(device.compute_units.value, 80);
    EXPECT_EQ(device.compute_units.value, std::floor(device.compute_units.value));
    const double half = device.half_flops.value;
    // Each halving of the width doubles the rate, to the rounding of data sheets.
    const bool without_tf32 = device.silicon == Silicon::kVolta || std::string(device.name) == "mi250x-gcd" ||
                              std::string(device.name) == "mi355x";
    if (!without_tf32) {
      EXPECT_NEAR(device.single_flops.value / half, 0.5, 0.01);
    }
    if (device.fp8_flops.value > 0) {
      EXPECT_NEAR(device.fp8_flops.value / half, 2.0, 0.03);
    }
    if (device.fp4_flops.value > 0) {
      EXPECT_GE(device.fp4_flops.value, 1.99 * device.fp8_flops.value);
    }
    EXPECT_LT(device.measured_half_flops.value, half);
    EXPECT_LT(device.measured_memory_bandwidth.value, device.memory_bandwidth.value);
  }
}

// Peak = clock x units x operations per clock and unit, from white papers; a figure with sparsity would be
// twice as much.
TEST(Catalogue, MatrixPeaksAreDense) {
  struct Arithmetic {
    const char* device;
    double mhz, per_clock;
  };
  constexpr Arithmetic kPeaks[] = {
      {"v100-sxm2-32gb", 1530, 1024}, {"a100-sxm-80gb", 1410, 2048}, {"h100-sxm-80gb", 1830, 4096},
      {"rtx-3090", 1695, 512},        {"rtx-4090", 2520, 512},       {"rtx-a6000", 1800, 1024},
      {"l40s", 2520, 1024},           {"a10g", 1710, 512},           {"mi250x-gcd", 1700, 1024},
      {"mi300x", 2100, 2048},         {"mi355x", 2400, 4096},
  };
  for (const Arithmetic& row : kPeaks) {
    const Device& device = Named(row.device);
    const double peak = row.mhz * 1e6 * device.compute_units.value * row.per_clock;
    EXPECT_NEAR(device.half_flops.value / peak, 1.0, 0.015) << row.device;
  }
}

TEST(Catalogue, TheDriverReportsNoMoreThanTheDataSheetSells) {
  // The sheets' GB are GiB on all but the newest.
  const std::pair<const char*, double> kSold[] = {
      {"v100-sxm2-16gb", 16}, {"a100-sxm-40gb", 40}, {"a100-sxm-80gb", 80},
      {"h100-sxm-80gb", 80},  {"rtx-4090", 24},      {"rtx-a6000", 48},
      {"mi300x", 192},        {"mi325x", 256},       {"mi355x", 288}};
  for (const auto& [name, gib] : kSold) {
    const double sold = gib * (1 << 30);
    EXPECT_LE(Named(name).memory_bytes.value, sold) << name;
    EXPECT_GE(Named(name).memory_bytes.value, 0.93 * sold) << name;
  }
}

TEST(Catalogue, EverySpellingOfThePublishedMeasurementsIsUnderstood) {
  const std::pair<const char*, const char*> kSpellings[] = {
      {"A100-80GB (Jean Zay)", "a100-sxm-80gb"},
      {"H100-80GB", "h100-sxm-80gb"},
      {"GB200", "gb200-186gb"},
      {"GB300", "gb300-288gb"},
      {"A100-40GB", "a100-sxm-40gb"},
      {"A100-80GB", "a100-sxm-80gb"},
      {"A100-SXM4-80GB", "a100-sxm-80gb"},
      {"H100", "h100-sxm-80gb"},
      {"B200", "b200-sxm-180gb"},
      {"B300", "b300-sxm-288gb"},
      {"H100-80GB (DGX)", "h100-sxm-80gb"},
      {"A800-80GB", "a800-sxm-80gb"},
      {"B200 (DGX)", "b200-sxm-180gb"},
      {"A100", "a100-sxm-80gb"},
      {"Blackwell SM100 (~184GiB; exact SKU not stated)", "gb200-186gb"},
      {"B200 (power limited)", "b200-sxm-180gb"},
      {"H200", "h200-sxm-141gb"},
      {"MI300X", "mi300x"},
      {"H100-95GB-HBM2e", "h100-sxm-96gb-hbm2e"},
      {"A100-80GB (README says 40GB)", "a100-sxm-80gb"},
      {"H100-80GB 700W", "h100-sxm-80gb"},
      {"MI325X", "mi325x"},
      {"H100-SXM5-80GB", "h100-sxm-80gb"},
      {"H200 (as printed; text implies B200)", "h200-sxm-141gb"},
      {"RTX 4090", "rtx-4090"},
      {"A6000", "rtx-a6000"},
      {"MI355X", "mi355x"},
  };
  EXPECT_EQ(std::size(kSpellings), 27u);
  for (const auto& [text, expected] : kSpellings) EXPECT_STREQ(Found(text).device->name, expected) << text;
}

TEST(Catalogue, WhatATextLeavesOpenIsSaid) {
  EXPECT_THAT(Found("H100").assumption, AllOf(HasSubstr("h100-sxm-80gb"), HasSubstr("h100-pcie-80gb")));
  EXPECT_THAT(Found("A100-40GB").assumption, AllOf(HasSubstr("a100-pcie-40gb"), Not(HasSubstr("80gb"))));
  EXPECT_THAT(Found("B200 (power limited)").assumption, HasSubstr("power limit"));
  EXPECT_THAT(Found("H100 SXM 80GB 400W").assumption, HasSubstr("400 W is not modeled"));
  EXPECT_THAT(Found("A100-80GB (README says 40GB)").assumption,
              HasSubstr("40 GB in parentheses are ignored"));
  EXPECT_THAT(Found("H200 (as printed; text implies B200)").assumption, HasSubstr("'b200'"));
  EXPECT_THAT(Found("Blackwell SM100 (~184GiB)").assumption, HasSubstr("184 GB"));
  EXPECT_THAT(Found("MI250X").assumption, HasSubstr("two dies"));
  EXPECT_THAT(Found("MI300X quick").assumption, HasSubstr("'quick'"));
}

TEST(Catalogue, AnExactTextNeedsNoAssumption) {
  for (const Device& device : Devices()) {
    EXPECT_EQ(Found(device.name).device, &device);
    EXPECT_THAT(Found(device.name).assumption, IsEmpty());
  }
  for (const char* text : {"A100-SXM4-80GB", "H100-SXM5-80GB", "H100-80GB (DGX)", "H100-95GB-HBM2e", "H200",
                           "B200 (DGX)", "MI300X", "RTX 4090"}) {
    EXPECT_THAT(Found(text).assumption, IsEmpty()) << text;
  }
}

TEST(Catalogue, DriverNamesAndLooseSpellingsAreUnderstood) {
  const std::pair<const char*, const char*> kSpellings[] = {
      {"NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"},
      {"NVIDIA A100 80GB PCIe", "a100-pcie-80gb"},
      {"NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"},
      {"NVIDIA H100 80GB HBM3", "h100-sxm-80gb"},
      {"NVIDIA H100 PCIe", "h100-pcie-80gb"},
      {"NVIDIA H100 NVL", "h100-nvl-94gb"},
      {"NVIDIA H800", "h800-sxm-80gb"},
      {"NVIDIA H200", "h200-sxm-141gb"},
      {"NVIDIA B200", "b200-sxm-180gb"},
      {"NVIDIA B300 SXM6 AC", "b300-sxm-288gb"},
      {"NVIDIA GB200", "gb200-186gb"},
      {"GB200 NVL72", "gb200-186gb"},
      {"Tesla V100-SXM2-32GB", "v100-sxm2-32gb"},
      {"Tesla V100-SXM2-16GB", "v100-sxm2-16gb"},
      {"NVIDIA GeForce RTX 3090", "rtx-3090"},
      {"NVIDIA RTX A6000", "rtx-a6000"},
      {"NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"},
      {"NVIDIA L40S", "l40s"},
      {"NVIDIA A10G", "a10g"},
      {"AMD Instinct MI300X", "mi300x"},
      {"AMD Instinct MI250X", "mi250x-gcd"},
      {"A100 SXM4 80GB", "a100-sxm-80gb"},
      {"a100 80 gb", "a100-sxm-80gb"},
      {"A100 (PCIe)", "a100-pcie-80gb"},
      {"a100sxm4", "a100-sxm-80gb"},
      {"h100", "h100-sxm-80gb"},
      {"rtx4090", "rtx-4090"},
      {"RTXA6000", "rtx-a6000"},
      {"V100", "v100-sxm2-32gb"},
  };
  for (const auto& [text, expected] : kSpellings) EXPECT_STREQ(Found(text).device->name, expected) << text;
}

TEST(Catalogue, AMigInstanceIsPlannedAsItsGpuAndThatIsSaid) {
  const absl::StatusOr<DeviceMatch> match = FindDevice("NVIDIA H100 80GB HBM3 MIG 1g.10gb");
  ASSERT_TRUE(match.ok()) << match.status();
  EXPECT_STREQ(match->device->name, "h100-sxm-80gb");
  EXPECT_THAT(match->assumption, HasSubstr("a MIG instance is planned with the rates of the whole GPU"));
  EXPECT_FALSE(FindDevice("NVIDIA Frobnicator MIG 1g.10gb").ok());
}

TEST(Catalogue, AnUnknownDeviceIsRefusedWithTheNearestNames) {
  const std::pair<const char*, const char*> kRefused[] = {
      {"", "no device was specified"},
      {"()", "no device was specified"},
      {"H20", "h200-sxm-141gb"},
      {"L40", "l40s"},
      {"A10", "a10g"},
      {"MI300", "mi300x"},
      {"V100S", "v100"},
      {"RTX 3090 Ti", "rtx-3090"},
      {"rtx4090ti", "rtx-4090"},
      {"RTX 6000", "rtx-6000-ada"},
      {"h1000", "h100"},
      {"gpu", "nearest"},
      {"H100 40GB", "h100-nvl-94gb"},
      {"H200 NVL", "h200-sxm-141gb"},
      {"A100 141GB", "a100-sxm-80gb"},
      {"99999999999999999999GB", "nearest"},
  };
  for (const auto& [text, words] : kRefused) {
    const absl::StatusOr<DeviceMatch> match = FindDevice(text);
    ASSERT_FALSE(match.ok()) << text << " became " << match->device->name;
    EXPECT_EQ(ExitCodeFor(match.status()), ExitCode::kUsage) << text;
    EXPECT_THAT(match.status().message(), HasSubstr(words)) << text;
  }
}

TEST(Catalogue, NoTextMakesALookUpFailOtherwise) {
  const std::string huge(1 << 20, 'a');
  EXPECT_FALSE(FindDevice(huge).ok());
  EXPECT_LT(FindDevice(huge).status().message().size(), 300u);
  std::mt19937 random(7);
  constexpr char kAlphabet[] = "hab1023068 -()gbxsmpcie\0\xff,;w";  // with its NULs
  const std::string alphabet(kAlphabet, sizeof(kAlphabet));
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (unsigned length = random() % 24; length > 0; --length)
      text.push_back(alphabet[random() % alphabet.size()]);
    const absl::StatusOr<DeviceMatch> device = FindDevice(text);
    if (device.ok()) {
      ASSERT_NE(device->device, nullptr) << text;
    } else {
      ASSERT_EQ(ExitCodeFor(device.status()), ExitCode::kUsage) << text;
    }
    const absl::StatusOr<const Link*> link = FindLink(text);
    ASSERT_TRUE(link.ok() || ExitCodeFor(link.status()) == ExitCode::kUsage) << text;
    const absl::StatusOr<const Node*> node = FindNode(text);
    ASSERT_TRUE(node.ok() || ExitCodeFor(node.status()) == ExitCode::kUsage) << text;
  }
}

TEST(Catalogue, EveryDeviceHasANodeAndEveryNodeHoldsTogether) {
  for (const Device& device : Devices()) {
    const Node& node = DefaultNodeFor(device);
    EXPECT_EQ(node.device, &device) << device.name << " is priced in a node of " << node.device->name;
    EXPECT_STREQ(node.scale_up->name, device.scale_up) << device.name;
  }
  for (const Node& node : Nodes()) {
    SCOPED_TRACE(node.name);
    EXPECT_GT(node.gpus, 0);
    EXPECT_LE(node.gpus, node.scale_up->domain);
    EXPECT_GT(node.nics, 0);
    EXPECT_NE(node.scale_up->kind, LinkKind::kNetwork);
    EXPECT_EQ(node.scale_out->kind, LinkKind::kNetwork);
    EXPECT_GT(node.source.size(), 15u);
    EXPECT_GE(node.cpu_memory_bytes, 0);
    EXPECT_LE(node.scale_out->bandwidth.value * node.nics / node.gpus, node.scale_up->bandwidth.value * 2.0);
  }
}

TEST(Catalogue, TheNodesThatMeasurementsWereTakenOn) {
  const Node* jean_zay = *FindNode("Jean Zay");
  EXPECT_STREQ(jean_zay->device->name, "a100-sxm-80gb");
  EXPECT_EQ(jean_zay->nics, 4);
  EXPECT_DOUBLE_EQ(jean_zay->nics * jean_zay->scale_out->bandwidth.value, 50e9);  // 400 Gb/s
  const Node* internevo = *FindNode("internevo-a100");
  EXPECT_DOUBLE_EQ(internevo->nics * internevo->scale_out->bandwidth.value, 50e9);  // 4x 100 Gb/s
  const Node* p5 = *FindNode("p5.48xlarge");
  EXPECT_DOUBLE_EQ(p5->nics * p5->scale_out->bandwidth.value, 400e9);  // 3,200 Gb/s
  EXPECT_EQ((*FindNode("GB200 NVL72"))->gpus, 72);
  EXPECT_EQ(*FindNode("DGX H100"), *FindNode("dgx-h100"));
}

TEST(Catalogue, LinksAndNodesAreFoundByUsualSpellings) {
  const std::pair<const char*, const char*> kLinks[] = {
      {"NVLink 4", "nvlink-4"}, {"nvlink5", "nvlink-5"},        {"InfiniBand NDR400", "ib-ndr"},
      {"IB HDR", "ib-hdr"},     {"PCIe Gen5", "pcie-5"},        {"EFA v2", "efa-2"},
      {"25GbE", "ethernet-25"}, {"Omni-Path", "omni-path-100"}, {"RoCE 400", "roce-400"},
      {"xGMI", "xgmi-mi300x"}};
  for (const auto& [text, expected] : kLinks) {
    const absl::StatusOr<const Link*> link = FindLink(text);
    ASSERT_TRUE(link.ok()) << link.status();
    EXPECT_STREQ((*link)->name, expected) << text;
  }
  EXPECT_THAT(FindLink("nvlink-9").status().message(), AllOf(HasSubstr("'nvlink-9'"), HasSubstr("nvlink-4")));
  EXPECT_THAT(FindNode("dgx-h1000").status().message(),
              AllOf(HasSubstr("'dgx-h1000'"), HasSubstr("dgx-h100")));
}

TEST(Catalogue, AliasesLeadSomewhere) {
  for (const char* text : {"nvlink", "nvl72", "pcie", "infiniband", "hdr", "ndr", "xdr", "opa", "slingshot",
                           "roce", "efa", "ethernet", "10gbe", "100gbe", "infinityfabric"}) {
    EXPECT_TRUE(FindLink(text).ok()) << text;
  }
  for (const char* text :
       {"hgxh100", "p4d", "p4de", "p5", "p5en", "p6", "g5", "gb200", "gb300", "frontier", "grandteton",
        "jean-zay", "internlm-a800", "4090 workstation", "mi300x oam", "dgx a100 320gb"}) {
    EXPECT_TRUE(FindNode(text).ok()) << text;
  }
}

}  // namespace
}  // namespace trainctl::cluster
