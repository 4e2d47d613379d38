// Collectives of the trainer. Between CPUs over point-to-point messages: rank-ordered sums, so that a result
// is the same on every rank and in every run, and no temporary but the one lent. Between devices by the
// device's own library (NCCL), queued on the calling thread's stream. Scalars go between the hosts in both
// cases. Every call is collective: all ranks of the group must make it, in the same order, within the
// timeout. On the CPU they block; overlap comes from calling them on a stream of their own. Errors are
// WorkerError and name the collective, the axis and the peer. A group may be used by one thread at a time;
// different groups by different threads at once.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/key_value_store.h"
#include "device/device.h"

namespace trainctl::comm {

// For tests that prove that a missing or doubled reduction is noticed.
enum class Fault { kNone, kSkip, kDouble };
using FaultHook = std::function<Fault(absl::string_view collective)>;

class Group {
 public:
  int size() const { return static_cast<int>(ranks_.size()); }
  int index() const { return index_; }  // of this rank within the group
  const std::string& axis() const { return axis_; }

  // Buffers are memory of the communicator's device.

  // `buffer` holds size() shards of shard_bytes; shard index() is filled, the others are received.
  absl::Status AllGather(absl::string_view name, void* buffer, int64_t shard_bytes);

  // out = (accumulate ? out : 0) + sum over ranks of their shard index(). `in` [size() *
  // shard_numel] is left alone. `scratch` takes one piece from each peer at a time, so its size (the
  // same on every rank) decides how many messages there are, not the result; never empty. Between devices it
  // is used when `accumulate` is set.
  absl::Status ReduceScatter(absl::string_view name, const float* in, float* out, int64_t shard_numel,
                             bool accumulate, absl::Span<float> scratch);

  // In place. `scratch` as above.
  absl::Status AllReduce(absl::string_view name, float* buffer, int64_t numel, absl::Span<float> scratch);

  // Few scalars of the host, summed in rank order in fp64.
  absl::Status AllReduceScalars(absl::string_view name, absl::Span<double> values);

  // The end of a run that went well: lets the devices finish and disconnects them; there is no call after it.
  // A group that goes without it is cut off, as is right after a failure.
  absl::Status Close();

 private:
  friend class Communicator;
  using Chunk = std::pair<int64_t, int64_t>;  // first element, elements

  absl::Status Exchange(absl::string_view name, const std::function<void()>& exchange);
  absl::Status GatherOnHost(absl::string_view name, void* buffer, int64_t shard_bytes);
  absl::Status ReduceScatterOnDevice(absl::string_view name, const float* in, float* out, int64_t shard_numel,
                                     bool accumulate, absl::Span<float> scratch);
  absl::Status SumChunks(absl::string_view name, const float* in, float* out,
                         const std::vector<Chunk>& chunks, bool accumulate, absl::Span<float> scratch);
  Fault FaultOf(absl::string_view name) const;

  const device::Device* device_ = nullptr;
  c10::intrusive_ptr<c10d::Backend> backend_;  // of the world, between hosts
  c10::intrusive_ptr<c10d::Backend>
      device_backend_;  // of this group alone; null on the CPU and for a group of one
  std::vector<int> ranks_;
  int index_ = 0;
  int tag_ = 0;
  std::string axis_;
  absl::Duration timeout_;
  std::shared_ptr<FaultHook> fault_hook_;
};

class Communicator {
 public:
  // Collective over the world. `device`, and what `store` stands on, must outlive the communicator.
  static absl::StatusOr<std::unique_ptr<Communicator>> Create(const device::Device& device,
                                                              c10::intrusive_ptr<c10d::Store> store, int rank,
                                                              int world_size, absl::Duration timeout);
  int rank() const { return rank_; }
  int world_size() const { return world_size_; }

  // All ranks must make as many groups in the same order; `ranks` contains rank(). Between devices collective
  // over `ranks`.
  absl::StatusOr<Group> MakeGroup(std::vector<int> ranks, std::string axis);
  // For scalars alone: between hosts, local.
  Group MakeHostGroup(std::vector<int> ranks, std::string axis);

  // Affects all groups; for tests.
  void SetFaultHook(FaultHook hook) { *fault_hook_ = std::move(hook); }

 private:
  const device::Device* device_ = nullptr;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::Backend> backend_;
  int rank_ = 0;
  int world_size_ = 1;
  int next_tag_ = 0;
  absl::Duration timeout_;
  std::shared_ptr<FaultHook> fault_hook_ = std::make_shared<FaultHook>();
};

}  // namespace trainctl::comm
