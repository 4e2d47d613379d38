// How long a collective takes on a node of the catalogue: latency plus bytes over bandwidth, by the algorithm
// and protocol that is cheapest, as NCCL's own tuner chooses. Pure; thread safe.
//
//   const cluster::Node& node = cluster::DefaultNodeFor(*device);
//   double t = cluster::CollectiveSeconds(cluster::Collective::kAllReduce, bytes, {.ranks = 32,
//   .ranks_per_node = 8}, node);
//
// The model. `bytes` is S of nccl-tests (doc/PERFORMANCE.md): the whole buffer of a rank for all-reduce and
// all-to-all, the gathered buffer for all-gather, the buffer before scattering for reduce-scatter, the
// message for broadcast and send-receive. With n ranks, k nodes, and a ring's bus bandwidth B:
//
//   ring        all-reduce 2(n-1)/n S/B, all-gather and reduce-scatter (n-1)/n S/B, broadcast S/B
//   tree        all-reduce only: 2 S/B' where B' is 0.92 B; on two nodes the network carries S alone
//   NVLS        all-reduce within one node, more than four ranks: S over the switch's own rate
//   all-to-all  each rank's messages for its node over the scale-up link, the others over its share of the
//               adapters, at the same time; the slower of the two
//
// B = min(the scale-up link's rate times its measured share, the adapters' rate times theirs): a ring enters
// and leaves a node once per channel, and channels use all adapters (192 of 200 GB/s on DGX A100, GTC 2025
// S72583). A group that has m of a node's g GPUs has m/g of its adapters: its sibling groups run at the same
// time. Latency is a base per algorithm and protocol plus steps: 2(n-1) for a ring all-reduce, of which
// 2(k-1) cross the network; constants from NVIDIA/nccl@5067397c src/graph/tuning.cc (baseLatencies,
// hwLatencies). Within a node the protocols are LL (few bytes, half the rate), LL128 (0.92 of it, over
// NVLink) and Simple. Between nodes it is Simple alone: published sweeps of 256 KiB and more (4x8 B200 over
// EFA, 5x8 H100 over RoCE, 2x8 H20 over InfiniBand) take what these constants give for Simple, and twice what
// they promise for LL and LL128. Messages below 64 KiB between nodes are therefore priced up to twice too
// slow.
//
// Not in it: congestion above the first switch, other traffic on the same links, and the launch by the host
// (benchmarks that time single calls from Python show some 40 us more). What a collective takes from kernels
// that run beside it is ComputeUnitsTaken.
#pragma once

#include <string>

#include "base/collective.h"
#include "cluster/catalogue.h"

namespace trainctl::cluster {

using trainctl::Collective;

// Which GPUs take part. Of kSendRecv, `ranks` is 2 and ranks_per_node says whether the peer is in another
// node (1) or not (2).
struct GroupPlacement {
  int ranks = 1;
  int ranks_per_node = 1;  // of this group; neighbours fill the rest of the node
};

// Seconds, from the start on all ranks to the end on all. 0 for one rank. An empty message still pays the
// latency. Values out of range are brought into it: negative bytes are 0, ranks_per_node is between 1 and the
// node's GPUs.
double CollectiveSeconds(Collective collective, double bytes, const GroupPlacement& placement,
                         const Node& node);

struct CollectiveCost {
  double seconds = 0;
  double latency_seconds = 0;      // the part that does not grow with the message
  std::string algorithm = "none";  // "ring LL128", "tree Simple", "NVLS", "direct"; for reports
};
CollectiveCost PriceCollective(Collective collective, double bytes, const GroupPlacement& placement,
                               const Node& node);

// Compute units that a collective's kernel occupies while it runs, one for each channel. Within a node 24 (an
// all-gather on 8x H100 launches 24 blocks: NVIDIA developer forum topic 337991, "Compute-Communication
// Overlap Causes Severe GEMM Performance Degradation"); between nodes two for each adapter, and 16 at least
// on links of Hopper and newer (NVIDIA/nccl@5067397c src/graph/connect.cc, ncclTopoPostset). 0 for one rank.
int ComputeUnitsTaken(const GroupPlacement& placement, const Node& node);

// Seconds of the exchange of tokens with experts where a token goes once to each node that holds one of its
// experts, and from there over the scale-up link to each rank that does (DeepEP, HybridEP). Both legs at the
// same time; `bytes` is one token's times the tokens of a rank, `copies_to_nodes` and `copies_to_ranks` how
// many other nodes and other ranks a token goes to on average.
double TokenExchangeSeconds(double bytes, double copies_to_nodes, double copies_to_ranks,
                            const GroupPlacement& placement, const Node& node);

// What nccl-tests divides by: 2(n-1)/n for all-reduce, (n-1)/n for all-gather, reduce-scatter and all-to-all,
// 1 otherwise. Bus bandwidth = BusFactor * bytes / seconds.
double BusFactor(Collective collective, int ranks);

}  // namespace trainctl::cluster
