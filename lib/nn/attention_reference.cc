// Attention by matrices of scores, a tile of queries at a time.

#include <algorithm>
#include <utility>

#include "device/aten.h"
#include "nn/attention.h"
#include "nn/attention_views.h"
#include "nn/segment_run.h"

namespace trainctl::nn {
namespace {

// Queries [begin, begin + count) of a piece, and the keys [first_key, begin + count) that they see.
struct Tile {
  int64_t begin = 0;
  int64_t count = 0;
  int64_t first_key = 0;

  at::Tensor Rows(const at::Tensor& heads) const { return heads.narrow(2, begin, count); }
  at::Tensor Seen(const at::Tensor& heads) const {
    return heads.narrow(2, first_key, begin + count - first_key);
  }
};

// Tiles whose scores of one kv head have at most `tile_bytes`, or one query each.
std::vector<Tile> CutQueries(const AttentionShape& shape, const Piece& piece, const at::Tensor& qkv,
                             int64_t tile_bytes) {
  const int64_t group = shape.heads / shape.kv_heads;
  const auto accumulator_bytes = static_cast<int64_t>(c10::elementSize(AccumulatorOf(qkv.scalar_type())));
  const int64_t bytes_per_query = piece.num_sequences * group * piece.count * accumulator_bytes;
  const int64_t queries = std::clamp<int64_t>(tile_bytes / bytes_per_query, 1, piece.count);
  std::vector<Tile> tiles;
  for (int64_t begin = 0; begin < piece.count; begin += queries) {
    const int64_t first_key = shape.window > 0 ? std::max<int64_t>(begin + 1 - shape.window, 0) : 0;
    tiles.push_back({begin, std::min(queries, piece.count - begin), first_key});
  }
  return tiles;
}

// Returns the scaled and capped scores [sequences, group, queries, keys], -infinity for keys that the query
// does not see. If there is a soft cap and `tanh` is not null, sets it to the capped scores over the cap.
at::Tensor MaskedScores(const AttentionShape& shape, const Tile& tile, const at::Tensor& q,
                        const at::Tensor& k, at::Tensor* tanh = nullptr) {
  at::Tensor scores = at::matmul(q, k.transpose(2, 3));
  if (shape.softcap == 0) {
    scores.mul_(ScaleOf(shape));
  } else {
    scores.mul_(ScaleOf(shape) / shape.softcap).tanh_();
    if (tanh == nullptr) {
      scores.mul_(shape.softcap);
    } else {
      *tanh = std::exchange(scores, scores.mul(shape.softcap));
    }
  }
  HideKeys(shape.window, tile.begin - tile.first_key, scores);
  return scores;
}

}  // namespace

void ReferenceAttentionForward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view,
                               at::Tensor& out, at::Tensor& lse, int64_t tile_bytes) {
  for (const Piece& piece : CutDocuments(shape, view.document)) {
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      const HeadViews views(shape, piece, head);
      const at::Tensor keys = views.Shared(views.Keys(qkv).to(AccumulatorOf(qkv.scalar_type())));
      const at::Tensor values = views.Shared(views.Values(qkv).to(AccumulatorOf(qkv.scalar_type())));
      for (const Tile& tile : CutQueries(shape, piece, qkv, tile_bytes)) {
        const at::Tensor q = tile.Rows(views.Queries(qkv)).to(AccumulatorOf(qkv.scalar_type()));
        const at::Tensor scores = MaskedScores(shape, tile, q, tile.Seen(keys));
        const at::Tensor row_lse = scores.logsumexp(/*dim=*/{3}, /*keepdim=*/true);
        const at::Tensor weights = scores.sub_(row_lse).exp_();
        tile.Rows(views.Output(out)).copy_(at::matmul(weights, tile.Seen(values)));
        tile.Rows(views.Lse(lse)).copy_(row_lse.squeeze(3));
      }
    }
  }
}

void ReferenceAttentionBackward(const AttentionShape& shape, const at::Tensor& qkv, const TokenView& view,
                                const at::Tensor& out, const at::Tensor& lse, const at::Tensor& dout,
                                at::Tensor& dqkv, int64_t tile_bytes) {
  for (const Piece& piece : CutDocuments(shape, view.document)) {
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      const HeadViews views(shape, piece, head);
      const at::Tensor keys = views.Keys(qkv).to(AccumulatorOf(qkv.scalar_type()));
      const at::Tensor values = views.Values(qkv).to(AccumulatorOf(qkv.scalar_type()));
      at::Tensor dkeys = at::zeros(keys.sizes(), keys.options());
      at::Tensor dvalues = at::zeros(values.sizes(), values.options());
      for (const Tile& tile : CutQueries(shape, piece, qkv, tile_bytes)) {
        const at::Tensor q = tile.Rows(views.Queries(qkv)).to(AccumulatorOf(qkv.scalar_type()));
        const at::Tensor k = tile.Seen(views.Shared(keys));
        const at::Tensor v = tile.Seen(views.Shared(values));
        const at::Tensor dy = tile.Rows(views.Output(dout)).to(AccumulatorOf(qkv.scalar_type()));
        const at::Tensor row_lse = tile.Rows(views.Lse(lse)).unsqueeze(3);
        at::Tensor tanh;
        const at::Tensor weights = MaskedScores(shape, tile, q, k, &tanh).sub_(row_lse).exp_();
        const at::Tensor row_dot = dy.mul(tile.Rows(views.Output(out))).sum(/*dim=*/{3}, /*keepdim=*/true);
        at::Tensor dscores = at::matmul(dy, v.transpose(2, 3)).sub_(row_dot).mul_(weights);
        if (tanh.defined()) at::tanh_backward_out(dscores, dscores, std::exchange(tanh, {}));
        dscores.mul_(ScaleOf(shape));
        tile.Rows(views.Queries(dqkv)).copy_(at::matmul(dscores, k));
        tile.Seen(dkeys).add_(at::matmul(dscores.transpose(2, 3), q).sum(/*dim=*/{1}, /*keepdim=*/true));
        tile.Seen(dvalues).add_(at::matmul(weights.transpose(2, 3), dy).sum(/*dim=*/{1}, /*keepdim=*/true));
      }
      views.Keys(dqkv).copy_(dkeys);
      views.Values(dqkv).copy_(dvalues);
    }
  }
}

}  // namespace trainctl::nn
