// The catalogue of links that carry collectives, with a source for every number: NVLink, PCIe and xGMI inside
// a node (scale-up), and InfiniBand, RoCE, EFA, Omni-Path and Ethernet between nodes (scale-out). It does not
// detect links; collectives.h turns these numbers into times. Thread-safe: the tables are constant.
//
//   TRAINCTL_ASSIGN_OR_RETURN(const cluster::Link* link, cluster::FindLink("InfiniBand NDR"));
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace trainctl::cluster {

// A number and where it was published. 0 means "does not exist" or "not measured", and the source says which.
struct Constant {
  double value = 0;
  const char* source = "";
};

enum class LinkKind { kNvlink, kPcie, kXgmi, kNetwork };

struct Link {
  const char* name = "";         // canonical name, such as "nvlink-4"
  const char* description = "";  // description to display
  LinkKind kind = LinkKind::kNetwork;

  // Bytes/s in one direction: for scale-up, the total that one GPU can send to all of its peers; for
  // scale-out, the rate of one adapter.
  Constant bandwidth;
  // Seconds added to NCCL's constant for each step between nodes.
  Constant latency_s;

  // The bus bandwidth of large messages, as defined by nccl-tests, relative to `bandwidth`, for algorithms
  // that send from GPU to GPU. For a scale-out link, it is relative to the bandwidth of all adapters that the
  // group may use.
  Constant all_reduce;
  Constant all_gather;
  Constant reduce_scatter;
  Constant all_to_all;
  // For an all-reduce inside the switch (NVLS), message bytes per second relative to `bandwidth`; 0 if
  // unsupported. This is not a bus bandwidth, because a GPU sends the same number of bytes for any number of
  // ranks.
  Constant in_network_all_reduce;
  // Upper limit of the bus bandwidth of NCCL's low-latency protocol (LL), in bytes/s; scale-up only.
  Constant low_latency_limit;

  // The number of equal point-to-point links that make up `bandwidth`; 0 for a switch, through which a single
  // peer can use all of it.
  int peer_links = 0;
  // Whether NCCL uses only rings between nodes. The tuner in AWS's plug-in chose rings on a 4-node p5en
  // (stas00/ml-engineering@744d01e1 network/README.md).
  bool ring_only = false;
  int domain = 0;  // number of GPUs that it connects; 0 for a network
};

// Returns all links of the catalogue: scale-up first, and each kind from oldest to newest.
absl::Span<const Link> Links();

// Finds a link by its canonical name or a common spelling ("NVLink4", "InfiniBand NDR400", "EFA v2",
// "25GbE"). Ignores case, spaces and dashes. Returns UsageError with the closest names if the link is
// unknown.
absl::StatusOr<const Link*> FindLink(absl::string_view text);

}  // namespace trainctl::cluster
