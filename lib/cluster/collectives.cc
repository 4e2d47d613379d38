#include "cluster/collectives.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace trainctl::cluster {
namespace {

constexpr double kMicro = 1e-6;

enum Protocol { kLl, kLl128, kSimple };
constexpr Protocol kProtocols[] = {kLl, kLl128, kSimple};
constexpr const char* kRingNames[] = {"ring LL", "ring LL128", "ring Simple"};
constexpr const char* kTreeNames[] = {"tree LL", "tree LL128", "tree Simple"};

// Seconds by protocol (LL, LL128, Simple).
struct Latencies {
  double us[3];
  double operator[](Protocol protocol) const { return us[protocol] * kMicro; }
};

// NVIDIA/nccl@5067397c src/graph/tuning.cc: ncclTunerConstantsDefaults.
constexpr Latencies kBaseTree = {{6.8, 14.0, 8.4}};
constexpr Latencies kBaseRing = {{6.6, 14.0, 8.4}};
constexpr Latencies kNvlinkTree = {{0.6, 1.25, 4.0}};
constexpr Latencies kNvlinkRing = {{0.6, 1.9, 3.4}};
constexpr Latencies kPciTree = {{1.0, 1.9, 4.0}};
constexpr Latencies kPciRing = {{1.0, 2.5, 5.7}};
constexpr double kNetworkStep = 14 * kMicro;  // Simple, ring and tree
constexpr double kNvlsLatency = 25 * kMicro;
// Ibid., ncclTopoTuneModel: LL sends a flag with each word, LL128 eight bytes in 128; trees reach 0.92 of a
// ring.
constexpr double kLlShare = 0.5;
constexpr double kLl128Share = 0.92;
constexpr double kTreeShare = 0.92;
constexpr double kTreeLlShare = 1.0 / 3.8;
constexpr double kTreeLl128Share = 7.0 / 9.0;
// stas00/ml-engineering@744d01e1 network/README.md: on 8x H200 NCCL takes NVLS from five GPUs on.
constexpr int kNvlsRanks = 5;
// NVIDIA/nccl@5067397c src/include/device.h: NCCL_MAX_DEV_WORK_P2P_PER_BATCH, peers served at a time.
constexpr int kPeersPerBatch = 8;

// What the header says of channels.
constexpr int kChannelsInNode = 24;
constexpr int kChannelsPerAdapter = 2;
constexpr int kLeastChannelsOfHopper = 16;

// The group on its nodes, and the rates that it has there.
struct Group {
  int ranks;
  int ranks_in_node;
  int nodes;
  bool nvlink;
  double scale_up;   // bytes/s of one rank to the others of its node
  double scale_out;  // bytes/s of all adapters that the group may use in one node
};

Group PlaceGroup(const GroupPlacement& placement, const Node& node) {
  Group group;
  group.ranks = std::max(1, placement.ranks);
  group.ranks_in_node =
      std::clamp(placement.ranks_per_node, 1, std::max(1, std::min(group.ranks, node.gpus)));
  group.nodes = (group.ranks - 1) / group.ranks_in_node + 1;
  group.nvlink = node.scale_up->kind != LinkKind::kPcie;
  group.scale_up = node.scale_up->bandwidth.value;
  if (node.scale_up->peer_links > 0) {
    const int peers = std::clamp(group.ranks_in_node - 1, 1, node.scale_up->peer_links);
    group.scale_up *= static_cast<double>(peers) / node.scale_up->peer_links;
  }
  group.scale_out =
      node.scale_out->bandwidth.value * node.nics * group.ranks_in_node / std::max(1, node.gpus);
  return group;
}

const Constant& ShareOf(Collective collective, const Link& link) {
  switch (collective) {
    case Collective::kAllReduce:
      return link.all_reduce;
    case Collective::kReduceScatter:
      return link.reduce_scatter;
    case Collective::kAllToAll:
      return link.all_to_all;
    case Collective::kAllGather:
    case Collective::kSendRecv:
    case Collective::kBroadcast:
      return link.all_gather;
  }
  return link.all_reduce;
}

// Keeps the cheaper of two ways.
void Consider(double latency, double transfer, const char* algorithm, CollectiveCost* best) {
  if (!(latency + transfer < best->seconds)) return;  // NaN, from a link without bandwidth, is no way at all
  *best = {latency + transfer, latency, algorithm};
}

bool HasProtocol(const Group& group, Protocol protocol) {
  if (group.nodes > 1) return protocol == kSimple;  // see the header
  return protocol != kLl128 || group.nvlink;        // LL128 needs stores that stay whole, NVLink's
}

double LlLimit(const Node& node) { return node.scale_up->low_latency_limit.value; }

// Bus bandwidth of a ring in Simple.
double RingBandwidth(Collective collective, const Group& group, const Node& node) {
  double rate = std::numeric_limits<double>::infinity();
  if (group.ranks_in_node > 1) rate = group.scale_up * ShareOf(collective, *node.scale_up).value;
  if (group.nodes > 1) rate = std::min(rate, group.scale_out * ShareOf(collective, *node.scale_out).value);
  return rate;
}

void ConsiderRings(Collective collective, double bytes, const Group& group, const Node& node,
                   CollectiveCost* best) {
  const bool two_passes = collective == Collective::kAllReduce;
  const double steps = (two_passes ? 2.0 : 1.0) * (group.ranks - 1);
  const double network_steps = (two_passes ? 2.0 : 1.0) * (group.nodes - 1);
  const double simple_rate = RingBandwidth(collective, group, node);
  for (const Protocol protocol : kProtocols) {
    if (!HasProtocol(group, protocol)) continue;
    double rate = simple_rate;
    if (protocol == kLl) rate = std::min(rate * kLlShare, LlLimit(node));
    if (protocol == kLl128) rate *= kLl128Share;
    const double inside = (group.nvlink ? kNvlinkRing : kPciRing)[protocol];
    const double between = kNetworkStep + node.scale_out->latency_s.value;
    const double latency = kBaseRing[protocol] + (steps - network_steps) * inside + network_steps * between;
    Consider(latency, BusFactor(collective, group.ranks) * bytes / rate, kRingNames[protocol], best);
  }
}

// A chain in the node, a double binary tree between nodes.
void ConsiderTrees(double bytes, const Group& group, const Node& node, CollectiveCost* best) {
  if (group.nodes > 1 && node.scale_out->ring_only) return;
  for (const Protocol protocol : kProtocols) {
    if (!HasProtocol(group, protocol)) continue;
    double inside = std::numeric_limits<double>::infinity();
    if (group.ranks_in_node > 1) inside = group.scale_up * node.scale_up->all_reduce.value;
    // Two nodes send each other the message once; among more, inner nodes send it to a parent and a child.
    double between = std::numeric_limits<double>::infinity();
    if (group.nodes > 1) {
      between = group.scale_out * node.scale_out->all_reduce.value * (group.nodes == 2 ? 2 : 1);
    }
    double rate = std::min(inside, between) * kTreeShare;
    if (protocol == kLl) rate = std::min(rate * kTreeLlShare, LlLimit(node));
    if (protocol == kLl128) rate *= kTreeLl128Share;
    const double depth = group.nodes > 1 ? std::ceil(std::log2(group.nodes)) : 0;
    const double latency =
        kBaseTree[protocol] +
        2 * ((group.ranks_in_node - 1) * (group.nvlink ? kNvlinkTree : kPciTree)[protocol] +
             depth * (kNetworkStep + node.scale_out->latency_s.value));
    Consider(latency, 2 * bytes / rate, kTreeNames[protocol], best);
  }
}

void ConsiderNvls(double bytes, const Group& group, const Node& node, CollectiveCost* best) {
  const double share = node.scale_up->in_network_all_reduce.value;
  if (share <= 0 || group.nodes > 1 || group.ranks_in_node < kNvlsRanks) return;
  Consider(kNvlsLatency, bytes / (group.scale_up * share), "NVLS", best);
}

double Batches(int peers) { return std::ceil(static_cast<double>(peers) / kPeersPerBatch); }

// Every rank sends `bytes` / n to each other rank.
void ConsiderExchange(double bytes, const Group& group, const Node& node, CollectiveCost* best) {
  const double message = bytes / group.ranks;
  const int near = group.ranks_in_node - 1;
  const int far = group.ranks - group.ranks_in_node;
  double inside = 0;
  if (near > 0) inside = near * message / (group.scale_up * node.scale_up->all_to_all.value);
  double between = 0;
  if (far > 0) {
    between = far * message * group.ranks_in_node / (group.scale_out * node.scale_out->all_to_all.value);
  }
  const double latency = kBaseRing[kSimple] +
                         Batches(near) * (group.nvlink ? kNvlinkRing : kPciRing)[kSimple] +
                         Batches(far) * (kNetworkStep + node.scale_out->latency_s.value);
  Consider(latency, std::max(inside, between), "direct", best);
}

// One message; in LL while it is small.
void ConsiderMessage(double bytes, const Group& group, const Node& node, CollectiveCost* best) {
  const double rate = RingBandwidth(Collective::kSendRecv, group, node);
  for (const Protocol protocol : {kLl, kSimple}) {
    if (!HasProtocol(group, protocol)) continue;
    const double step = group.nodes > 1 ? kNetworkStep + node.scale_out->latency_s.value
                                        : (group.nvlink ? kNvlinkRing : kPciRing)[protocol];
    Consider(kBaseRing[protocol] + step,
             bytes / (protocol == kLl ? std::min(rate * kLlShare, LlLimit(node)) : rate), "direct", best);
  }
}

}  // namespace

