#include "simulate/operator_work.h"

#include <cmath>

namespace trainctl::simulate {
namespace {

using model::OpKind;

double Cols(const model::Segment& segment, int value) {
  return static_cast<double>(segment.values[static_cast<size_t>(value)].cols);
}

double Tokens(const model::Segment& segment) { return static_cast<double>(segment.shape.tokens()); }
double ElementBytes(const model::Segment& segment) { return static_cast<double>(DTypeBytes(segment.dtype)); }

// The fp32 sum of weight gradients is written, or read and written; a bf16 product is rounded on its way.
double WeightGradientBytes(const model::Segment& segment, double numel, bool accumulate) {
  const double sum = accumulate ? 8 : 4;
  return segment.dtype == DType::kF32 ? numel * sum : numel * (sum + 2 * ElementBytes(segment));
}

// Heads of keys and values are computed one after the other, each a call of its own.
double AttentionCalls(const model::ModelSpec& spec) { return static_cast<double>(spec.kv_heads); }

// What the attention kernel does: `products` over all scores that it computes. Heads and, forward, tiles of
// queries are dealt to the threads whole: all wait for the one that has most.
Work AttentionWork(const model::ModelSpec& spec, const model::Segment& segment, bool backward) {
  const model::MicroBatchShape& shape = segment.shape;
  const model::AttentionTiles tile = model::AttentionTilesOf(shape.seq_len);
  const int64_t query_tiles = (shape.seq_len + tile.queries - 1) / tile.queries;
  const int64_t tasks = shape.batch * spec.heads / spec.kv_heads * (backward ? 1 : query_tiles);
  const int64_t threads = segment.threads;
  const int64_t rounds = (tasks + threads - 1) / threads;
  const double wait = static_cast<double>(rounds * threads) / static_cast<double>(tasks);
  const double products = backward ? 5 : 2;
  const double heads = static_cast<double>(shape.batch * spec.heads) * wait * products;
  const double scores = static_cast<double>(model::ScoresComputed(shape.seq_len));
  Work work;
  work[backward ? Resource::kAttentionBackwardFlops : Resource::kAttentionFlops] =
      heads * 2 * scores * static_cast<double>(spec.head_dim);
  work[Resource::kAttentionTiles] = heads * scores / static_cast<double>(tile.queries * tile.keys);
  work[Resource::kOperators] = AttentionCalls(spec);
  return work;
}

}  // namespace

Work ForwardWork(const model::ModelSpec& spec, const model::Segment& segment, const model::Operator& op) {
  const double n = Tokens(segment);
  const double element = ElementBytes(segment);
  const double out = Cols(segment, op.outputs[0]);
  Work work;
  work[Resource::kOperators] = 1;
  switch (op.kind) {
    case OpKind::kEmbedding:
    case OpKind::kRmsNorm:
    case OpKind::kRope:
      work[Resource::kMovedBytes] = 2 * n * out * element;
      break;
    case OpKind::kAdd:
      work[Resource::kMovedBytes] = 3 * n * out * element;
      break;
    case OpKind::kSwiGlu:
      work[Resource::kMovedBytes] = 3 * n * out * element;
      break;
    case OpKind::kLinear: {
      const double in = Cols(segment, op.inputs[0]);
      work[Resource::kMatmulFlops] = 2 * n * in * out;
      work[Resource::kOperandBytes] = (n * in + in * out + n * out) * element;
      break;
    }
    case OpKind::kAttention:
      return AttentionWork(spec, segment, /*backward=*/false);
    case OpKind::kLinearCrossEntropy:
      break;  // LossWork
  }
  return work;
}

Work BackwardWork(const model::ModelSpec& spec, const model::Segment& segment, const model::Operator& op,
                  bool accumulate) {
  const double n = Tokens(segment);
  const double element = ElementBytes(segment);
  const double out = Cols(segment, op.outputs[0]);
  Work work;
  work[Resource::kOperators] = 1;
  switch (op.kind) {
    case OpKind::kEmbedding: {
      const double table = static_cast<double>(spec.vocab) * out * static_cast<double>(sizeof(float));
      work[Resource::kMovedBytes] = (accumulate ? 0 : table) + n * out * (element + 8);
      break;
    }
    case OpKind::kRmsNorm:
      work[Resource::kMovedBytes] = 4 * n * out * element;
      break;
    case OpKind::kRope:
      work[Resource::kMovedBytes] = 2 * n * out * element;
      break;
    case OpKind::kAdd:
      work[Resource::kOperators] = 0;
      break;
    case OpKind::kSwiGlu:
      work[Resource::kMovedBytes] = 5 * n * out * element;
      break;
    case OpKind::kLinear: {
      const double in = Cols(segment, op.inputs[0]);
      work[Resource::kMatmulFlops] = 4 * n * in * out;
      work[Resource::kOperandBytes] = (2 * n * in + 2 * n * out + in * out) * element +
                                      WeightGradientBytes(segment, in * out, accumulate);
      work[Resource::kOperators] = 2;
      break;
    }
    case OpKind::kAttention:
      return AttentionWork(spec, segment, /*backward=*/true);
    case OpKind::kLinearCrossEntropy:
      break;  // LossWork
  }
  return work;
}

Work LossWork(const model::ModelSpec& spec, const model::Segment& segment, bool gradient) {
  const double n = Tokens(segment);
  const double hidden = static_cast<double>(spec.hidden);
  const double vocab = static_cast<double>(spec.vocab);
  const double element = ElementBytes(segment);
  const double rows = static_cast<double>(model::LogitRowsAtOnce(segment.shape, spec.vocab, segment.dtype));
  const double pieces = std::ceil(n / rows);
  const double products = gradient ? 3 : 1;
  Work work;
  work[Resource::kMatmulFlops] = products * 2 * n * hidden * vocab;
  work[Resource::kLogits] = n * vocab;
  work[Resource::kOperandBytes] = products * (n * hidden + pieces * hidden * vocab + n * vocab) * element;
  if (gradient) {
    work[Resource::kOperandBytes] += pieces * WeightGradientBytes(segment, hidden * vocab, true);
  }
  work[Resource::kOperators] = pieces * (products + 1);
  return work;
}

}  // namespace trainctl::simulate
