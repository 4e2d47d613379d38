#include "simulate/device_cost.h"

#include <algorithm>

#include "simulate/device_attention.h"
#include "simulate/device_matmul.h"

namespace trainctl::simulate {
namespace {

double SecondsOf(const cluster::Machine& machine, const model::Product& product) {
  const Precision precision = product.dtype == DType::kF32 ? Precision::kFp32 : Precision::kBf16;
  return MatmulSeconds(*machine.device, precision,
                       {.batch = product.batch,
                        .rows = product.rows,
                        .inner = product.inner,
                        .columns = product.columns,
                        .result_bytes = product.result_bytes});
}

// LibTorch's kernel is FlashAttention-2, on every device (lib/nn runs no other).
double SecondsOf(const cluster::Machine& machine, const model::AttentionKernel& kernel) {
  const ForwardBackward seconds = AttentionSeconds(*machine.device, FusedAttention::kFlash2,
                                                   {.queries = kernel.tokens,
                                                    .keys = (kernel.seq_len + 1) / 2,
                                                    .heads = kernel.heads,
                                                    .head_dim = kernel.head_dim,
                                                    .seq_len = kernel.seq_len});
  return kernel.backward ? seconds.backward : seconds.forward;
}

double SecondsOf(const cluster::Machine& machine, const model::Exchange& exchange) {
  return cluster::CollectiveSeconds(exchange.collective, exchange.bytes,
                                    PlacementOf(exchange.ranks, exchange.stride, *machine.node),
                                    *machine.node);
}

}  // namespace

cluster::GroupPlacement PlacementOf(int ranks, int stride, const cluster::Node& node) {
  return {.ranks = ranks, .ranks_per_node = std::clamp(node.gpus / stride, 1, ranks)};
}

double DeviceSeconds(const cluster::Machine& machine, const model::Work& work) {
  double seconds = 0;
  const auto add = [&](const auto& list) {
    for (const auto& [what, count] : list) seconds += count * SecondsOf(machine, what);
  };
  add(work.products);
  add(work.attention);
  add(work.exchanges);
  return seconds;
}

}  // namespace trainctl::simulate
