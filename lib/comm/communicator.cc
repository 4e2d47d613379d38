#include "comm/communicator.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "base/status.h"
#include "comm/device_backend.h"
#include "comm/gloo_backend.h"
#include "device/error_text.h"
#include "kernels/kernels.h"

namespace trainctl::comm {
namespace {

at::Tensor Bytes(const void* data, int64_t bytes) {
  return at::from_blob(const_cast<void*>(data), {bytes}, at::TensorOptions(at::kByte));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Create(const device::Device& device,
                                                                   c10::intrusive_ptr<c10d::Store> store,
                                                                   int rank, int world_size,
                                                                   absl::Duration timeout) {
  auto communicator = std::make_unique<Communicator>();
  communicator->device_ = &device;
  communicator->store_ = store;
  communicator->rank_ = rank;
  communicator->world_size_ = world_size;
  communicator->timeout_ = timeout;
  if (world_size == 1) return communicator;
  try {
    communicator->backend_ = MakeGlooBackend(std::move(store), rank, world_size, timeout);
  } catch (const std::exception& error) {
    return WorkerError(absl::StrCat("rank ", rank, " cannot connect to its ", world_size - 1,
                                    " peers: ", device::ErrorText(error)));
  }
  return communicator;
}

Group Communicator::MakeHostGroup(std::vector<int> ranks, std::string axis) {
  Group group;
  group.device_ = &device::Device::Cpu();
  group.backend_ = backend_;
  group.index_ = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin());
  TRAINCTL_CHECK(group.index_ < static_cast<int>(ranks.size()));
  group.ranks_ = std::move(ranks);
  group.axis_ = std::move(axis);
  group.tag_ = next_tag_++;
  group.timeout_ = timeout_;
  group.fault_hook_ = fault_hook_;
  return group;
}

absl::StatusOr<Group> Communicator::MakeGroup(std::vector<int> ranks, std::string axis) {
  Group group = MakeHostGroup(std::move(ranks), std::move(axis));
  group.device_ = device_;
  if (device_->is_cpu() || group.size() == 1) return group;
  // Groups of one axis differ by their first rank, and a rank's groups by their tag.
  const std::string prefix = absl::StrCat("device/", group.tag_, "/", group.ranks_.front());
  TRAINCTL_ASSIGN_OR_RETURN(
      group.device_backend_,
      MakeDeviceBackend(*device_, c10::make_intrusive<c10d::PrefixStore>(prefix, store_), group.index_,
                        group.size(), timeout_));
  return group;
}

absl::Status Group::Close() {
  if (device_backend_ == nullptr) return absl::OkStatus();
  return Exchange("close", [&] { device_backend_->shutdown(); });
}

Fault Group::FaultOf(absl::string_view name) const {
  return *fault_hook_ ? (*fault_hook_)(absl::StrCat(name, "/", axis_)) : Fault::kNone;
}

absl::Status Group::Exchange(absl::string_view name, const std::function<void()>& exchange) {
  try {
    exchange();
    return absl::OkStatus();
  } catch (const std::exception& error) {
    std::string reason = device::ErrorText(error);
    if (const size_t end = reason.find('\n'); end != std::string::npos) reason.resize(end);
    return WorkerError(absl::StrCat("collective ", name, " on axis ", axis_, " failed: ", reason));
  }
}

absl::Status Group::AllGather(absl::string_view name, void* buffer, int64_t shard_bytes) {
  if (size() == 1 || shard_bytes == 0) return absl::OkStatus();
  if (device_->is_cpu()) return GatherOnHost(name, buffer, shard_bytes);
  return Exchange(name, [&] {
    at::Tensor whole = device_->View(buffer, {size() * shard_bytes}, at::kByte);
    at::Tensor own = whole.narrow(0, index_ * shard_bytes, shard_bytes);  // in place
    device_backend_->_allgather_base(whole, own)->wait();
  });
}

absl::Status Group::GatherOnHost(absl::string_view name, void* buffer, int64_t shard_bytes) {
  char* bytes = static_cast<char*>(buffer);
  return Exchange(name, [&] {
    std::vector<c10::intrusive_ptr<c10d::Work>> work;
    for (int i = 0; i < size(); ++i) {
      if (i == index_) continue;
      std::vector<at::Tensor> target = {Bytes(bytes + i * shard_bytes, shard_bytes)};
      work.push_back(backend_->recv(target, ranks_[static_cast<size_t>(i)], tag_));
    }
    // Each rank starts with its right neighbour, so that no receiver is everyone's first.
    for (int k = 1; k < size(); ++k) {
      const int i = (index_ + k) % size();
      std::vector<at::Tensor> source = {Bytes(bytes + index_ * shard_bytes, shard_bytes)};
      work.push_back(backend_->send(source, ranks_[static_cast<size_t>(i)], tag_));
    }
    for (auto& w : work) w->wait(absl::ToChronoMilliseconds(timeout_));
  });
}

// Rank i of the group ends with out = sum of everyone's chunks[i], a piece at a time: send the piece
// of each peer's chunk, receive each peer's piece of ours, add in rank order. `out` may be the
// place of our chunk in `in`.
absl::Status Group::SumChunks(absl::string_view name, const float* in, float* out,
                              const std::vector<Chunk>& chunks, bool accumulate, absl::Span<float> scratch) {
  const auto [own_first, own_count] = chunks[static_cast<size_t>(index_)];
  const Fault fault = FaultOf(name);
  int64_t longest = 0;
  for (const auto& [first, count] : chunks) longest = std::max(longest, count);
  const int64_t piece = std::min<int64_t>(longest, static_cast<int64_t>(scratch.size()) / (size() - 1));
  const kernels::Kernels& cpu = kernels::Cpu();
  TRAINCTL_CHECK(longest == 0 || piece > 0);
  for (int64_t begin = 0; begin < longest; begin += piece) {
    const int64_t own_piece = std::clamp<int64_t>(own_count - begin, 0, piece);
    TRAINCTL_RETURN_IF_ERROR(Exchange(name, [&] {
      std::vector<c10::intrusive_ptr<c10d::Work>> work;
      for (int i = 0, slot = 0; i < size(); ++i) {
        if (i == index_) continue;
        if (own_piece > 0) {
          std::vector<at::Tensor> target = {Bytes(scratch.data() + slot * piece, own_piece * 4)};
          work.push_back(backend_->recv(target, ranks_[static_cast<size_t>(i)], tag_));
        }
        ++slot;
      }
      for (int k = 1; k < size(); ++k) {
        const int i = (index_ + k) % size();
        const auto [first, count] = chunks[static_cast<size_t>(i)];
        const int64_t their_piece = std::clamp<int64_t>(count - begin, 0, piece);
        if (their_piece == 0) continue;
        std::vector<at::Tensor> source = {Bytes(in + first + begin, their_piece * 4)};
        work.push_back(backend_->send(source, ranks_[static_cast<size_t>(i)], tag_));
      }
      for (auto& w : work) w->wait(absl::ToChronoMilliseconds(timeout_));
    }));
    const float* own = in + own_first + begin;
    std::vector<const float*> inputs;
    for (int i = 0, slot = 0; i < size(); ++i)
      inputs.push_back(i == index_ ? own : scratch.data() + piece * slot++);
    const std::vector<const float*> own_only = {own};
    const std::vector<const float*>& summands = fault == Fault::kSkip ? own_only : inputs;
    float* target = accumulate ? scratch.data() : out + begin;
    cpu.sum_in_order(target, summands.data(), static_cast<int>(summands.size()), own_piece);
    if (fault == Fault::kDouble) cpu.f32.add(target, target, own_piece);
    if (accumulate) cpu.f32.add(out + begin, target, own_piece);
  }
  return absl::OkStatus();
}

absl::Status Group::ReduceScatter(absl::string_view name, const float* in, float* out, int64_t shard_numel,
                                  bool accumulate, absl::Span<float> scratch) {
  if (size() == 1) {
    if (accumulate) {
      device_->kernels().f32.add(out, in, shard_numel);
    } else if (out != in) {
      device_->Copy(out, in, shard_numel * static_cast<int64_t>(sizeof(float)));
    }
    return absl::OkStatus();
  }
  if (!device_->is_cpu()) return ReduceScatterOnDevice(name, in, out, shard_numel, accumulate, scratch);
  std::vector<Chunk> chunks;
  for (int i = 0; i < size(); ++i) chunks.emplace_back(i * shard_numel, shard_numel);
  return SumChunks(name, in, out, chunks, accumulate, scratch);
}

absl::Status Group::ReduceScatterOnDevice(absl::string_view name, const float* in, float* out,
                                          int64_t shard_numel, bool accumulate, absl::Span<float> scratch) {
  return Exchange(name, [&] {
    const Fault fault = FaultOf(name);
    float* sums = accumulate ? scratch.data() : out;
    TRAINCTL_CHECK(!accumulate || static_cast<int64_t>(scratch.size()) >= shard_numel);
    const at::Tensor whole = device_->View(const_cast<float*>(in), {size() * shard_numel}, at::kFloat);
    // Taken before the sums may be written over it.
    const at::Tensor own =
        fault == Fault::kSkip ? whole.narrow(0, index_ * shard_numel, shard_numel).clone() : at::Tensor();
    at::Tensor target = device_->View(sums, {shard_numel}, at::kFloat);
    at::Tensor source = whole;
    device_backend_->_reduce_scatter_base(target, source)->wait();
    if (fault == Fault::kSkip) target.copy_(own);
    if (fault == Fault::kDouble) target.mul_(2);
    if (accumulate) device_->kernels().f32.add(out, sums, shard_numel);
  });
}

absl::Status Group::AllReduce(absl::string_view name, float* buffer, int64_t numel,
                              absl::Span<float> scratch) {
  if (size() == 1) return absl::OkStatus();
  if (!device_->is_cpu()) {
    return Exchange(name, [&] {
      const Fault fault = FaultOf(name);
      if (fault == Fault::kSkip) return;
      std::vector<at::Tensor> tensors = {device_->View(buffer, {numel}, at::kFloat)};
      device_backend_->allreduce(tensors)->wait();
      if (fault == Fault::kDouble) tensors[0].mul_(2);
    });
  }
  const int64_t chunk = (numel + size() - 1) / size();
  std::vector<Chunk> chunks;
  for (int i = 0; i < size(); ++i) {
    const int64_t first = std::min<int64_t>(i * chunk, numel);
    chunks.emplace_back(first, std::min(chunk, numel - first));
  }
  float* own = buffer + chunks[static_cast<size_t>(index_)].first;
  TRAINCTL_RETURN_IF_ERROR(SumChunks(name, buffer, own, chunks, false, scratch));
  // Hand the sums round; chunks may be uneven, so each is sent as it is.
  return Exchange(name, [&] {
    std::vector<c10::intrusive_ptr<c10d::Work>> work;
    for (int i = 0; i < size(); ++i) {
      const auto [first, count] = chunks[static_cast<size_t>(i)];
      if (i == index_ || count == 0) continue;
      std::vector<at::Tensor> target = {Bytes(buffer + first, count * 4)};
      work.push_back(backend_->recv(target, ranks_[static_cast<size_t>(i)], tag_));
    }
    const auto [first, count] = chunks[static_cast<size_t>(index_)];
    for (int k = 1; k < size() && count > 0; ++k) {
      std::vector<at::Tensor> source = {Bytes(buffer + first, count * 4)};
      work.push_back(backend_->send(source, ranks_[static_cast<size_t>((index_ + k) % size())], tag_));
    }
    for (auto& w : work) w->wait(absl::ToChronoMilliseconds(timeout_));
  });
}

absl::Status Group::AllReduceScalars(absl::string_view name, absl::Span<double> values) {
  if (size() == 1) return absl::OkStatus();
  const size_t count = values.size();
  std::vector<double> all(count * static_cast<size_t>(size()));
  std::copy(values.begin(), values.end(),
            all.begin() + static_cast<ptrdiff_t>(count * static_cast<size_t>(index_)));
  TRAINCTL_RETURN_IF_ERROR(GatherOnHost(name, all.data(), static_cast<int64_t>(count * sizeof(double))));
  const Fault fault = FaultOf(name);
  for (size_t v = 0; v < count; ++v) {
    double sum = 0;
    for (size_t i = 0; i < static_cast<size_t>(size()); ++i) sum += all[i * count + v];
    if (fault == Fault::kSkip) sum = values[v];
    if (fault == Fault::kDouble) sum *= 2;
    values[v] = sum;
  }
  return absl::OkStatus();
}

}  // namespace trainctl::comm
