#include "comm/group.h"

#include <algorithm>
#include <cstring>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "base/life_signs.h"
#include "base/status.h"
#include "device/aten.h"
#include "device/error_text.h"

namespace trainctl::comm {

Group::Group() = default;
Group::Group(const Group& other) = default;
Group::Group(Group&& other) noexcept = default;
Group& Group::operator=(const Group& other) = default;
Group& Group::operator=(Group&& other) noexcept = default;
Group::~Group() = default;

absl::Status Group::Close() {
  if (device_backend_ == nullptr) return absl::OkStatus();
  return Exchange("close", [&] { device_backend_->shutdown(); });
}

Fault Group::FaultOf(absl::string_view name) const {
  return *fault_hook_ ? (*fault_hook_)(absl::StrCat(name, "/", axis_)) : Fault::kNone;
}

LifeSigns::GroupCalls* Group::Calls() const {
  return tag_ < LifeSigns::kGroups ? &ProcessLifeSigns().groups[static_cast<size_t>(tag_)] : nullptr;
}

namespace {

// A call of a group, as others see it.
class CallSign {
 public:
  explicit CallSign(LifeSigns::GroupCalls* calls) : calls_(calls) {
    if (calls_ != nullptr) ++calls_->entered;
  }
  ~CallSign() {
    if (calls_ != nullptr) ++calls_->left;
    Beat();
  }
  CallSign(const CallSign&) = delete;
  CallSign& operator=(const CallSign&) = delete;

 private:
  LifeSigns::GroupCalls* const calls_;
};

// A wait for one peer's message.
class PeerSign {
 public:
  PeerSign(LifeSigns::GroupCalls* calls, int peer) : calls_(calls) {
    if (calls_ != nullptr) calls_->waits_for = 1 + peer;
  }
  ~PeerSign() {
    if (calls_ != nullptr) calls_->waits_for = 0;
  }
  PeerSign(const PeerSign&) = delete;
  PeerSign& operator=(const PeerSign&) = delete;

