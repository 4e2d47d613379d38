#include "nn/tensor_group.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "device/aten.h"
#include "model/operators.h"
#include "nn/operator_failed.h"

namespace trainctl::nn {
namespace {

void ThrowUnlessOk(const absl::Status& status) {
  if (!status.ok()) throw OperatorFailed(status);
}

DType TypeOf(const at::Tensor& tensor) {
  const at::ScalarType dtype = tensor.scalar_type();
  return dtype == at::kDouble ? DType::kF64 : dtype == at::kBFloat16 ? DType::kBF16 : DType::kF32;
}

// What a sum of `tensor` receives into.
at::Tensor ScratchFor(const at::Tensor& tensor, int ranks) {
  const int64_t bytes =
      model::SumScratchBytes(tensor.numel(), static_cast<int64_t>(tensor.itemsize()), ranks);
  return at::empty({bytes}, tensor.options().dtype(at::kByte));
}

absl::Span<uint8_t> BytesOf(const at::Tensor& scratch) {
  return {scratch.data_ptr<uint8_t>(), static_cast<size_t>(scratch.numel())};
}

}  // namespace

std::string TensorGroup::NameOf(absl::string_view what) const { return absl::StrCat(place_, "/", what); }

void TensorGroup::GatherRows(absl::string_view what, const at::Tensor& part, at::Tensor& whole) {
  TRAINCTL_CHECK(part.is_contiguous() && whole.is_contiguous() && whole.size(0) == part.size(0) * size());
  whole.narrow(0, index() * part.size(0), part.size(0)).copy_(part);
  ThrowUnlessOk(group_.AllGather(NameOf(what), whole.data_ptr(), static_cast<int64_t>(part.nbytes())));
}

void TensorGroup::ScatterSums(absl::string_view what, const at::Tensor& parts, at::Tensor& sums) {
  TRAINCTL_CHECK(parts.is_contiguous() && sums.is_contiguous() && parts.size(0) == sums.size(0) * size());
  const at::Tensor scratch = ScratchFor(parts, size());
  ThrowUnlessOk(group_.ReduceScatter(NameOf(what), parts.data_ptr(), sums.data_ptr(), sums.numel(),
                                     /*accumulate=*/false, BytesOf(scratch), {.dtype = TypeOf(parts)}));
}

void TensorGroup::Sum(absl::string_view what, at::Tensor& parts) {
  TRAINCTL_CHECK(parts.is_contiguous());
  const at::Tensor scratch = ScratchFor(parts, size());
  ThrowUnlessOk(group_.AllReduce(NameOf(what), parts.data_ptr(), parts.numel(), BytesOf(scratch),
                                 {.dtype = TypeOf(parts)}));
}

}  // namespace trainctl::nn
