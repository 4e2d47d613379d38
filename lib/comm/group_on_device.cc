// What a group does between devices: calls of the device's library, queued on the calling thread's stream.

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "base/status.h"
#include "comm/group.h"
#include "device/aten.h"
#include "kernels/kernels.h"

namespace trainctl::comm {
namespace {

at::ScalarType ScalarTypeOf(DType dtype) {
  return dtype == DType::kF64 ? at::kDouble : dtype == DType::kBF16 ? at::kBFloat16 : at::kFloat;
}

c10d::ReduceOp OpOf(Combine combine) {
  return combine == Combine::kSum ? c10d::ReduceOp::SUM : c10d::ReduceOp::MAX;
}

void CombineInto(Combine combine, at::Tensor to, const at::Tensor& from) {
  if (combine == Combine::kSum) {
    to.add_(from);
  } else {
    at::maximum_out(to, to, from);
  }
}

}  // namespace

absl::Status Group::SendOnDevice(absl::string_view name, const void* buffer, int64_t bytes, int to) {
  return Exchange(name, [&] {
    std::vector<at::Tensor> source = {device_->View(const_cast<void*>(buffer), {bytes}, at::kByte)};
    device_backend_->send(source, to, tag_)->wait();
  });
}

absl::Status Group::ReceiveOnDevice(absl::string_view name, void* buffer, int64_t bytes, int from) {
  return Exchange(name, [&] {
    std::vector<at::Tensor> target = {device_->View(buffer, {bytes}, at::kByte)};
    device_backend_->recv(target, from, tag_)->wait();
  });
}

absl::Status Group::ConnectMessages() {
  TRAINCTL_CHECK(size() == 2);
  if (device_->is_cpu()) return absl::OkStatus();
  at::Tensor byte;
  TRAINCTL_RETURN_IF_ERROR(Exchange("connect", [&] { byte = at::zeros({1}, device_->Options(at::kByte)); }));
  TRAINCTL_RETURN_IF_ERROR(index_ == 0 ? SendOnDevice("connect", byte.data_ptr(), 1, /*to=*/1)
                                       : ReceiveOnDevice("connect", byte.data_ptr(), 1, /*from=*/0));
  return device_->Synchronize();
}

absl::Status Group::GatherOnDevice(absl::string_view name, void* buffer, int64_t shard_bytes) {
  return Exchange(name, [&] {
    at::Tensor whole = device_->View(buffer, {size() * shard_bytes}, at::kByte);
    at::Tensor own = whole.narrow(0, index_ * shard_bytes, shard_bytes);  // in place
    device_backend_->_allgather_base(whole, own)->wait();
  });
}

absl::Status Group::BroadcastOnDevice(absl::string_view name, void* buffer, int64_t bytes, int root) {
  return Exchange(name, [&] {
    std::vector<at::Tensor> tensors = {device_->View(buffer, {bytes}, at::kByte)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    device_backend_->broadcast(tensors, options)->wait();
  });
}

absl::Status Group::AllToAllOnDevice(absl::string_view name, const void* in,
                                     absl::Span<const int64_t> in_bytes, void* out,
                                     absl::Span<const int64_t> out_bytes) {
  std::vector<int64_t> in_splits(in_bytes.begin(), in_bytes.end());
  std::vector<int64_t> out_splits(out_bytes.begin(), out_bytes.end());
  const auto total = [](const std::vector<int64_t>& splits) {
    int64_t sum = 0;
    for (const int64_t bytes : splits) sum += bytes;
    return sum;
  };
  if (size() == 1) {
    device_->Copy(out, in, in_splits[0]);
    return absl::OkStatus();
  }
  return Exchange(name, [&] {
    at::Tensor source = device_->View(const_cast<void*>(in), {total(in_splits)}, at::kByte);
    at::Tensor target = device_->View(out, {total(out_splits)}, at::kByte);
    device_backend_->alltoall_base(target, source, out_splits, in_splits)->wait();
  });
}

absl::Status Group::ReduceScatterOnDevice(absl::string_view name, const void* in, void* out,
                                          int64_t shard_numel, bool accumulate, absl::Span<uint8_t> scratch,
                                          Reduction how) {
  const int64_t shard_bytes = shard_numel * DTypeBytes(how.dtype);
  const auto view = [&](const void* data, int64_t numel) {
    return device_->View(const_cast<void*>(data), {numel}, ScalarTypeOf(how.dtype));
  };
  const auto add = [&](const void* summand) {
    if (how.dtype == DType::kF32 && how.combine == Combine::kSum) {
      device_->kernels().f32.add(out, summand, shard_numel);
    } else {
      CombineInto(how.combine, view(out, shard_numel), view(summand, shard_numel));
    }
  };
  if (size() == 1) {
    if (accumulate) {
      add(in);
    } else if (out != in) {
      device_->Copy(out, in, shard_bytes);
    }
    return absl::OkStatus();
  }
  return Exchange(name, [&] {
    const Fault fault = FaultOf(name);
    void* const sums = accumulate ? scratch.data() : out;
    TRAINCTL_CHECK(!accumulate || static_cast<int64_t>(scratch.size()) >= shard_bytes);
    at::Tensor source = view(in, size() * shard_numel);
    // Taken before the sums may be written over it.
    const at::Tensor own =
        fault == Fault::kSkip ? source.narrow(0, index_ * shard_numel, shard_numel).clone() : at::Tensor();
    at::Tensor target = view(sums, shard_numel);
    c10d::ReduceScatterOptions options;
    options.reduceOp = OpOf(how.combine);
    device_backend_->_reduce_scatter_base(target, source, options)->wait();
    if (fault == Fault::kSkip) target.copy_(own);
    if (fault == Fault::kDouble) target.mul_(2);
    if (accumulate) add(sums);
  });
}

absl::Status Group::AllReduceOnDevice(absl::string_view name, void* buffer, int64_t numel, Reduction how) {
  return Exchange(name, [&] {
    const Fault fault = FaultOf(name);
    if (fault == Fault::kSkip) return;
    std::vector<at::Tensor> tensors = {device_->View(buffer, {numel}, ScalarTypeOf(how.dtype))};
    c10d::AllreduceOptions options;
    options.reduceOp = OpOf(how.combine);
    device_backend_->allreduce(tensors, options)->wait();
    if (fault == Fault::kDouble) tensors[0].mul_(2);
  });
}

}  // namespace trainctl::comm
