// The table of hosts.
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/names.h"
#include "base/status.h"
#include "cluster/catalogue.h"
#include "cluster/catalogue_rows.h"

namespace trainctl::cluster {
namespace {

constexpr int64_t kGigabyte = 1'000'000'000;
constexpr int64_t kGibibyte = int64_t{1} << 30;

#define AWS "Amazon EC2 accelerated computing, specifications: "

constexpr NodeRow kRows[] = {
    {"dgx-a100", "DGX A100 640 GB", "a100-sxm-80gb", 8, "nvlink-3", "ib-hdr", 8, 2048 * kGigabyte,
     "NVIDIA DGX A100 data sheet: 8x A100 80 GB, 8x single-port ConnectX-6 200 Gb/s, 2 TB"},
    {"dgx-a100-40gb", "DGX A100 320 GB", "a100-sxm-40gb", 8, "nvlink-3", "ib-hdr", 8, 1024 * kGigabyte,
     "NVIDIA DGX A100 data sheet: 8x A100 40 GB, 8x single-port ConnectX-6 200 Gb/s, 1 TB"},
    {"dgx-h100", "DGX H100", "h100-sxm-80gb", 8, "nvlink-4", "ib-ndr", 8, 2048 * kGigabyte,
     "NVIDIA DGX H100/H200 user guide: 8x H100, 8x ConnectX-7 400 Gb/s, 2 TB"},
    {"dgx-h200", "DGX H200", "h200-sxm-141gb", 8, "nvlink-4", "ib-ndr", 8, 2048 * kGigabyte,
     "NVIDIA DGX H100/H200 user guide: 8x H200, 8x ConnectX-7 400 Gb/s, 2 TB"},
    {"dgx-b200", "DGX B200", "b200-sxm-180gb", 8, "nvlink-5", "ib-ndr", 8, 2048 * kGigabyte,
     "NVIDIA DGX B200 data sheet: 8x B200, 8x ConnectX-7 400 Gb/s, 2 TB, configurable to 4 TB"},
    {"hgx-b200-750w", "a node of eight B200 limited to 750 W", "b200-sxm-180gb-750w", 8, "nvlink-5", "ib-ndr",
     8, 2048 * kGigabyte, "as DGX B200 (NVIDIA DGX B200 data sheet: 8x B200, 8x ConnectX-7 400 Gb/s, 2 TB)"},
    {"dgx-b300", "DGX B300", "b300-sxm-288gb", 8, "nvlink-5", "ib-xdr", 8, 2048 * kGigabyte,
     "NVIDIA DGX B300 data sheet: 8x B300, 8x ConnectX-8 800 Gb/s, 2 TB, configurable to 4 TB"},
    {"gb200-nvl72", "GB200 NVL72, one NVLink domain of 72 GPUs", "gb200-186gb", 72, "nvlink-5-nvl72",
     "ib-ndr", 72, 17'000 * kGigabyte,
     "NVIDIA GB200 NVL72 specifications: 72 GPUs, up to 17 TB LPDDR5X; DGX GB200 user guide: one ConnectX-7 "
     "400 Gb/s a GPU"},
    {"gb300-nvl72", "GB300 NVL72, one NVLink domain of 72 GPUs", "gb300-288gb", 72, "nvlink-5-nvl72",
     "ib-xdr", 72, 17'000 * kGigabyte,
     "NVIDIA GB300 NVL72 specifications: 72 GPUs, up to 17 TB LPDDR5X, 72 ConnectX-8 800 Gb/s"},

    {"p3.16xlarge", "AWS p3.16xlarge", "v100-sxm2-16gb", 8, "nvlink-2", "ethernet-25", 1, 488 * kGibibyte,
     AWS "8x V100 16 GB, 25 Gb/s, 488 GiB"},
    {"p4d.24xlarge", "AWS p4d.24xlarge", "a100-sxm-40gb", 8, "nvlink-3", "efa-1", 4, 1152 * kGibibyte,
     AWS "8x A100 40 GB, 4x 100 Gb/s EFA, 1152 GiB"},
    {"p4de.24xlarge", "AWS p4de.24xlarge", "a100-sxm-80gb", 8, "nvlink-3", "efa-1", 4, 1152 * kGibibyte,
     AWS "8x A100 80 GB, 4x 100 Gb/s EFA, 1152 GiB"},
    {"p5.48xlarge", "AWS p5.48xlarge", "h100-sxm-80gb", 8, "nvlink-4", "efa-2", 32, 2048 * kGibibyte,
     AWS "8x H100, 32x 100 Gb/s EFA, 2 TiB"},
    {"p5en.48xlarge", "AWS p5en.48xlarge", "h200-sxm-141gb", 8, "nvlink-4", "efa-3", 16, 2048 * kGibibyte,
     AWS "8x H200, 16x 200 Gb/s EFA, 2 TiB"},
    {"p6-b200.48xlarge", "AWS p6-b200.48xlarge", "b200-sxm-180gb", 8, "nvlink-5", "efa-4", 8,
     2048 * kGibibyte,
     AWS "8x B200, 3200 Gb/s EFA, 2 TiB; stas00/ml-engineering@744d01e1: 8 adapters of 400 Gb/s"},
    {"p6-b300.48xlarge", "AWS p6-b300.48xlarge", "b300-sxm-288gb", 8, "nvlink-5", "efa-4", 16,
     4096 * kGibibyte,
     AWS "8x B300, 6400 Gb/s EFA, 4 TiB; stas00/ml-engineering@744d01e1: 16 adapters of 400 Gb/s"},
    {"g5.48xlarge", "AWS g5.48xlarge", "a10g", 8, "pcie-4", "efa-1", 1, 768 * kGibibyte,
     AWS "8x A10G, 100 Gb/s EFA, 768 GiB"},

    {"jean-zay-v100", "Jean Zay, V100 partition", "v100-sxm2-32gb", 4, "nvlink-2", "omni-path-100", 4, 0,
     "bigscience-workshop/bigscience@9e64edec experiments/bandwidth/README.md: 4 V100 32 GB a node, "
     "Omni-Path of 400 Gb/s"},
    {"jean-zay-a100", "Jean Zay, A100 partition, where BLOOM was trained", "a100-sxm-80gb", 8, "nvlink-3",
     "omni-path-100", 4, 512 * kGigabyte,
     "bigscience-workshop/bigscience@9e64edec train/tr11-176B-ml/README.md: 8x A100 80 GB, 4 OmniPath links, "
     "512 GB per node"},
    {"internevo-a100", "InternEvo's A100 cluster", "a100-sxm-80gb", 8, "nvlink-3", "roce-100", 4,
     2048 * kGigabyte,
     "InternLM/InternEvo@3a665e88 doc/en/train_performance.md: a100-sxm4-80gb, 4 * 100Gb RoCE, 2TB"},
    {"internevo-a800", "InternEvo's A800 cluster", "a800-sxm-80gb", 8, "nvlink-3-a800", "roce-100", 4,
     2048 * kGigabyte,
     "InternLM/InternEvo@3a665e88 doc/en/train_performance.md names the A800 alone; the network is that of "
     "its A100 cluster, an assumption"},
    {"hgx-a800", "Eight A800 with NVSwitch", "a800-sxm-80gb", 8, "nvlink-3-a800", "ib-hdr", 8,
     2048 * kGigabyte, ASSUMED "the network and memory of a DGX A100"},
    {"grand-teton-h100", "Grand Teton with the 96 GB H100", "h100-sxm-96gb-hbm2e", 8, "nvlink-4", "roce-400",
     8, 0,
     "pytorch/torchtitan@b5bcd76c benchmarks/llama3_h100_202412_torchtitan.md: 8 H100, RDMA 400 Gb/s per "
     "GPU"},
    {"hgx-b100", "Eight B100 with NVSwitch", "b100-sxm-192gb", 8, "nvlink-5", "ib-ndr", 8, 2048 * kGigabyte,
     ASSUMED "the network and memory of a DGX B200"},
    {"hgx-h800", "Eight H800 with NVSwitch", "h800-sxm-80gb", 8, "nvlink-4-h800", "ib-ndr", 8,
     2048 * kGigabyte,
     "DeepSeek-V3 technical report, 3.1 and 3.2.2: 8 H800 by NVLink and NVSwitch, InfiniBand 50 GB/s; memory "
     "as a DGX H100, an assumption"},
    {"mi250x-node", "Four MI250X, as on Frontier", "mi250x-gcd", 8, "xgmi-mi250x", "slingshot-11", 4,
     512 * kGigabyte, "OLCF Frontier user guide: 4x MI250X (8 dies), 4x 200 Gb/s Slingshot, 512 GB"},
    {"mi300x-platform", "MI300X platform, eight on a board", "mi300x", 8, "xgmi-mi300x", "roce-400", 8,
     2304 * kGigabyte,
     ASSUMED
     "eight MI300X (AMD MI300X platform data sheet) with one 400 Gb/s adapter each and 24 DIMMs of 96 GB"},
    {"mi325x-platform", "MI325X platform, eight on a board", "mi325x", 8, "xgmi-mi300x", "roce-400", 8,
     2304 * kGigabyte, ASSUMED "eight MI325X with one 400 Gb/s adapter each and 24 DIMMs of 96 GB"},
    {"mi355x-platform", "MI355X platform, eight on a board", "mi355x", 8, "xgmi-mi355x", "roce-400", 8,
     3072 * kGigabyte, ASSUMED "eight MI355X with one 400 Gb/s adapter each and 24 DIMMs of 128 GB"},
};

// Spellings in the form of NormalName.
struct Alias {
  const char* spelling;
  const char* name;
};
constexpr Alias kAliases[] = {
    {"dgxa100640gb", "dgx-a100"},
    {"dgxa10080gb", "dgx-a100"},
    {"dgxa100320gb", "dgx-a100-40gb"},
    {"hgxa100", "dgx-a100"},
    {"hgxh100", "dgx-h100"},
    {"hgxh200", "dgx-h200"},
    {"hgxb200", "dgx-b200"},
    {"hgxb300", "dgx-b300"},
    {"nvl72", "gb200-nvl72"},
    {"gb200", "gb200-nvl72"},
    {"gb300", "gb300-nvl72"},
    {"p3", "p3.16xlarge"},
    {"p4d", "p4d.24xlarge"},
    {"p4de", "p4de.24xlarge"},
    {"p5", "p5.48xlarge"},
    {"p5en", "p5en.48xlarge"},
    {"p6", "p6-b200.48xlarge"},
    {"p6b200", "p6-b200.48xlarge"},
    {"p6b300", "p6-b300.48xlarge"},
    {"g5", "g5.48xlarge"},
    {"jeanzay", "jean-zay-a100"},
    {"internlma100", "internevo-a100"},
    {"internlma800", "internevo-a800"},
    {"grandteton", "grand-teton-h100"},
    {"frontier", "mi250x-node"},
    {"mi300xoam", "mi300x-platform"},
    {"4090workstation", "workstation-4090"},
};

const Device* RequiredDevice(absl::string_view name) {
  for (const Device& device : Devices()) {
    if (name == device.name) return &device;
  }
  TRAINCTL_CHECK_MSG(false, "no device ", name);
  return nullptr;
}

const Link* RequiredLink(absl::string_view name) {
  for (const Link& link : Links()) {
    if (name == link.name) return &link;
  }
  TRAINCTL_CHECK_MSG(false, "no link ", name);
  return nullptr;
}

Node NodeOf(const NodeRow& row) {
  return {.name = row.name,
          .description = row.description,
          .device = RequiredDevice(row.device),
          .gpus = row.gpus,
          .scale_up = RequiredLink(row.scale_up),
          .scale_out = RequiredLink(row.scale_out),
          .nics = row.nics,
          .cpu_memory_bytes = row.cpu_memory_bytes,
          .source = row.source};
}

}  // namespace

absl::Span<const Node> Nodes() {
  static const std::vector<Node>* const nodes = [] {
    auto* all = new std::vector<Node>;
    for (const absl::Span<const NodeRow> rows : {absl::MakeConstSpan(kRows), AssumedHosts()}) {
      for (const NodeRow& row : rows) all->push_back(NodeOf(row));
    }
    return all;
  }();
  return *nodes;
}

absl::StatusOr<const Node*> FindNode(absl::string_view text) {
  std::string wanted = NormalName(text);
  for (const Alias& alias : kAliases) {
    if (wanted == alias.spelling) wanted = NormalName(alias.name);
  }
  std::vector<std::string> names;
  for (const Node& node : Nodes()) {
    if (NormalName(node.name) == wanted) return &node;
    names.push_back(node.name);
  }
  return UsageError(
      absl::StrCat("the catalogue has no node ", QuotedName(text), "; nearest: ", NearestNames(text, names)));
}

const Node& DefaultNodeFor(const Device& device) {
  for (const Node& node : Nodes()) {
    if (node.name == device.default_node) return node;
  }
  TRAINCTL_CHECK_MSG(false, "device ", device.name, " has no default node in the catalogue");
  return Nodes().front();
}

}  // namespace trainctl::cluster
