#include "nn/loss_over_ranks.h"

#include "device/aten.h"

namespace trainctl::nn {
namespace {

// Of each row. [rows] each.
struct Statistics {
  at::Tensor maximum;
  at::Tensor sum;  // of exponentials, below the maximum
  at::Tensor target;
};

// Of all ranks together.
Statistics Combine(TensorGroup& tensor, int64_t first, const Statistics& own) {
  const int64_t rows = own.maximum.size(0);
  const at::Tensor part = at::stack({own.maximum, own.sum, own.target}).unsqueeze(0);
  at::Tensor all = at::empty({tensor.size(), model::kLossStatistics, rows}, part.options());
  tensor.GatherRows(model::LossExchangeName(first), part, all);
  const auto of = [&](int rank, int64_t which) { return all.select(0, rank).select(0, which); };
  Statistics whole{all.select(1, 0).amax(0), at::zeros_like(own.sum), at::zeros_like(own.target)};
  for (int rank = 0; rank < tensor.size(); ++rank) {
    whole.sum.add_((of(rank, 0) - whole.maximum).exp_().mul_(of(rank, 1)));
    whole.target.add_(of(rank, 2));
  }
  return whole;
}

}  // namespace

void AddLossOverRanks(SegmentRun& run, const model::LinearCrossEntropyAttributes& attributes,
                      at::Tensor& logits, int64_t first, int64_t rows) {
  const LossRequest& loss = run.loss();
  const device::Device& device = run.device();
  const auto view = [&](const auto* data, at::ScalarType dtype) {
    return device.View(const_cast<void*>(static_cast<const void*>(data + first)), {rows}, dtype);
  };
  at::Tensor values =
      logits.to(AccumulatorOf(logits.scalar_type()));  // the logits themselves where that is their type
  at::Tensor target = view(run.view().targets, at::kInt).to(at::kLong) - attributes.first;
  const at::Tensor elsewhere = target.lt(0).logical_or_(target.ge(attributes.vocab));
  target = target.clamp_(0, attributes.vocab - 1).unsqueeze(1);
  const at::Tensor ignored = view(run.view().loss_mask, at::kByte).eq(0);
  at::Tensor slopes;  // derivatives of the capped logits
  if (attributes.softcap > 0) {
    values.div_(attributes.softcap).tanh_();
    if (loss.scale != nullptr) slopes = values.square().neg_().add_(1);
    values.mul_(attributes.softcap);
  }

  Statistics own;
  own.maximum = values.amax(1);
  own.target = values.gather(1, target).squeeze(1).masked_fill_(elsewhere, 0);
  values.sub_(own.maximum.unsqueeze(1)).exp_();
  own.sum = values.sum(1);
  const Statistics whole = Combine(run.tensor(), first, own);
  const at::Tensor lse = whole.maximum + whole.sum.log();
  const at::Tensor of_rows = (lse - whole.target).to(at::kDouble) + (lse * lse * loss.z_loss).to(at::kDouble);
  device.View(loss.sum, {1}, at::kDouble).add_(of_rows.masked_fill(ignored, 0).sum());
  if (loss.scale == nullptr) return;
  const at::Tensor scale = device.View(const_cast<float*>(loss.scale), {1}, at::kFloat);
  const at::Tensor factor = (own.maximum - lse).exp_().mul_(lse.mul(2 * loss.z_loss).add_(1).mul_(scale));
  values.mul_(factor.unsqueeze(1));
  const at::Tensor at_target = at::zeros_like(lse).sub_(scale).masked_fill_(elsewhere, 0).unsqueeze(1);
  values.scatter_add_(1, target, at_target);
  if (slopes.defined()) values.mul_(slopes);
  values.masked_fill_(ignored.unsqueeze(1), 0);
  if (!values.is_same(logits)) logits.copy_(values);
}

}  // namespace trainctl::nn
