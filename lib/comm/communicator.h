// Brings up the connections between the ranks of a run, and makes groups of them.
#pragma once

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "comm/group.h"
#include "device/device.h"

namespace trainctl::comm {

class Communicator {
 public:
  // Collective over the world. `device`, and what `store` stands on, must outlive the communicator.
  // `address`: of this machine, where the other ranks reach it.
  static absl::StatusOr<std::unique_ptr<Communicator>> Create(const device::Device& device,
                                                              c10::intrusive_ptr<c10d::Store> store, int rank,
                                                              int world_size, absl::Duration timeout,
                                                              const std::string& address = "127.0.0.1");
  int rank() const { return rank_; }
  int world_size() const { return world_size_; }

  const device::Device& device() const { return *device_; }

  // On how many streams at once this process uses the groups that are made from now on. A device keeps room
  // for as many.
  void SetNumStreams(int num_streams) { num_streams_ = num_streams; }

  // All ranks must make as many groups in the same order; `ranks` contains rank(). Between devices collective
  // over `ranks`.
  absl::StatusOr<Group> MakeGroup(std::vector<int> ranks, std::string axis);
  // For scalars alone: between hosts, local.
  Group MakeHostGroup(std::vector<int> ranks, std::string axis);
  // In the place of MakeGroup on the ranks that a group does not contain.
  void SkipGroup() { ++next_tag_; }

  // Affects all groups; for tests.
  void SetFaultHook(FaultHook hook) { *fault_hook_ = std::move(hook); }

 private:
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