double BusFactor(Collective collective, int ranks) {
  if (ranks <= 1) return collective == Collective::kSendRecv || collective == Collective::kBroadcast ? 1 : 0;
  const double share = (ranks - 1.0) / ranks;
  switch (collective) {
    case Collective::kAllReduce:
      return 2 * share;
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return share;
    case Collective::kSendRecv:
    case Collective::kBroadcast:
      return 1;
  }
  return 1;
}

CollectiveCost PriceCollective(Collective collective, double bytes, const GroupPlacement& placement,
                               const Node& node) {
  CollectiveCost best;
  const Group group = PlaceGroup(placement, node);
  if (group.ranks <= 1) return best;
  best.seconds = std::numeric_limits<double>::infinity();
  bytes = std::max(0.0, bytes);
  switch (collective) {
    case Collective::kAllReduce:
      ConsiderRings(collective, bytes, group, node, &best);
      ConsiderTrees(bytes, group, node, &best);
      ConsiderNvls(bytes, group, node, &best);
      break;
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kBroadcast:
      ConsiderRings(collective, bytes, group, node, &best);
      break;
    case Collective::kAllToAll:
      ConsiderExchange(bytes, group, node, &best);
      break;
    case Collective::kSendRecv:
      ConsiderMessage(bytes, group, node, &best);
      break;
  }
  return best;
}

