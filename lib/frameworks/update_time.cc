#include "frameworks/update_time.h"

#include <algorithm>

#include "absl/strings/string_view.h"
#include "cluster/collectives.h"
#include "cluster/links.h"
#include "frameworks/operator_time.h"
#include "frameworks/overlap.h"
#include "frameworks/pipeline_rank.h"

namespace trainctl::frameworks {
namespace {

// Adam in host memory, of a whole node: 10 billion parameters in 2.57 s (ZeRO-Offload, arXiv 2101.06840,
// table 4, CPU-Adam).
constexpr double kHostUpdatesPerSecond = 10e9 / 2.57;
// Bytes per parameter from which on the host is what updates: two moments in fp32. Smaller ones are paged:
// the device updates them where they lie (bitsandbytes' paged optimizers, in managed memory).
constexpr double kLeastOnHost = 8;
// NVLink-C2C of a Grace with two Blackwells: 900 GB/s in both directions for the pair (GB200 data sheet).
constexpr double kChipToChip = 225e9;
// Where the optimizer goes from tensor to tensor. Shards are cut from a block's parameters end to end, so
// that a rank has a part of one of them more than its share.
double UpdateLaunchSeconds(const Workload& w) {
  if (w.framework->update_kernels == 0) return 0;
  const double blocks = static_cast<double>(NumLayers(w.model)) / static_cast<double>(w.mesh.pp) + 1;
  const double matrices = MlpOf(w.model).gated ? 7 : 4;
  const model::NormPlaces places = NormPlacesOf(w.model);
  const double norms =
      (HasNormsBefore(places) ? 1 : 0) + (HasNormBeforeMlp(places) ? 1 : 0) + (HasNormsAfter(places) ? 2 : 0);
  const double vectors =
      norms * (w.model.norm.has_bias() ? 2 : 1) + (HasAllLinearBiases(w.model) ? matrices : 0);
  const double ranks = w.zero_stage >= 1 ? static_cast<double>(w.mesh.dp_shard) : 1;
  const double tensors = ranks > 1 ? 1 + (matrices + vectors) / ranks : matrices + vectors;
  return blocks * tensors * w.framework->update_kernels * kHostOperatorSeconds;
}

}  // namespace

double HostLinkBytesPerSecond(const cluster::Device& device) {
  if (device.grace_host) return kChipToChip;
  // Hopper and its contemporaries have PCIe 5, Ampere PCIe 4, Volta PCIe 3; copies reach what a ring reaches.
  const char* pcie = device.fp8_flops.value > 0 ? "pcie-5" : device.has_bf16 ? "pcie-4" : "pcie-3";
  for (const cluster::Link& link : cluster::Links()) {
    if (absl::string_view(link.name) == pcie) return link.bandwidth.value * link.all_gather.value;
  }
  return 0;
}

double UpdateSeconds(const Workload& w) {
  if (w.frozen) return 0;
  const RankParameters parameters = ParametersOfRank(w, 0);
  const double own = w.zero_stage >= 1 ? ShardedElements(parameters, w) : parameters.all();
  double seconds = 0;
  if (w.mesh.world_size() > 1) {
    seconds += cluster::CollectiveSeconds(cluster::Collective::kAllReduce, 4,
                                          PlacementOf(w, w.mesh.world_size(), 1), *w.node);
  }
  if (w.optimizer_on_host && w.OptimizerBytes() >= kLeastOnHost) {
    const double copies =
        own * (w.framework->gradient_bytes + w.framework->weight_bytes) / HostLinkBytesPerSecond(*w.device);
    const double sharers = static_cast<double>(std::min<int64_t>(w.node->gpus, w.mesh.world_size()));
    return seconds + copies + own * sharers / kHostUpdatesPerSecond;
  }
  return seconds + std::max(OptimizerSeconds(w, own), UpdateLaunchSeconds(w));
}

}  // namespace trainctl::frameworks