 private:
  const WaitingForOthers waiting_;
  LifeSigns::GroupCalls* const calls_;
};

}  // namespace

absl::Status Group::Exchange(absl::string_view name, const std::function<void()>& exchange) {
  const CallSign sign(Calls());
  try {
    exchange();
    return absl::OkStatus();
  } catch (const std::exception& error) {
    std::string reason = device::ErrorText(error);
    if (const size_t end = reason.find('\n'); end != std::string::npos) reason.resize(end);
    return WorkerError(absl::StrCat("collective ", name, " on axis ", axis_, " failed: ", reason));
  }
}

// ---- messages between hosts ---------------------------------------------------------------------

namespace {

std::vector<at::Tensor> Bytes(const void* data, int64_t bytes) {
  return {at::from_blob(const_cast<void*>(data), {bytes}, at::TensorOptions(at::kByte))};
}

}  // namespace

// Of nothing there is no message, on either side.
void Group::StartReceive(Pending& pending, void* buffer, int64_t bytes, int from) {
  if (bytes == 0) return;
  std::vector<at::Tensor> target = Bytes(buffer, bytes);
  const int peer = ranks_[static_cast<size_t>(from)];
  pending.push_back({backend_->recv(target, peer, tag_), peer});
}

void Group::StartSend(Pending& pending, const void* buffer, int64_t bytes, int to) {
  if (bytes == 0) return;
  std::vector<at::Tensor> source = Bytes(buffer, bytes);
  const int peer = ranks_[static_cast<size_t>(to)];
  pending.push_back({backend_->send(source, peer, tag_), peer});
}

void Group::Finish(Pending& pending) const {
  for (Message& message : pending) {
    const PeerSign sign(Calls(), message.peer);
    message.work->wait(absl::ToChronoMilliseconds(timeout_));
  }
}

absl::Status Group::SendOnHost(absl::string_view name, const void* buffer, int64_t bytes, int to) {
  return Exchange(name, [&] {
    Pending pending;
    StartSend(pending, buffer, bytes, to);
    Finish(pending);
  });
}

absl::Status Group::ReceiveOnHost(absl::string_view name, void* buffer, int64_t bytes, int from) {
  return Exchange(name, [&] {
    Pending pending;
    StartReceive(pending, buffer, bytes, from);
    Finish(pending);
  });
}

absl::Status Group::Send(absl::string_view name, const void* buffer, int64_t bytes, int to) {
  TRAINCTL_CHECK(to != index_);
  if (bytes == 0) return absl::OkStatus();
  return device_->is_cpu() ? SendOnHost(name, buffer, bytes, to) : SendOnDevice(name, buffer, bytes, to);
}

absl::Status Group::Receive(absl::string_view name, void* buffer, int64_t bytes, int from) {
  TRAINCTL_CHECK(from != index_);
  if (bytes == 0) return absl::OkStatus();
  TRAINCTL_RETURN_IF_ERROR(device_->is_cpu() ? ReceiveOnHost(name, buffer, bytes, from)
                                             : ReceiveOnDevice(name, buffer, bytes, from));
  if (*fault_hook_) SpoilMessage(name, buffer, bytes);
  return absl::OkStatus();
}

void Group::SpoilMessage(absl::string_view name, void* buffer, int64_t bytes) {
  const Fault fault = FaultOf(name);
  if (fault == Fault::kSkip) device_->Zero(buffer, bytes);
  if (!device_->is_cpu()) return;
  std::vector<char> own(static_cast<char*>(buffer), static_cast<char*>(buffer) + bytes);
  if (fault == Fault::kStale && last_message_.size() == own.size())
    std::memcpy(buffer, last_message_.data(), last_message_.size());
  if (fault != Fault::kSkip) last_message_ = std::move(own);
}

// ---- collectives without sums -------------------------------------------------------------------

absl::Status Group::AllGather(absl::string_view name, void* buffer, int64_t shard_bytes) {
  if (size() == 1 || shard_bytes == 0) return absl::OkStatus();
  TRAINCTL_RETURN_IF_ERROR(device_->is_cpu() ? GatherOnHost(name, buffer, shard_bytes)
                                             : GatherOnDevice(name, buffer, shard_bytes));
  if (FaultOf(name) != Fault::kSkip) return absl::OkStatus();
  for (int i = 0; i < size(); ++i) {
    if (i != index_) device_->Zero(static_cast<char*>(buffer) + i * shard_bytes, shard_bytes);
  }
  return absl::OkStatus();
}

absl::Status Group::GatherOnHost(absl::string_view name, void* buffer, int64_t shard_bytes) {
  char* bytes = static_cast<char*>(buffer);
  return Exchange(name, [&] {
    Pending pending;
    for (int i = 0; i < size(); ++i) {
      if (i != index_) StartReceive(pending, bytes + i * shard_bytes, shard_bytes, i);
    }
    // Each rank starts with its right neighbour, so that no receiver is everyone's first.
    for (int k = 1; k < size(); ++k)
      StartSend(pending, bytes + index_ * shard_bytes, shard_bytes, (index_ + k) % size());
    Finish(pending);
  });
}

// Bruck et al. 1997: in each round a rank knows the values of twice as many ranks that follow it, so that
// many ranks have all in log2(size) messages each. Few ranks send one to everyone at once: that is one round.
absl::Status Group::GatherScalars(absl::string_view name, double* values, int64_t count) {
  constexpr int kFewRanks = 16;
  const int64_t bytes = count * static_cast<int64_t>(sizeof(double));
  if (size() <= kFewRanks) return GatherOnHost(name, values, bytes);
  // Place k is of the k-th rank after this one.
  std::vector<double> known(static_cast<size_t>(count * size()));
  std::copy_n(values + index_ * count, count, known.data());
  TRAINCTL_RETURN_IF_ERROR(Exchange(name, [&] {
    for (int distance = 1; distance < size(); distance *= 2) {
      const int num_ranks = std::min(distance, size() - distance);
      Pending pending;
      StartReceive(pending, known.data() + distance * count, num_ranks * bytes, (index_ + distance) % size());
      StartSend(pending, known.data(), num_ranks * bytes, (index_ + size() - distance) % size());
      Finish(pending);
    }
  }));
  for (int k = 0; k < size(); ++k)
    std::copy_n(known.data() + k * count, count, values + (index_ + k) % size() * count);
  return absl::OkStatus();
}

absl::Status Group::Broadcast(absl::string_view name, void* buffer, int64_t bytes, int root) {
  if (size() == 1 || bytes == 0) return absl::OkStatus();
  if (!device_->is_cpu()) return BroadcastOnDevice(name, buffer, bytes, root);
  if (root != index_) return ReceiveOnHost(name, buffer, bytes, root);
  return Exchange(name, [&] {
    Pending pending;
    for (int k = 1; k < size(); ++k) StartSend(pending, buffer, bytes, (index_ + k) % size());
    Finish(pending);
  });
}

absl::Status Group::AllToAll(absl::string_view name, const void* in, absl::Span<const int64_t> in_bytes,
                             void* out, absl::Span<const int64_t> out_bytes) {
  const auto own = static_cast<size_t>(index_);
  TRAINCTL_CHECK(static_cast<int>(in_bytes.size()) == size() && static_cast<int>(out_bytes.size()) == size());
  TRAINCTL_CHECK(in_bytes[own] == out_bytes[own]);
  if (!device_->is_cpu()) return AllToAllOnDevice(name, in, in_bytes, out, out_bytes);
  std::vector<const char*> sources;
  const char* source = static_cast<const char*>(in);
  for (const int64_t bytes : in_bytes) {
    sources.push_back(source);
    source += bytes;
  }
  return Exchange(name, [&] {
    Pending pending;
    char* target = static_cast<char*>(out);
    for (size_t i = 0; i < out_bytes.size(); ++i) {
      if (i != own) StartReceive(pending, target, out_bytes[i], static_cast<int>(i));
      if (i == own && out_bytes[i] > 0)
        std::memcpy(target, sources[own], static_cast<size_t>(out_bytes[own]));
      target += out_bytes[i];
    }
    for (int k = 1; k < size(); ++k) {
      const int to = (index_ + k) % size();
      StartSend(pending, sources[static_cast<size_t>(to)], in_bytes[static_cast<size_t>(to)], to);
    }
    Finish(pending);
  });
}

// ---- sums and maxima ----------------------------------------------------------------------------

// Rank i of the group ends with out = all ranks' chunks[i] combined, a piece at a time: send the piece of
// each peer's chunk, receive each peer's piece of ours, combine in rank order. `out` may be the place of our
// chunk in `in`.
absl::Status Group::CombineChunks(absl::string_view name, const void* in, void* out,
                                  const std::vector<Chunk>& chunks, bool accumulate,
                                  absl::Span<uint8_t> scratch, Reduction how) {
  const int64_t element = DTypeBytes(how.dtype);
  const char* whole = static_cast<const char*>(in);
  const auto [own_first, own_count] = chunks[static_cast<size_t>(index_)];
  const Fault fault = FaultOf(name);
  int64_t longest = 0;
  for (const auto& [first, count] : chunks) longest = std::max(longest, count);
  const int64_t room = static_cast<int64_t>(scratch.size()) / element / (size() - 1);
  const int64_t piece = std::min(longest, room);
  TRAINCTL_CHECK(longest == 0 || piece > 0);
  for (int64_t begin = 0; begin < longest; begin += piece) {
    const int64_t own_piece = std::clamp<int64_t>(own_count - begin, 0, piece);
    TRAINCTL_RETURN_IF_ERROR(Exchange(name, [&] {
      Pending pending;
      for (int i = 0, slot = 0; i < size(); ++i) {
        if (i != index_)
          StartReceive(pending, scratch.data() + slot++ * piece * element, own_piece * element, i);
      }
      for (int k = 1; k < size(); ++k) {
        const int to = (index_ + k) % size();
        const auto [first, count] = chunks[static_cast<size_t>(to)];
        const int64_t their_piece = std::clamp<int64_t>(count - begin, 0, piece);
        StartSend(pending, whole + (first + begin) * element, their_piece * element, to);
      }
      Finish(pending);
    }));
    const void* own = whole + (own_first + begin) * element;
    std::vector<const void*> inputs;
    for (int i = 0, slot = 0; i < size(); ++i)
      inputs.push_back(i == index_ ? own : scratch.data() + slot++ * piece * element);
    if (fault == Fault::kSkip) inputs = {own};
    void* const place = static_cast<char*>(out) + begin * element;
    void* const target = accumulate ? scratch.data() : place;
    CombineInOrder(how, target, inputs, own_piece);
    if (fault == Fault::kDouble) CombineInOrder(how, target, {target, target}, own_piece);
    if (accumulate) CombineInOrder(how, place, {place, target}, own_piece);
  }
  return absl::OkStatus();
}

absl::Status Group::ReduceScatter(absl::string_view name, const void* in, void* out, int64_t shard_numel,
                                  bool accumulate, absl::Span<uint8_t> scratch, Reduction how) {
  if (!device_->is_cpu()) return ReduceScatterOnDevice(name, in, out, shard_numel, accumulate, scratch, how);
  if (size() == 1) {
    if (accumulate) {
      CombineInOrder(how, out, {out, in}, shard_numel);
    } else if (out != in) {
      device_->Copy(out, in, shard_numel * DTypeBytes(how.dtype));
    }
    return absl::OkStatus();
  }
  std::vector<Chunk> chunks;
  for (int i = 0; i < size(); ++i) chunks.emplace_back(i * shard_numel, shard_numel);
  return CombineChunks(name, in, out, chunks, accumulate, scratch, how);
}

absl::Status Group::AllReduce(absl::string_view name, void* buffer, int64_t numel,
                              absl::Span<uint8_t> scratch, Reduction how) {
  if (size() == 1) return absl::OkStatus();
  if (!device_->is_cpu()) return AllReduceOnDevice(name, buffer, numel, how);
  const int64_t element = DTypeBytes(how.dtype);
  const int64_t chunk = (numel + size() - 1) / size();
  std::vector<Chunk> chunks;
  for (int i = 0; i < size(); ++i) {
    const int64_t first = std::min<int64_t>(i * chunk, numel);
    chunks.emplace_back(first, std::min(chunk, numel - first));
  }
  const auto place = [&](int i) {
    return static_cast<char*>(buffer) + chunks[static_cast<size_t>(i)].first * element;
  };
  TRAINCTL_RETURN_IF_ERROR(CombineChunks(name, buffer, place(index_), chunks, false, scratch, how));
  // Hand the results round; chunks may be uneven, so each is sent as it is.
  return Exchange(name, [&] {
    Pending pending;
    for (int i = 0; i < size(); ++i) {
      if (i != index_) StartReceive(pending, place(i), chunks[static_cast<size_t>(i)].second * element, i);
    }
    for (int k = 1; k < size(); ++k) {
      StartSend(pending, place(index_), chunks[static_cast<size_t>(index_)].second * element,
                (index_ + k) % size());
    }
    Finish(pending);
  });
}

absl::Status Group::AllReduceScalars(absl::string_view name, absl::Span<double> values, Combine combine) {
  if (size() == 1) return absl::OkStatus();
  const size_t count = values.size();
  std::vector<double> all(count * static_cast<size_t>(size()));
  const auto of = [&](int rank) { return all.data() + count * static_cast<size_t>(rank); };
  std::copy(values.begin(), values.end(), of(index_));
  TRAINCTL_RETURN_IF_ERROR(GatherScalars(name, all.data(), static_cast<int64_t>(count)));
  const Fault fault = FaultOf(name);
  if (fault == Fault::kSkip) return absl::OkStatus();
  std::vector<const void*> inputs;
  for (int i = 0; i < size(); ++i) inputs.push_back(of(i));
  CombineInOrder({DType::kF64, combine}, values.data(), inputs, static_cast<int64_t>(count));
  for (double& value : values) value *= fault == Fault::kDouble ? 2 : 1;
  return absl::OkStatus();
}

}  // namespace trainctl::comm
