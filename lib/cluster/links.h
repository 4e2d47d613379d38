// Links that carry collectives, as data with a source for every number: NVLink, PCIe and xGMI inside
// a node (scale-up), InfiniBand, RoCE, EFA, Omni-Path and Ethernet between nodes (scale-out). Nothing
// here is detected; collectives.h turns these numbers into times. Thread safe: tables are constant.
//
//   TRAINCTL_ASSIGN_OR_RETURN(const cluster::Link* link, cluster::FindLink("InfiniBand NDR"));
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace trainctl::cluster {

// A number and where it was printed. A value of 0 means "does not exist" or "not measured"; the source
// says which.
struct Constant {
  double value = 0;
  const char* source = "";
};

enum class LinkKind { kNvlink, kPcie, kXgmi, kNetwork };

struct Link {
  const char* name = "";         // canonical, such as "nvlink-4"
  const char* description = "";  // for people
  LinkKind kind = LinkKind::kNetwork;

  // Bytes/s in one direction. Scale-up: what one GPU can send to all of its peers together.
  // Scale-out: one adapter.
  Constant bandwidth;
  // Seconds per step between nodes beyond NCCL's own constants for a network step.
  Constant latency_s;

  // Bus bandwidth of large messages (in nccl-tests' definition) over `bandwidth`, by collective, by
  // algorithms that send from GPU to GPU. For a scale-out link: over the bandwidth of all adapters that the
  // group may use.
  Constant all_reduce;
  Constant all_gather;
  Constant reduce_scatter;
  Constant all_to_all;
  // An all-reduce that the switch reduces (NVLS): message bytes per second over `bandwidth`. Not a bus
  // bandwidth: what a GPU sends does not depend on the number of ranks. 0: there is none.
  Constant in_network_all_reduce;
  // Bus bandwidth, bytes/s, that NCCL's low-latency protocol (LL) reaches at most; scale-up only.
  Constant low_latency_limit;

  // Equal point-to-point links that `bandwidth` is the sum of; 0 for a switch, where one peer may take all of
  // it.
  int peer_links = 0;
  // Between nodes NCCL takes rings alone: AWS's plug-in has its own tuner, which chose them on a 4-node p5en
  // (stas00/ml-engineering@744d01e1 network/README.md).
  bool ring_only = false;
  int domain = 0;  // GPUs that it joins as built; 0 for a network
};

// Every link of the catalogue, scale-up first, oldest first.
absl::Span<const Link> Links();

// By canonical name or a usual spelling ("NVLink4", "InfiniBand NDR400", "EFA v2", "25GbE"); case, spaces and
// dashes do not matter. UsageError with the nearest names when there is no such link.
absl::StatusOr<const Link*> FindLink(absl::string_view text);

}  // namespace trainctl::cluster
