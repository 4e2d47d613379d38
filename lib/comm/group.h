// A group of ranks, with the collectives and the point-to-point messages between them. Communicator makes
// groups.
//
//   TRAINCTL_RETURN_IF_ERROR(group.AllGather("weights", buffer, shard_bytes));
//   TRAINCTL_RETURN_IF_ERROR(
//       group.ReduceScatter("gradients", in, out, shard_numel, /*accumulate=*/true, scratch));
//
// All ranks of the group must call each collective, in the same order and within the timeout. The `name` of a
// call appears in error messages.
//
// On the CPU, collectives are built from point-to-point messages (Gloo) and block. To overlap them with
// computation, call them on another thread. Values are combined in rank order, so that the result has the
// same bits on every rank and in every run. The only temporary memory for tensors is the caller's `scratch`.
//
// On a plugin's device, collectives are calls of the device's library (NCCL) that are queued on the calling
// thread's stream. Scalars are exchanged between the hosts in both cases.
//
// Errors are WorkerErrors that name the collective and the axis and give the library's reason. Each group may
// be used by only one thread at a time. Different groups may be used by different threads at the same time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/life_signs.h"
#include "comm/c10d.h"
#include "comm/combine.h"
#include "device/device.h"

namespace trainctl::comm {

// An error to simulate, for tests which prove that a wrong result is detected. Faults that a call does not
// support have no effect. kSkip leaves out the exchange: each element of a reduction has the value of only
// one rank, and the peers' data in an all-gather or a Receive are zeros. kDouble doubles a sum. kStale
// repeats the group's previous message of the same size in a Receive between hosts.
enum class Fault { kNone, kSkip, kDouble, kStale };
// Returns the fault for a call. `collective` is "<name>/<axis>", such as "loss/tp".
using FaultHook = std::function<Fault(absl::string_view collective)>;

class Group {
 public:
  Group();
  Group(const Group& other);
  Group(Group&& other) noexcept;
  Group& operator=(const Group& other);
  Group& operator=(Group&& other) noexcept;
  ~Group();

  int size() const { return static_cast<int>(ranks_.size()); }
  int index() const { return index_; }  // index of this rank within the group
  const std::string& axis() const { return axis_; }

  // Buffers are in the memory of the communicator's device, or in host memory for a group from MakeHostGroup.
  // Roots and peers are indices within the group.

  // Gathers the shards of all ranks. `buffer` has room for size() shards of `shard_bytes` bytes. The caller
  // has filled shard index(); the call fills the others.
  absl::Status AllGather(absl::string_view name, void* buffer, int64_t shard_bytes);

  // Copies `bytes` bytes of `buffer` from rank `root` to the `buffer` of all other ranks.
  absl::Status Broadcast(absl::string_view name, void* buffer, int64_t bytes, int root);

  // Sends a piece of `in` to each rank, and receives a piece of `out` from each. `in` holds the pieces in
  // rank order without gaps, in_bytes[i] bytes for rank i. `out` has the same form, with out_bytes[i] bytes
  // from rank i. out_bytes[i] must equal in_bytes[index()] of rank i. Pieces may be empty.
  absl::Status AllToAll(absl::string_view name, const void* in, absl::Span<const int64_t> in_bytes, void* out,
                        absl::Span<const int64_t> out_bytes);

  // Send and receive one message between two different ranks of the group; no other ranks take part. Messages
  // from one rank to another arrive in the order in which they were sent. Between hosts, Send may block until
  // the receiver has called Receive. Does nothing if `bytes` is 0.
  absl::Status Send(absl::string_view name, const void* buffer, int64_t bytes, int to);
  absl::Status Receive(absl::string_view name, void* buffer, int64_t bytes, int from);

  // Combines shard index() of all ranks' `in` into `out`. `in` has shape [size() * shard_numel] and `out` has
  // shape [shard_numel]. If `accumulate` is set, also combines the result with the previous values of `out`.
  // Does not modify `in`, unless `out` is shard index() of `in`.
  //
  // On the CPU, `scratch` holds one piece from each peer at a time, so it must have room for at least one
  // element per peer. Its size must be the same on every rank. It determines the number of messages, but not
  // the result. On a plugin's device, `scratch` is used only if `accumulate` is set, and must have room for
  // `out`; the library decides how often it rounds sums of bf16.
  absl::Status ReduceScatter(absl::string_view name, const void* in, void* out, int64_t shard_numel,
                             bool accumulate, absl::Span<uint8_t> scratch, Reduction how = {});

  // Combines `buffer`, with shape [numel], over all ranks in place. On the CPU, `scratch` is as for
  // ReduceScatter; on a plugin's device it is not used.
  absl::Status AllReduce(absl::string_view name, void* buffer, int64_t numel, absl::Span<uint8_t> scratch,
                         Reduction how = {});

  // Connects rank 0 to rank 1 for messages, in a group of two. Collective. Without it, the first message
  // between two devices would block the host until they are connected. Does nothing on the CPU.
  absl::Status ConnectMessages();

  // Combines a few scalars in host memory over all ranks in place, in rank order and in fp64. Large groups
  // use Bruck's algorithm (Bruck et al. 1997), in which each rank sends log2(size()) messages.
  absl::Status AllReduceScalars(absl::string_view name, absl::Span<double> values,
                                Combine combine = Combine::kSum);

  // Waits for the devices' collectives and disconnects the devices, at the end of a successful run. Do not
  // use the group afterwards. A group that is destroyed without Close cuts its connections. Omit Close
  // only after a failure. Does nothing on the CPU.
  absl::Status Close();

 private:
  friend class Communicator;
  using Chunk = std::pair<int64_t, int64_t>;  // first element, number of elements

  // A message in progress between hosts.
  struct Message {
    c10::intrusive_ptr<c10d::Work> work;
    int peer = 0;  // rank in the world
  };
  using Pending = std::vector<Message>;

  absl::Status Exchange(absl::string_view name, const std::function<void()>& exchange);
  void StartReceive(Pending& pending, void* buffer, int64_t bytes, int from);
  void StartSend(Pending& pending, const void* buffer, int64_t bytes, int to);
  void Finish(Pending& pending) const;
  // Returns this group's entry in the process's life signs, or null if they have no room for it.
  LifeSigns::GroupCalls* Calls() const;
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
  c10::intrusive_ptr<c10d::Backend> backend_;  // connects the hosts of the whole world
  // Connects the devices of only this group. Null on the CPU and for a group of one rank.
  c10::intrusive_ptr<c10d::Backend> device_backend_;
  std::vector<int> ranks_;
  int index_ = 0;
  int tag_ = 0;
  std::string axis_;
  absl::Duration timeout_;
  std::shared_ptr<FaultHook> fault_hook_;
  std::vector<char> last_message_;  // last received message between hosts; kept if there is a fault hook
};

}  // namespace trainctl::comm
