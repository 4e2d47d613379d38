// A group of ranks and its collectives and messages. Between CPUs over point-to-point messages: sums in the
// order of the ranks, so that a result is the same on every rank and in every run, and no temporary but the
// one lent. Between devices by the device's own library (NCCL), queued on the calling thread's stream.
// Scalars go between the hosts in both cases. A collective must be called by all ranks of the group, in the
// same order, within the timeout. On the CPU calls block; overlap comes from calling them on a stream of
// their own. Errors are WorkerError and name the collective, the axis and the peer. A group may be used by
// one thread at a time; different groups by different threads at once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/life_signs.h"
#include "comm/combine.h"
#include "device/device.h"

namespace trainctl::comm {

// For tests that prove that a missing or doubled reduction is noticed, or a message that never came or was
// taken for another: of one that is skipped zeros are handed over; instead of one that is stale the message
// before it.
enum class Fault { kNone, kSkip, kDouble, kStale };
using FaultHook = std::function<Fault(absl::string_view collective)>;

class Group {
 public:
  int size() const { return static_cast<int>(ranks_.size()); }
  int index() const { return index_; }  // of this rank within the group
  const std::string& axis() const { return axis_; }

  // Buffers are memory of the communicator's device.

  // `buffer` holds size() shards of shard_bytes; shard index() is filled, the others are received.
  absl::Status AllGather(absl::string_view name, void* buffer, int64_t shard_bytes);

  // What `buffer` holds on rank `root` of the group, everywhere.
  absl::Status Broadcast(absl::string_view name, void* buffer, int64_t bytes, int root);

  // `in` is a piece for each rank of the group, in_bytes[i] for rank i, without gaps; `out` takes one from
  // each, out_bytes[i] from rank i: what that rank's in_bytes say of this one.
  absl::Status AllToAll(absl::string_view name, const void* in, absl::Span<const int64_t> in_bytes, void* out,
                        absl::Span<const int64_t> out_bytes);

  // One message between two ranks of the group, `to` and `from` in it; no others take part. Messages from one
  // rank to another arrive in the order in which they were sent. Between hosts a send may last until the
  // receive has begun.
  absl::Status Send(absl::string_view name, const void* buffer, int64_t bytes, int to);
  absl::Status Receive(absl::string_view name, void* buffer, int64_t bytes, int from);

  // out = the sum, or the maximum, over ranks of their shard index(); with `accumulate` combined with what
  // `out` holds. `in` [size() * shard_numel] is left alone. `scratch` takes one piece from each peer at a
  // time, so its size (the same on every rank) decides how many messages there are, not the result; never
  // empty. Between devices it is used when `accumulate` is set, and sums of bf16 are rounded as often as the
  // library likes.
  absl::Status ReduceScatter(absl::string_view name, const void* in, void* out, int64_t shard_numel,
                             bool accumulate, absl::Span<uint8_t> scratch, Reduction how = {});

  // In place. `scratch` as above.
  absl::Status AllReduce(absl::string_view name, void* buffer, int64_t numel, absl::Span<uint8_t> scratch,
                         Reduction how = {});

  // Of two ranks, collective: what the first message from rank 0 to 1 would else wait for, on devices with
  // the host.
  absl::Status ConnectMessages();

  // Few scalars of the host, combined in rank order in fp64. Many ranks send log2(size()) messages each.
  absl::Status AllReduceScalars(absl::string_view name, absl::Span<double> values,
                                Combine combine = Combine::kSum);

  // The end of a run that went well: lets the devices finish and disconnects them; there is no call after it.
  // A group that goes without it is cut off, as is right after a failure.
  absl::Status Close();

 private:
  friend class Communicator;
  using Chunk = std::pair<int64_t, int64_t>;  // first element, elements

  // Messages under way between hosts.
  struct Message {
    c10::intrusive_ptr<c10d::Work> work;
    int peer = 0;  // its rank
  };
  using Pending = std::vector<Message>;

  absl::Status Exchange(absl::string_view name, const std::function<void()>& exchange);
  void StartReceive(Pending& pending, void* buffer, int64_t bytes, int from);
  void StartSend(Pending& pending, const void* buffer, int64_t bytes, int to);
  void Finish(Pending& pending) const;
  LifeSigns::GroupCalls* Calls() const;  // of this process's signs of life; null: beyond what they hold
  absl::Status SendOnHost(absl::string_view name, const void* buffer, int64_t bytes, int to);
  absl::Status ReceiveOnHost(absl::string_view name, void* buffer, int64_t bytes, int from);
  absl::Status GatherOnHost(absl::string_view name, void* buffer, int64_t shard_bytes);
  absl::Status GatherScalars(absl::string_view name, double* values, int64_t count);
  absl::Status CombineChunks(absl::string_view name, const void* in, void* out,
                             const std::vector<Chunk>& chunks, bool accumulate, absl::Span<uint8_t> scratch,
                             Reduction how);
  absl::Status SendOnDevice(absl::string_view name, const void* buffer, int64_t bytes, int to);
  absl::Status ReceiveOnDevice(absl::string_view name, void* buffer, int64_t bytes, int from);
  absl::Status GatherOnDevice(absl::string_view name, void* buffer, int64_t shard_bytes);
  absl::Status BroadcastOnDevice(absl::string_view name, void* buffer, int64_t bytes, int root);
  absl::Status AllToAllOnDevice(absl::string_view name, const void* in, absl::Span<const int64_t> in_bytes,
                                void* out, absl::Span<const int64_t> out_bytes);
  absl::Status ReduceScatterOnDevice(absl::string_view name, const void* in, void* out, int64_t shard_numel,
                                     bool accumulate, absl::Span<uint8_t> scratch, Reduction how);
  absl::Status AllReduceOnDevice(absl::string_view name, void* buffer, int64_t numel, Reduction how);
  Fault FaultOf(absl::string_view name) const;
  void SpoilMessage(absl::string_view name, void* buffer, int64_t bytes);

  const device::Device* device_ = nullptr;
  c10::intrusive_ptr<c10d::Backend> backend_;  // of the world, between hosts
  // Of this group alone; null on the CPU and for a group of one.
  c10::intrusive_ptr<c10d::Backend> device_backend_;
  std::vector<int> ranks_;
  int index_ = 0;
  int tag_ = 0;
  std::string axis_;
  absl::Duration timeout_;
  std::shared_ptr<FaultHook> fault_hook_;
  std::vector<char> last_message_;  // with a fault hook, between hosts
};

}  // namespace trainctl::comm
