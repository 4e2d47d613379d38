// The test device's flash attention. It evaluates the formulae on CPU tensors, one document at a time, with
// the scale and windows of LibTorch's operator. The shapes are those of that operator: q, out [n, heads,
// head_dim], k and v [n, kv_heads, head_dim], lse [heads, n], offsets int32 [documents + 1].
#pragma once

#include <cmath>
#include <optional>

#include "device/aten.h"

namespace trainctl::test_device {

// The optional arguments of LibTorch's operators.
struct FlashOptions {
  std::optional<double> scale;
  std::optional<int64_t> window_left;  // number of keys before a query's own that it sees
};

class FlashDocument {
 public:
  FlashDocument(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t begin, int64_t end,
                const FlashOptions& options)
      : begin_(begin),
        count_(end - begin),
        group_(q.size(1) / k.size(1)),
        scale_(options.scale.value_or(1 / std::sqrt(static_cast<double>(q.size(2))))),
        q_(Heads(q)),
        k_(Heads(k).repeat_interleave(group_, 0)),
        v_(Heads(v).repeat_interleave(group_, 0)) {
    const at::Tensor later = at::ones({count_, count_}, at::kBool).triu_(1);
    scores_ = at::bmm(q_, k_.transpose(1, 2)).mul_(scale_).masked_fill_(later, -INFINITY);
    if (!options.window_left) return;
    const at::Tensor earlier = at::ones({count_, count_}, at::kBool).tril_(-1 - *options.window_left);
    scores_.masked_fill_(earlier, -INFINITY);
  }

  void Forward(const at::Tensor& out, const at::Tensor& lse) const {
    const at::Tensor sums = scores_.logsumexp(/*dim=*/{2});
    Rows(out).copy_(at::bmm(scores_.sub(sums.unsqueeze(2)).exp_(), v_).transpose(0, 1));
    lse.narrow(1, begin_, count_).copy_(sums);
  }

  void Backward(const at::Tensor& dout, const at::Tensor& out, const at::Tensor& lse, const at::Tensor& dq,
                const at::Tensor& dk, const at::Tensor& dv) const {
    const at::Tensor weights = scores_.sub(lse.narrow(1, begin_, count_).unsqueeze(2)).exp_();
    const at::Tensor dy = Heads(dout);
    const at::Tensor row_dot = dy.mul(Heads(out)).sum(/*dim=*/{2}, /*keepdim=*/true);
    const at::Tensor dscores = at::bmm(dy, v_.transpose(1, 2)).sub_(row_dot).mul_(weights).mul_(scale_);
    Rows(dq).copy_(at::bmm(dscores, k_).transpose(0, 1));
    Rows(dk).copy_(OfSharedHeads(at::bmm(dscores.transpose(1, 2), q_)));
    Rows(dv).copy_(OfSharedHeads(at::bmm(weights.transpose(1, 2), dy)));
  }

 private:
  at::Tensor Rows(const at::Tensor& x) const { return x.narrow(0, begin_, count_); }
  at::Tensor Heads(const at::Tensor& x) const { return Rows(x).transpose(0, 1).to(at::kFloat); }
  at::Tensor OfSharedHeads(const at::Tensor& x) const {
    return x.view({-1, group_, count_, x.size(2)}).sum(/*dim=*/{1}).transpose(0, 1);
  }

  const int64_t begin_, count_, group_;
  const double scale_;
  const at::Tensor q_, k_, v_;  // [heads, tokens, head_dim], fp32
  at::Tensor scores_;
};

// Calls work(document) for each.
template <typename Work>
void ForFlashDocuments(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const at::Tensor& offsets, const FlashOptions& options, const Work& work) {
  const int32_t* const begins = offsets.const_data_ptr<int32_t>();
  for (int64_t i = 0; i + 1 < offsets.numel(); ++i)
    work(FlashDocument(q, k, v, begins[i], begins[i + 1], options));
}

}  // namespace trainctl::test_device
