// Estimates the time of a collective on a node of the catalogue. The estimate is latency plus bytes over
// bandwidth, for the fastest combination of algorithm and protocol, which is how NCCL's own tuner chooses.
// Pure functions; thread-safe.
//
//   const cluster::Node& node = cluster::DefaultNodeFor(*device);
//   double t = cluster::CollectiveSeconds(Collective::kAllReduce, bytes,
//                                         {.ranks = 32, .ranks_per_node = 8}, node);
//
// In this model, `bytes` is the size S defined by nccl-tests (doc/PERFORMANCE.md): a rank's whole buffer for
// all-reduce and all-to-all, the gathered buffer for all-gather, the buffer before scattering for
// reduce-scatter, and the message for broadcast and send-receive. The times for n ranks on k nodes, with a
// ring of bus bandwidth B, are:
//
//   ring        all-reduce 2(n-1)/n S/B, all-gather and reduce-scatter (n-1)/n S/B, broadcast S/B
//   tree        all-reduce only: 2 S/B' with B' = 0.92 B; on two nodes the network carries only S
//   NVLS        all-reduce of more than four ranks within one node: S divided by the switch's own rate
//   all-to-all  the slower of two concurrent transfers: each rank's messages within its node over the
//               scale-up link, and its other messages over its share of the adapters
//
// B is the minimum of the scale-up link's rate and the adapters' rate, each times its measured efficiency.
// This is because a ring enters and leaves a node once per channel, and the channels use all adapters (192 of
// 200 GB/s on DGX A100, GTC 2025 S72583). A group with m of a node's g GPUs gets m/g of its adapters, because
// its sibling groups run at the same time. The latency is a base per algorithm and protocol plus a time per
// step. A ring all-reduce has 2(n-1) steps, and 2(k-1) of them cross the network. The constants come from
// NVIDIA/nccl@5067397c src/graph/tuning.cc (baseLatencies, hwLatencies). Within a node, the protocols are LL
// (for small messages, at half the rate), LL128 (at 0.92 of the rate, over NVLink) and Simple. Between nodes,
// the model uses only Simple. Published sweeps of 256 KiB and more (4x8 B200 over EFA, 5x8 H100 over RoCE,
// 2x8 H20 over InfiniBand) match these constants' predictions for Simple, but take twice as long as predicted
// for LL and LL128. As a result, the time of a message below 64 KiB between nodes is overestimated by up to a
// factor of two.
//
// The model ignores congestion above the first switch, other traffic on the same links, and the host's launch
// overhead (benchmarks that time individual calls from Python measure about 40 us more). Use
// ComputeUnitsTaken to estimate the slowdown of concurrent kernels.
#pragma once

#include <string>

#include "base/collective.h"
#include "cluster/catalogue.h"

namespace trainctl::cluster {

using trainctl::Collective;

// The GPUs that take part in a collective. For kSendRecv, `ranks` is 2, and `ranks_per_node` is 1 if the peer
// is on another node or 2 if it is on the same node.
struct GroupPlacement {
  int ranks = 1;
  int ranks_per_node = 1;  // ranks of this group per node; sibling groups occupy the rest
};

// Returns the time, in seconds, from when all ranks have started to when all have finished. A single rank
// takes 0 s. An empty message still costs the latency. Out-of-range values are clamped: negative `bytes` to
// 0, and `ranks_per_node` to between 1 and the node's number of GPUs.
double CollectiveSeconds(Collective collective, double bytes, const GroupPlacement& placement,
                         const Node& node);

struct CollectiveCost {
  double seconds = 0;
  double latency_seconds = 0;  // part that is independent of the message size
  // Algorithm and protocol to display: "ring LL128", "tree Simple", "NVLS" or "direct".
  std::string algorithm = "none";
};
CollectiveCost PriceCollective(Collective collective, double bytes, const GroupPlacement& placement,
                               const Node& node);

// Returns the number of compute units that a collective's kernel occupies while it runs, one per channel.
// Within a node, this is 24 (an all-gather on 8x H100 launches 24 blocks: NVIDIA developer forum topic
// 337991, "Compute-Communication Overlap Causes Severe GEMM Performance Degradation"). Between nodes, it is
// two per adapter, and at least 16 on the links of Hopper and newer devices (NVIDIA/nccl@5067397c
// src/graph/connect.cc, ncclTopoPostset). A single rank occupies none.
int ComputeUnitsTaken(const GroupPlacement& placement, const Node& node);

// Returns the time, in seconds, of exchanging tokens with experts as DeepEP and HybridEP do. Each token is
// sent once to every node that has one of its experts, and from there over the scale-up link to the ranks
// that have them. The two legs overlap. `bytes` is the size of one token times the number of a rank's tokens.
// `copies_to_nodes` and `copies_to_ranks` are the average numbers of other nodes and other ranks to which a
// token is sent.
double TokenExchangeSeconds(double bytes, double copies_to_nodes, double copies_to_ranks,
                            const GroupPlacement& placement, const Node& node);

// Returns the factor with which nccl-tests computes the bus bandwidth, BusFactor * bytes / seconds: 2(n-1)/n
// for all-reduce, (n-1)/n for all-gather, reduce-scatter and all-to-all, and 1 otherwise.
double BusFactor(Collective collective, int ranks);

}  // namespace trainctl::cluster
