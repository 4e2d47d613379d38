#include "frameworks/attention_time.h"

#include "simulate/device_attention.h"
#include "simulate/device_kernels.h"
#include "simulate/device_matmul.h"

namespace trainctl::frameworks {
namespace {

// Batch products over the whole square and passes over the scores between them: scaled, masked and
// normalized in one (Megatron-LM's fused kernel), dropped in another.
ForwardBackward ScoresSeconds(const WorkItem& item, const Workload& w) {
  const cluster::Device& device = *w.device;
  const double context = 2 * item.inner;
  const double queries = static_cast<double>(w.seq_len);
  const double heads = item.columns * item.rows / queries;
  const auto product = [&](double rows, double inner, double columns) {
    return simulate::MatmulSeconds(device, w.precision,
                                   {.batch = heads, .rows = rows, .inner = inner, .columns = columns});
  };
  const double scores = heads * queries * context;
  const double scores_product = product(queries, item.head_dim, context);
  const double values_product = product(queries, context, item.head_dim);
  const double bandwidth = simulate::BytesPerSecond(device);
  const double bias = w.model.learned_positions == 0 ? scores * w.framework->score_bias_bytes / bandwidth : 0;
  const double softmax = scores * 4 / bandwidth;
  const double dropout = w.model.dropout ? scores * 5 / bandwidth : 0;
  // The result's heads are brought back beside each other.
  const double transpose = item.rows * item.columns * item.head_dim * 4 / bandwidth;
  // Backward: two products each; the softmax reads its output too.
  return {scores_product + values_product + bias + softmax + dropout + transpose,
          2 * (scores_product + values_product) + 1.5 * softmax + dropout + transpose};
}

simulate::FusedAttention FusedKernel(AttentionKernel kernel) {
  switch (kernel) {
    case AttentionKernel::kFlash1:
      return simulate::FusedAttention::kFlash1;
    case AttentionKernel::kVendor:
      return simulate::FusedAttention::kVendor;
    case AttentionKernel::kScores:
    case AttentionKernel::kFlash2:
      break;
  }
  return simulate::FusedAttention::kFlash2;
}

}  // namespace

ForwardBackward AttentionSeconds(const WorkItem& item, const Workload& w) {
  if (w.framework->attention == AttentionKernel::kScores) return ScoresSeconds(item, w);
  return simulate::AttentionSeconds(*w.device, FusedKernel(w.framework->attention),
                                    {.queries = item.rows,
                                     .keys = item.inner,
                                     .heads = item.columns,
                                     .head_dim = item.head_dim,
                                     .seq_len = static_cast<double>(w.seq_len),
                                     .fp8 = w.fp8_attention});
}

}  // namespace trainctl::frameworks
