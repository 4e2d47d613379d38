#include "comm/communicator.h"

#include <algorithm>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "base/status.h"
#include "comm/device_backend.h"
#include "comm/gloo_backend.h"
#include "device/error_text.h"

namespace trainctl::comm {

Communicator::Communicator() = default;
Communicator::~Communicator() = default;

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Create(const device::Device& device,
                                                                   c10::intrusive_ptr<c10d::Store> store,
                                                                   int rank, int world_size,
                                                                   absl::Duration timeout,
                                                                   const std::string& address) {
  std::unique_ptr<Communicator> communicator(new Communicator());
  communicator->device_ = &device;
  communicator->store_ = store;
  communicator->rank_ = rank;
  communicator->world_size_ = world_size;
  communicator->timeout_ = timeout;
  if (world_size == 1) return communicator;
  try {
    communicator->backend_ = MakeGlooBackend(std::move(store), rank, world_size, timeout, address);
  } catch (const std::exception& error) {
    return WorkerError(absl::StrCat("rank ", rank, " cannot connect from ", address, " to its ",
                                    world_size - 1, " peers: ", device::ErrorText(error)));
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
  if (LifeSigns::GroupCalls* const calls = group.Calls(); calls != nullptr) calls->is_member = 1;
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
                        group.size(), timeout_, num_streams_));
  return group;
}

}  // namespace trainctl::comm