int ComputeUnitsTaken(const GroupPlacement& placement, const Node& node) {
  const Group group = PlaceGroup(placement, node);
  if (group.ranks <= 1) return 0;
  if (group.nodes == 1) return kChannelsInNode;
  // A group that has a part of the node's GPUs has that part of its adapters, and one of them at least.
  const int adapters = std::max(1, node.nics * group.ranks_in_node / std::max(1, node.gpus));
  const int channels = std::min(kChannelsInNode, kChannelsPerAdapter * adapters);
  const bool since_hopper = group.nvlink && node.device != nullptr && node.device->fp8_flops.value > 0;
  return since_hopper ? std::max(channels, kLeastChannelsOfHopper) : channels;
}

double TokenExchangeSeconds(double bytes, double copies_to_nodes, double copies_to_ranks,
                            const GroupPlacement& placement, const Node& node) {
  const Group group = PlaceGroup(placement, node);
  if (group.ranks <= 1) return 0;
  bytes = std::max(0.0, bytes);
  double inside = 0, between = 0;
  double latency = kBaseRing[kSimple];
  if (group.ranks_in_node > 1) {
    inside = bytes * std::max(0.0, copies_to_ranks) / (group.scale_up * node.scale_up->all_to_all.value);
    latency += (group.nvlink ? kNvlinkRing : kPciRing)[kSimple];
  }
  if (group.nodes > 1) {
    // What all ranks of the node send leaves by all adapters that the group may use.
    between =
        bytes * copies_to_nodes * group.ranks_in_node / (group.scale_out * node.scale_out->all_to_all.value);
    latency += kNetworkStep + node.scale_out->latency_s.value;
  }
  return latency + std::max(inside, between);
}

double CollectiveSeconds(Collective collective, double bytes, const GroupPlacement& placement,
                         const Node& node) {
  return PriceCollective(collective, bytes, placement, node).seconds;
}

}  // namespace trainctl::cluster
