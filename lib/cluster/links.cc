#include "cluster/links.h"

#include "absl/strings/str_cat.h"
#include "base/names.h"
#include "base/status.h"

namespace trainctl::cluster {
namespace {

// Documents that many rows cite.
#define ML_ENGINEERING "stas00/ml-engineering@744d01e1 network/README.md"
#define GTC25 "NVIDIA GTC 2025 S72583 (NCCL), slide"
#define NCCL_TUNING "NVIDIA/nccl@5067397c src/graph/tuning.cc"
#define OFI_TUNER "aws/aws-ofi-nccl@2daf7d30 src/tuner/nccl_ofi_model.cpp"
#define SIMUMAX "MooreThreads/SimuMax@4dcaae51 configs/system/"

constexpr double kGB = 1e9;

constexpr Constant kNoSwitchReduction = {0, "none: nothing in this link reduces"};
constexpr Constant kNoNetworkReduction = {
    0, "not counted: SHARP in the network's switches has to be set up, and NCCL does not use it by default"};
constexpr Constant kScaleUpLatency = {0, NCCL_TUNING ": hwLatencies already holds a step inside a node"};
constexpr Constant kNetworkLimit = {0, "not used: between nodes only the Simple protocol is priced"};
constexpr Constant kIbLatency = {
    0,
    "NVIDIA/nccl@5067397c src/transport/net_ib/init.cc: latency = 0; hwLatencies "
    "of tuning.cc already holds a network step"};
constexpr Constant kSocketLatency = {0,
                                     "NVIDIA/nccl@5067397c src/transport/net_socket.cc: latency = 0; nothing "
                                     "better is published, so small messages over TCP are priced low"};

constexpr Constant kLlVolta = {39.0 * kGB, NCCL_TUNING ": llMaxBws, Volta, one node: 39.0"};
constexpr Constant kLlAmpere = {87.7 * kGB, NCCL_TUNING ": llMaxBws, Ampere, one node: 87.7"};
constexpr Constant kLlHopper = {141.0 * kGB, NCCL_TUNING ": llMaxBws, Hopper, one node: 141.0"};
constexpr Constant kLlBlackwell = {282.0 * kGB, NCCL_TUNING ": llMaxBws, Blackwell, one node: 2*141.0"};
constexpr Constant kLlAmd = {
    87.7 * kGB, "NCCL's figure for Ampere (" NCCL_TUNING ", llMaxBws 87.7): none is published for xGMI"};

// NVLink 3, 4 and 5 on an NVSwitch.
constexpr Constant kNvlink3Ring = {
    232.0 / 300, GTC25 " 12: NVLink3 (A100), all-reduce bus bandwidth of 8 GPUs: 232 GB/s of 300"};
constexpr Constant kNvlink3RingToo = {
    232.0 / 300, GTC25 " 12, all-reduce: 232 GB/s of 300; the same ring, none measured on its own"};
constexpr Constant kNvlink3AllToAll = {
    210.0 / 300, GTC25 " 13: NVLink3 (A100), all-to-all bus bandwidth of 8 GPUs: 210 GB/s of 300"};
constexpr Constant kNvlink4Ring = {367.2 / 450,
                                   ML_ENGINEERING ": 8x H200, all-reduce, ring: 367.2 GB/s of 450"};
constexpr Constant kNvlink4AllGather = {361.4 / 450,
                                        ML_ENGINEERING ": 8x H200, all-gather: 361.4 GB/s of 450"};
constexpr Constant kNvlink4ReduceScatter = {362.9 / 450,
                                            ML_ENGINEERING ": 8x H200, reduce-scatter: 362.9 GB/s of 450"};
constexpr Constant kNvlink4AllToAll = {
    320.0 / 450, GTC25 " 13: NVLink4 (H100), all-to-all bus bandwidth of 8 GPUs: 320 GB/s of 450"};
constexpr Constant kNvlink4Nvls = {480.0 / 1.75 / 450, ML_ENGINEERING
                                   ": 8x H200, all-reduce, NVLS: bus bandwidth 480.0 GB/s of 450 "
                                   "(factor 2*7/8 taken out)"};
constexpr Constant kNvlink5AllGather = {
    0.6735, SIMUMAX "b200_bf16_ceperm.json: all_gather efficient_factor 0.6735 of 900 GB/s, 8 GPUs"};
constexpr Constant kNvlink5ReduceScatter = {
    0.6731, SIMUMAX "b200_bf16_ceperm.json: reduce_scatter efficient_factor 0.6731 of 900 GB/s, 8 GPUs"};
constexpr Constant kNvlink5AllToAll = {
    640.0 / 900, GTC25 " 13: NVLink5 (B200 and GB200 NVL72), all-to-all bus bandwidth: 640 GB/s of 900"};

// Bridges between two cards.
constexpr Constant kBridge3Ring = {
    208.0 / 300, "NVIDIA/nccl-tests#178: two A100 joined by NV12, all-reduce bus bandwidth 208 GB/s of 300"};
constexpr Constant kBridge3Like = {208.0 / 300,
                                   "NVIDIA/nccl-tests#178: two A100 joined by NV12, all-reduce: 208 GB/s of "
                                   "300; this case was not measured on its own"};
constexpr Constant kBridge4Ring = {
    116.3 / 300,
    "NVIDIA/nccl-tests#194: two H100 PCIe joined by NVLink, all-reduce bus bandwidth 116.3 GB/s of 300"};
constexpr Constant kBridge4Like = {116.3 / 300,
                                   "NVIDIA/nccl-tests#194: two H100 PCIe, all-reduce: 116.3 GB/s of 300; "
                                   "this case was not measured on its own"};

// PCIe: eight A100 cards on the two sockets of one host.
constexpr Constant kPcieRing = {
    0.4176 * 30 / 31.5,
    SIMUMAX "a100_pcie.json, 8 cards: all_reduce efficient_factor 0.4176 of 30 GB/s (PCIe 4: 31.5)"};
constexpr Constant kPcieAllGather = {
    0.4497 * 30 / 31.5,
    SIMUMAX "a100_pcie.json, 8 cards: all_gather efficient_factor 0.4497 of 30 GB/s (PCIe 4: 31.5)"};
constexpr Constant kPcieReduceScatter = {
    0.3688 * 30 / 31.5,
    SIMUMAX "a100_pcie.json, 8 cards: reduce_scatter efficient_factor 0.3688 of 30 GB/s (PCIe 4: 31.5)"};
constexpr Constant kPcieAllToAll = {
    0.2754 * 30 / 31.5,
    SIMUMAX "a100_pcie.json, 8 cards: all2all efficient_factor 0.2754 of 30 GB/s (PCIe 4: 31.5)"};

constexpr Constant kXgmiRing = {312.912 / 448,
                                ML_ENGINEERING ": 8x MI300X, all-reduce bus bandwidth 312.912 GB/s of 448"};
constexpr Constant kXgmiRingToo = {
    312.912 / 448,
    ML_ENGINEERING ": 8x MI300X, all-reduce: 312.912 GB/s of 448; this case was not measured on its own"};

// Networks: a ring through all adapters of a node, and an exchange in which every GPU uses its own.
constexpr Constant kRdmaRing = {
    0.96, GTC25 " 12: all-reduce of 32 GPUs over 8x 200 Gb RDMA: 192 GB/s of 200; over 2x 200 Gb: 48 of 50"};
constexpr Constant kRdmaRingToo = {
    0.96, GTC25 " 12, all-reduce: 192 GB/s of 200; the same ring through the same adapters"};
constexpr Constant kRdmaAllToAll = {
    48.0 * 24 / 31 / 50, GTC25
    " 13: all-to-all bus bandwidth of 32 GPUs over 8x 400 Gb: 48 GB/s; 24 of a "
    "GPU's 31 messages leave the node, through 50 GB/s"};
constexpr Constant kOmniPathRing = {
    135.0 / 400,
    "bigscience-workshop/bigscience@9e64edec experiments/README.md: all-reduce between two nodes of "
    "Jean Zay ~135 Gbps of 400 (" ML_ENGINEERING " says the same of 2022)"};
constexpr Constant kOmniPathRingToo = {
    135.0 / 400,
    "bigscience-workshop/bigscience@9e64edec experiments/README.md: all-reduce ~135 Gbps of 400; "
    "this case was not measured on its own"};
constexpr Constant kTcp = {
    1448.0 / 1538,
    "IEEE 802.3 and RFC 9293, not measured: 1448 bytes of data in a frame of 1538 on the wire; the "
    "highest that TCP can carry"};

const Link kLinks[] = {
    {.name = "pcie-3",
     .description = "PCIe 3.0 x16, eight cards on two sockets",
     .kind = LinkKind::kPcie,
     .bandwidth = {15.75 * kGB, "PCI Express 3.0: 8 GT/s, 128b/130b, 16 lanes: 15.75 GB/s"},
     .latency_s = kScaleUpLatency,
     .all_reduce = kPcieRing,
     .all_gather = kPcieAllGather,
     .reduce_scatter = kPcieReduceScatter,
     .all_to_all = kPcieAllToAll,
     .in_network_all_reduce = kNoSwitchReduction,
     .low_latency_limit = kLlVolta,
     .domain = 8},
    {.name = "pcie-4",
     .description = "PCIe 4.0 x16, eight cards on two sockets",
     .kind = LinkKind::kPcie,
     .bandwidth = {31.5 * kGB, "PCI Express 4.0: 16 GT/s, 128b/130b, 16 lanes: 31.5 GB/s"},
     .latency_s = kScaleUpLatency,
     .all_reduce = kPcieRing,
     .all_gather = kPcieAllGather,
     .reduce_scatter = kPcieReduceScatter,
     .all_to_all = kPcieAllToAll,
     .in_network_all_reduce = kNoSwitchReduction,
     .low_latency_limit = kLlVolta,
     .domain = 8},
    {.name = "pcie-5",
     .description = "PCIe 5.0 x16, eight cards on two sockets",
     .kind = LinkKind::kPcie,
     .bandwidth = {63.0 * kGB, "PCI Express 5.0: 32 GT/s, 128b/130b, 16 lanes: 63 GB/s"},
     .latency_s = kScaleUpLatency,
     .all_reduce = kPcieRing,
     .all_gather = kPcieAllGather,
     .reduce_scatter = kPcieReduceScatter,
     .all_to_all = {12.0 / 63, GTC25 " 13: PCI Gen5, 2x4 GPUs, all-to-all bus bandwidth: 12 GB/s of 63"},
     .in_network_all_reduce = kNoSwitchReduction,
     .low_latency_limit = kLlVolta,
     .domain = 8},

    {.name = "nvlink-2",
     .description = "NVLink 2 of V100, every pair joined",
     .kind = LinkKind::kNvlink,
     .bandwidth = {150.0 * kGB, "NVIDIA V100 data sheet: NVLink 300 GB/s in both directions"},
     .latency_s = kScaleUpLatency,
     .all_reduce = {1329.4242 / 2 * 1.5 / 8 / 150,
                    "bigscience-workshop/bigscience@9e64edec experiments/bandwidth: 4x V100, all-reduce 2S/t "
                    "= 1329.4242 Gbps, a bus bandwidth of 997 of 1200"},
     .all_gather = {1329.4242 / 2 * 1.5 / 8 / 150,
                    "bigscience-workshop/bigscience@9e64edec experiments/bandwidth: 4x V100, all-reduce: bus "
                    "bandwidth 997 Gbps of 1200; "
                    "this case was not measured on its own"},
     .reduce_scatter = {1329.4242 / 2 * 1.5 / 8 / 150,
                        "bigscience-workshop/bigscience@9e64edec experiments/bandwidth: 4x V100, all-reduce: "
                        "bus bandwidth 997 Gbps of 1200; "
                        "this case was not measured on its own"},
     .all_to_all = {210.0 / 300,
                    GTC25 " 13, the share that NVLink3 reaches (210 GB/s of 300): none measured on its own"},
     .in_network_all_reduce = kNoSwitchReduction,
     .low_latency_limit = kLlVolta,
     .domain = 8},
    {.name = "nvlink-3",
     .description = "NVLink 3 of A100 with NVSwitch",
     .kind = LinkKind::kNvlink,
     .bandwidth = {300.0 * kGB, "NVIDIA A100 data sheet: NVLink 600 GB/s in both directions"},
     .latency_s = kScaleUpLatency,
     .all_reduce = kNvlink3Ring,
     .all_gather = kNvlink3RingToo,
     .reduce_scatter = kNvlink3RingToo,
     .all_to_all = kNvlink3AllToAll,
     .in_network_all_reduce = {0, NCCL_TUNING ": nvlsEfficiency 0 for Ampere"},
     .low_latency_limit = kLlAmpere,
     .domain = 8},
    {.name = "nvlink-3-a800",
     .description = "NVLink 3 of A800, eight of twelve links",
     .kind = LinkKind::kNvlink,
     .bandwidth =
         {200.0 * kGB,
          "citsjtu2020/LLM-Prof hardware_spec.md: A800 SXM4 interconnect 400 GB/s in both directions"},
     .latency_s = kScaleUpLatency,
     .all_reduce = kNvlink3RingToo,
     .all_gather = kNvlink3RingToo,
     .reduce_scatter = kNvlink3RingToo,
     .all_to_all = kNvlink3AllToAll,
     .in_network_all_reduce = {0, NCCL_TUNING ": nvlsEfficiency 0 for Ampere"},
     .low_latency_limit = kLlAmpere,
     .domain = 8},
    {.name = "nvlink-4",
     .description = "NVLink 4 of H100 and H200 with NVSwitch",
     .kind = LinkKind::kNvlink,
     .bandwidth = {450.0 * kGB, "NVIDIA H100 data sheet: NVLink 900 GB/s in both directions"},
     .latency_s = kScaleUpLatency,
     .all_reduce = kNvlink4Ring,
     .all_gather = kNvlink4AllGather,
     .reduce_scatter = kNvlink4ReduceScatter,
     .all_to_all = kNvlink4AllToAll,
     .in_network_all_reduce = kNvlink4Nvls,
     .low_latency_limit = kLlHopper,
     .domain = 8},
    {.name = "nvlink-4-h800",
     .description = "NVLink 4 of H800, eight of eighteen links",
     .kind = LinkKind::kNvlink,
     .bandwidth = {200.0 * kGB,
                   "citsjtu2020/LLM-Prof hardware_spec.md: H800 interconnect 400 GB/s in both directions"},
     .latency_s = kScaleUpLatency,
     .all_reduce = kNvlink4Ring,
     .all_gather = kNvlink4AllGather,
     .reduce_scatter = kNvlink4ReduceScatter,
     .all_to_all = kNvlink4AllToAll,
     .in_network_all_reduce = {215.0 / 1.75 / 200,
                               "NVIDIA/nccl#1374: 8x H800, all-reduce, NVLS: bus bandwidth 215 GB/s of 200 "
                               "(factor 2*7/8 taken out)"},
     .low_latency_limit = kLlHopper,
     .domain = 8},
    {.name = "nvlink-5",
     .description = "NVLink 5 of B200 and B300 with NVSwitch",
     .kind = LinkKind::kNvlink,
     .bandwidth =
         {900.0 * kGB,
          "NVIDIA DGX B200 data sheet: NVLink 1.8 TB/s a GPU in both directions (14.4 TB/s for eight)"},
     .latency_s = kScaleUpLatency,
     .all_reduce = {682.2 / 900, ML_ENGINEERING ": 8x B200, all-reduce, NVLS off: 682.2 GB/s of 900"},
     .all_gather = kNvlink5AllGather,
     .reduce_scatter = kNvlink5ReduceScatter,
     .all_to_all = kNvlink5AllToAll,
     .in_network_all_reduce =
         {740.64 / 1.75 / 900, ML_ENGINEERING
          ": 8x B200, all-reduce of 4 GiB, NVLS: bus bandwidth 740.64 GB/s of 900 (factor 2*7/8 "
          "taken out); 8 GiB and more reach 839"},
     .low_latency_limit = kLlBlackwell,
     .domain = 8},
    {.name = "nvlink-5-nvl72",
     .description = "NVLink 5 of GB200 and GB300, 72 GPUs in one domain",
     .kind = LinkKind::kNvlink,
     .bandwidth = {900.0 * kGB,
                   "NVIDIA GB200 NVL72 specifications: NVLink 130 TB/s for 72 GPUs in both directions"},
     .latency_s = kScaleUpLatency,
     .all_reduce = {680.0 / 900,
                    GTC25 " 12: GB200 NVL72, all-reduce bus bandwidth of 32 GPUs: 680 GB/s of 900"},
     .all_gather = kNvlink5AllGather,
     .reduce_scatter = kNvlink5ReduceScatter,
     .all_to_all = kNvlink5AllToAll,
     .in_network_all_reduce = {850.0 / 1.9375 / 900,
                               GTC25 " 12: NVLink5 SHARP (GB200 NVL72), bus bandwidth of 32 GPUs: 850 GB/s "
                                     "of 900 (factor 2*31/32 taken out)"},
     .low_latency_limit = kLlBlackwell,
     .domain = 72},

    {.name = "nvlink-bridge-ga102",
     .description = "NVLink bridge between two RTX 3090 or A6000",
     .kind = LinkKind::kNvlink,
     .bandwidth = {56.25 * kGB, "NVIDIA RTX A6000 data sheet: NVLink 112.5 GB/s in both directions"},
     .latency_s = kScaleUpLatency,
     .all_reduce = kBridge3Like,
     .all_gather = kBridge3Like,
     .reduce_scatter = kBridge3Like,
     .all_to_all = kBridge3Like,
     .in_network_all_reduce = kNoSwitchReduction,
     .low_latency_limit = kLlAmpere,
     .domain = 2},
    {.name = "nvlink-bridge-a100",
     .description = "NVLink bridges between two A100 PCIe",
     .kind = LinkKind::kNvlink,
     .bandwidth = {300.0 * kGB,
                   "NVIDIA A100 data sheet: NVLink Bridge for 2 GPUs 600 GB/s in both directions"},
     .latency_s = kScaleUpLatency,
     .all_reduce = kBridge3Ring,
     .all_gather = kBridge3Like,
     .reduce_scatter = kBridge3Like,
     .all_to_all = kBridge3Like,
     .in_network_all_reduce = kNoSwitchReduction,
     .low_latency_limit = kLlAmpere,
     .domain = 2},
    {.name = "nvlink-bridge-h100",
     .description = "NVLink bridges between two H100 PCIe or NVL",
     .kind = LinkKind::kNvlink,
     .bandwidth = {300.0 * kGB,
                   "NVIDIA H100 data sheet: NVLink of the PCIe and NVL cards 600 GB/s in both directions"},
     .latency_s = kScaleUpLatency,
     .all_reduce = kBridge4Ring,
     .all_gather = kBridge4Like,
     .reduce_scatter = kBridge4Like,
     .all_to_all = kBridge4Like,
     .in_network_all_reduce = kNoSwitchReduction,
     .low_latency_limit = kLlHopper,
     .domain = 2},

    {.name = "xgmi-mi250x",
     .description = "Infinity Fabric of MI250X, per die (GCD)",
     .kind = LinkKind::kXgmi,
     .bandwidth = {175.0 * kGB, ML_ENGINEERING
                   ": MI250X 350 GB/s in one direction for a module, halved for each of its two dies"},
     .latency_s = kScaleUpLatency,
     .all_reduce = kXgmiRingToo,
     .all_gather = kXgmiRingToo,
     .reduce_scatter = kXgmiRingToo,
     .all_to_all = kXgmiRingToo,
     .in_network_all_reduce = kNoSwitchReduction,
     .low_latency_limit = kLlAmd,
     .domain = 8},
    {.name = "xgmi-mi300x",
     .description = "Infinity Fabric of MI300X and MI325X, seven links",
     .kind = LinkKind::kXgmi,
     .bandwidth = {448.0 * kGB,
                   ML_ENGINEERING ": MI300X and MI325X 64 GB/s in one direction to each of 7 peers"},
     .latency_s = kScaleUpLatency,
     .all_reduce = kXgmiRing,
     .all_gather = kXgmiRingToo,
     .reduce_scatter = kXgmiRingToo,
     .all_to_all = kXgmiRingToo,
     .in_network_all_reduce = kNoSwitchReduction,
     .low_latency_limit = kLlAmd,
     .peer_links = 7,
     .domain = 8},
    {.name = "xgmi-mi355x",
     .description = "Infinity Fabric of MI355X, seven links",
     .kind = LinkKind::kXgmi,
     .bandwidth = {535.5 * kGB, ML_ENGINEERING ": MI355X 76.5 GB/s in one direction to each of 7 peers"},
     .latency_s = kScaleUpLatency,
     .all_reduce = kXgmiRingToo,
     .all_gather = kXgmiRingToo,
     .reduce_scatter = kXgmiRingToo,
     .all_to_all = kXgmiRingToo,
     .in_network_all_reduce = kNoSwitchReduction,
     .low_latency_limit = kLlAmd,
     .peer_links = 7,
     .domain = 8},

#define RDMA_SHARES                                                                    \
  .all_reduce = kRdmaRing, .all_gather = kRdmaRingToo, .reduce_scatter = kRdmaRingToo, \
  .all_to_all = kRdmaAllToAll, .in_network_all_reduce = kNoNetworkReduction,           \
  .low_latency_limit = kNetworkLimit
#define TCP_SHARES                                                                             \
  .latency_s = kSocketLatency, .all_reduce = kTcp, .all_gather = kTcp, .reduce_scatter = kTcp, \
  .all_to_all = kTcp, .in_network_all_reduce = kNoSwitchReduction, .low_latency_limit = kNetworkLimit
    {.name = "ib-edr",
     .description = "InfiniBand EDR, 100 Gb/s a port",
     .bandwidth = {12.5 * kGB, "InfiniBand Trade Association roadmap: EDR 4x 100 Gb/s"},
     .latency_s = kIbLatency,
     RDMA_SHARES},
    {.name = "ib-hdr",
     .description = "InfiniBand HDR, 200 Gb/s a port",
     .bandwidth = {25.0 * kGB, "InfiniBand Trade Association roadmap: HDR 4x 200 Gb/s"},
     .latency_s = kIbLatency,
     RDMA_SHARES},
    {.name = "ib-ndr",
     .description = "InfiniBand NDR, 400 Gb/s a port",
     .bandwidth = {50.0 * kGB, "InfiniBand Trade Association roadmap: NDR 4x 400 Gb/s"},
     .latency_s = kIbLatency,
     RDMA_SHARES},
    {.name = "ib-xdr",
     .description = "InfiniBand XDR, 800 Gb/s a port",
     .bandwidth = {100.0 * kGB, "InfiniBand Trade Association roadmap: XDR 4x 800 Gb/s"},
     .latency_s = kIbLatency,
     RDMA_SHARES},
    {.name = "omni-path-100",
     .description = "Omni-Path 100, 100 Gb/s a port, as measured on Jean Zay",
     .bandwidth = {12.5 * kGB, "Cornelis Omni-Path CN-100HFA specifications: 100 Gb/s"},
     .latency_s = kIbLatency,
     .all_reduce = kOmniPathRing,
     .all_gather = kOmniPathRingToo,
     .reduce_scatter = kOmniPathRingToo,
     .all_to_all = kOmniPathRingToo,
     .in_network_all_reduce = kNoSwitchReduction,
     .low_latency_limit = kNetworkLimit},
    {.name = "slingshot-11",
     .description = "HPE Slingshot 11, 200 Gb/s a port",
     .bandwidth = {25.0 * kGB, "HPE Slingshot 11 QuickSpecs: 200 Gb/s"},
     .latency_s = kIbLatency,
     RDMA_SHARES},
    {.name = "roce-100",
     .description = "RoCE over 100 Gb/s Ethernet",
     .bandwidth = {12.5 * kGB, "IEEE 802.3: 100 Gb/s"},
     .latency_s = kIbLatency,
     RDMA_SHARES},
    {.name = "roce-200",
     .description = "RoCE over 200 Gb/s Ethernet",
     .bandwidth = {25.0 * kGB, "IEEE 802.3: 200 Gb/s"},
     .latency_s = kIbLatency,
     RDMA_SHARES},
    {.name = "roce-400",
     .description = "RoCE over 400 Gb/s Ethernet",
     .bandwidth = {50.0 * kGB, "IEEE 802.3: 400 Gb/s"},
     .latency_s = kIbLatency,
     RDMA_SHARES},
    {.name = "efa-1",
     .description = "EFA v1 (p4d), 100 Gb/s an adapter",
     .bandwidth = {12.5 * kGB, "Amazon EC2 accelerated computing, network: p4d.24xlarge 4x 100 Gb/s"},
     .latency_s = {20e-6, OFI_TUNER ": net_lat 20.0 us of P5; none is published for p4d"},
     RDMA_SHARES,
     .ring_only = true},
    {.name = "efa-2",
     .description = "EFA v2 (p5), 100 Gb/s an adapter",
     .bandwidth = {12.5 * kGB, "Amazon EC2 accelerated computing, network: p5.48xlarge 32x 100 Gb/s"},
     .latency_s = {20e-6, OFI_TUNER ": P5 and P5e, net_lat 20.0 us"},
     RDMA_SHARES,
     .ring_only = true},
    {.name = "efa-3",
     .description = "EFA v3 (p5en), 200 Gb/s an adapter",
     .bandwidth = {25.0 * kGB, "Amazon EC2 accelerated computing, network: p5en.48xlarge 16x 200 Gb/s"},
     .latency_s = {18e-6, OFI_TUNER ": P5en, net_lat 18.0 us"},
     RDMA_SHARES,
     .ring_only = true},
    {.name = "efa-4",
     .description = "EFA v4 (p6-b200, p6-b300), 400 Gb/s an adapter",
     .bandwidth = {50.0 * kGB, ML_ENGINEERING ": p6-b200, 8 EFA devices of 400 Gb/s as the device reports"},
     .latency_s = {18e-6, OFI_TUNER ": net_lat 18.0 us of P5en; none is published for p6"},
     RDMA_SHARES,
     .ring_only = true},
    {.name = "ethernet-10",
     .description = "TCP over 10 Gb/s Ethernet",
     .bandwidth = {1.25 * kGB, "IEEE 802.3: 10 Gb/s"},
     TCP_SHARES},
    {.name = "ethernet-25",
     .description = "TCP over 25 Gb/s Ethernet",
     .bandwidth = {3.125 * kGB, "IEEE 802.3: 25 Gb/s"},
     TCP_SHARES},
    {.name = "ethernet-100",
     .description = "TCP over 100 Gb/s Ethernet",
     .bandwidth = {12.5 * kGB, "IEEE 802.3: 100 Gb/s"},
     TCP_SHARES},
};

// Spellings in the form of NormalName.
struct Alias {
  const char* spelling;
  const char* name;
};
constexpr Alias kAliases[] = {
    {"nvlink", "nvlink-4"},
    {"nvswitch", "nvlink-4"},
    {"nvlinka100", "nvlink-3"},
    {"nvlinkh100", "nvlink-4"},
    {"nvlinkb200", "nvlink-5"},
    {"nvl72", "nvlink-5-nvl72"},
    {"nvlink4h100", "nvlink-4"},
    {"nvlinkbridge", "nvlink-bridge-a100"},
    {"pciegen3", "pcie-3"},
    {"pciegen4", "pcie-4"},
    {"pciegen5", "pcie-5"},
    {"pcie", "pcie-4"},
    {"xgmi", "xgmi-mi300x"},
    {"infinityfabric", "xgmi-mi300x"},
    {"infinibandedr", "ib-edr"},
    {"infinibandhdr", "ib-hdr"},
    {"infinibandndr", "ib-ndr"},
    {"infinibandxdr", "ib-xdr"},
    {"edr", "ib-edr"},
    {"hdr", "ib-hdr"},
    {"ndr", "ib-ndr"},
    {"xdr", "ib-xdr"},
    {"hdr200", "ib-hdr"},
    {"ndr400", "ib-ndr"},
    {"xdr800", "ib-xdr"},
    {"infinibandhdr200", "ib-hdr"},
    {"infinibandndr400", "ib-ndr"},
    {"infinibandxdr800", "ib-xdr"},
    {"infiniband", "ib-ndr"},
    {"ib", "ib-ndr"},
    {"omnipath", "omni-path-100"},
    {"opa", "omni-path-100"},
    {"opa100", "omni-path-100"},
    {"slingshot", "slingshot-11"},
    {"roce", "roce-400"},
    {"rocev2", "roce-400"},
    {"efa", "efa-2"},
    {"efav1", "efa-1"},
    {"efav2", "efa-2"},
    {"efav3", "efa-3"},
    {"efav4", "efa-4"},
    {"10gbe", "ethernet-10"},
    {"25gbe", "ethernet-25"},
    {"100gbe", "ethernet-100"},
    {"ethernet", "ethernet-25"},
    {"tcp", "ethernet-25"},
    {"10g", "ethernet-10"},
    {"25g", "ethernet-25"},
    {"100g", "ethernet-100"},
};

}  // namespace

absl::Span<const Link> Links() { return kLinks; }

absl::StatusOr<const Link*> FindLink(absl::string_view text) {
  std::string wanted = NormalName(text);
  for (const Alias& alias : kAliases) {
    if (wanted == alias.spelling) wanted = NormalName(alias.name);
  }
  std::vector<std::string> names;
  for (const Link& link : kLinks) {
    if (NormalName(link.name) == wanted) return &link;
    names.push_back(link.name);
  }
  return UsageError(
      absl::StrCat("the catalogue has no link ", QuotedName(text), "; nearest: ", NearestNames(text, names)));
}

}  // namespace trainctl::cluster
