#include "nn/attention_views.h"

#include <cmath>

namespace trainctl::nn {

std::vector<Piece> CutDocuments(const AttentionShape& shape, const int32_t* document) {
  std::vector<Piece> pieces;
  bool whole = false;
  for (int64_t b = 0; b < shape.batch; ++b) {
    const int32_t* row = document + b * shape.seq_len;
    if (row[0] == row[shape.seq_len - 1]) {
      if (whole) {
        ++pieces.back().num_sequences;
      } else {
        pieces.push_back({b, 1, 0, shape.seq_len});
      }
      whole = true;
      continue;
    }
    whole = false;
    int64_t begin = 0;
    for (int64_t t = 1; t <= shape.seq_len; ++t) {
      if (t < shape.seq_len && row[t] == row[begin]) continue;
      pieces.push_back({b, 1, begin, t - begin});
      begin = t;
    }
  }
  return pieces;
}

double ScaleOf(const AttentionShape& shape) {
  return shape.scale != 0 ? shape.scale : 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
}

void HideKeys(int64_t window, int64_t first_query, at::Tensor& scores) {
  const int64_t queries = scores.size(-2);
  const auto all = [&] { return at::ones({queries, scores.size(-1)}, scores.options().dtype(at::kBool)); };
  scores.masked_fill_(all().triu_(first_query + 1), -INFINITY);
  if (window > 0 && first_query + queries > window)
    scores.masked_fill_(all().tril_(first_query - window), -INFINITY);
}

}  // namespace trainctl::nn
