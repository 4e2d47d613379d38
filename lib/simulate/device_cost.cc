#include "simulate/device_cost.h"

#include <algorithm>

#include "model/operators.h"
#include "simulate/device_matmul.h"

namespace trainctl::simulate {
namespace {

double ProductSeconds(const cluster::Machine& machine, const model::Product& product) {
  const Precision precision = product.dtype == DType::kF32 ? Precision::kFp32 : Precision::kBf16;
  return MatmulSeconds(*machine.device, precision,
                       {.batch = product.batch,
                        .rows = product.rows,
                        .inner = product.inner,
                        .columns = product.columns,
                        .result_bytes = product.result_bytes});
}

double KernelSeconds(const cluster::Machine& machine, FusedAttention fused,
                     const model::AttentionKernel& kernel) {
  // The trainer does not use cuDNN's kernel for a window (lib/nn/attention_cudnn.cc).
  const FusedAttention used = kernel.window > 0 ? FusedAttention::kFlash2 : fused;
  const ForwardBackward seconds =
      AttentionSeconds(*machine.device, used,
                       {.queries = kernel.tokens,
                        .keys = model::MeanVisibleKeys(kernel.seq_len, kernel.window),
                        .heads = kernel.heads,
                        .head_dim = kernel.head_dim,
                        .seq_len = kernel.seq_len});
  return kernel.backward ? seconds.backward : seconds.forward;
}

double ExchangeSeconds(const cluster::Machine& machine, const model::Exchange& exchange) {
  return cluster::CollectiveSeconds(exchange.collective, exchange.bytes,
                                    PlacementOf(exchange.ranks, exchange.stride, *machine.node),
                                    *machine.node);
}

}  // namespace

cluster::GroupPlacement PlacementOf(int ranks, int stride, const cluster::Node& node) {
  return {.ranks = ranks, .ranks_per_node = std::clamp(node.gpus / stride, 1, ranks)};
}

double DeviceSeconds(const cluster::Machine& machine, FusedAttention attention, const ShapeScales& scales,
                     const model::Work& work) {
  double seconds = 0;
  for (const auto& [product, count] : work.products)
    seconds += count * scales.products * ProductSeconds(machine, product);
  for (const auto& [kernel, count] : work.attention) {
    seconds += count * (kernel.backward ? scales.attention_backward : scales.attention) *
               KernelSeconds(machine, attention, kernel);
  }
  for (const auto& [exchange, count] : work.exchanges) seconds += count * ExchangeSeconds(machine, exchange);
  return seconds;
}

}  // namespace trainctl::simulate
