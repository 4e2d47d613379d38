// Connects the ranks of a run, and makes the groups of ranks that communicate with each other. Not
// thread-safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(
//       const auto communicator,
//       Communicator::Create(device, MakeC10dStore(store), rank, world_size, absl::Minutes(5)));
//   TRAINCTL_ASSIGN_OR_RETURN(Group group, communicator->MakeGroup({0, 1, 2, 3}, "dp_shard"));
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "comm/c10d.h"
#include "comm/group.h"
#include "device/device.h"

namespace trainctl::comm {

class Communicator {
 public:
  ~Communicator();

  // Collective over the world: blocks until all ranks are connected. `timeout` applies to connecting and to
  // each later collective. `address` is the address of this machine at which the other ranks can reach it.
  // `device`, and the KeyValueStore that `store` uses, must outlive the communicator and its groups. Returns
  // WorkerError if the ranks cannot connect.
  static absl::StatusOr<std::unique_ptr<Communicator>> Create(const device::Device& device,
                                                              c10::intrusive_ptr<c10d::Store> store, int rank,
                                                              int world_size, absl::Duration timeout,
                                                              const std::string& address = "127.0.0.1");
  int rank() const { return rank_; }
  int world_size() const { return world_size_; }

  const device::Device& device() const { return *device_; }

  // Sets the number of streams on which this process will use groups at the same time. Applies to groups that
  // are made from now on. The default is 1. A device limits the size of its communication kernels so that
  // this many can run together.
  void SetNumStreams(int num_streams) { num_streams_ = num_streams; }

  // Makes a group of `ranks`, which contains rank(). `axis` is the name of the mesh axis in error messages.
  // All ranks of the world must make the same number of groups in the same order; a rank outside a group
  // calls SkipGroup instead. On a plugin's device this is collective over `ranks`, and returns WorkerError if
  // the devices cannot be connected.
  absl::StatusOr<Group> MakeGroup(std::vector<int> ranks, std::string axis);
  // Makes a group that communicates between the hosts, for scalars and host memory, whatever the device.
  // Counts as a group in the order of MakeGroup, but does not communicate itself.
  Group MakeHostGroup(std::vector<int> ranks, std::string axis);
  // Call this instead of MakeGroup on the ranks that are not in the group.
  void SkipGroup() { ++next_tag_; }

  // For tests. Affects all groups of this communicator, including existing ones.
  void SetFaultHook(FaultHook hook) { *fault_hook_ = std::move(hook); }

 private:
  Communicator();

  const device::Device* device_ = nullptr;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::Backend> backend_;
  int rank_ = 0;
  int world_size_ = 1;
  int next_tag_ = 0;
  int num_streams_ = 1;
  absl::Duration timeout_;
  std::shared_ptr<FaultHook> fault_hook_ = std::make_shared<FaultHook>();
};

}  // namespace trainctl::comm
