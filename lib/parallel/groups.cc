#include "parallel/groups.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status.h"

namespace trainctl::parallel {
namespace {

std::string NameOfMessages(int from, int to) { return absl::StrCat("messages from ", from, " to ", to); }

// Refuses environment variables with which streams wait for each other. A pipeline may then deadlock although
// its step is proven, because its stages start messages in different orders.
absl::Status CheckEnvironment(int num_streams) {
  const char* const order = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  if (order != nullptr && absl::string_view(order) != "0") {
    return UsageError(
        absl::StrCat("NCCL_LAUNCH_ORDER_IMPLICIT=", order,
                     " is set in the environment. With it the stages of a pipeline can wait for "
                     "each other forever: unset it, or set it to 0"));
  }
  // LibTorch adds one stream to each; the compute stream and the default stream come on top.
  const int needed = 2 * num_streams + 2;
  const char* const queues = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  int num_queues = 0;
  if (queues != nullptr && absl::SimpleAtoi(queues, &num_queues) && num_queues < needed) {
    return UsageError(absl::StrCat("CUDA_DEVICE_MAX_CONNECTIONS=", queues, " is set in the environment. The ",
                                   num_streams, " streams of this pipeline need ", needed,
                                   " queues, or its stages can wait for each other forever: unset it, or set "
                                   "it to 32"));
  }
  return absl::OkStatus();
}

}  // namespace

// Every rank makes as many, whether it is in them or not.
absl::Status Groups::Add(comm::Communicator& communicator, std::string name, std::vector<int> ranks,
                         std::string axis) {
  if (std::find(ranks.begin(), ranks.end(), communicator.rank()) == ranks.end()) {
    communicator.SkipGroup();
    return absl::OkStatus();
  }
  TRAINCTL_ASSIGN_OR_RETURN(comm::Group made, communicator.MakeGroup(std::move(ranks), std::move(axis)));
  const bool is_new = by_name_.emplace(name, std::move(made)).second;
  TRAINCTL_CHECK_MSG(is_new, "a step has the group '", name, "' twice");
  names_.push_back(std::move(name));
  return absl::OkStatus();
}

absl::StatusOr<Groups> Groups::Make(comm::Communicator& communicator, const layout::Mesh& mesh,
                                    const schedule::Step& step) {
  const int rank = communicator.rank();
  const std::vector<int> stages = mesh.Group(rank, layout::Axis::kPp);
  const int num_streams = schedule::NumExchangeStreams(step);
  if (!communicator.device().is_cpu() && step.programs.size() > 1)
    TRAINCTL_RETURN_IF_ERROR(CheckEnvironment(num_streams));
  communicator.SetNumStreams(num_streams);
  Groups groups;
  for (const schedule::Group& group : step.groups) {
    std::vector<int> ranks = mesh.Group(rank, group.axis);
    if (!group.classes.empty()) {
      std::vector<int> members;
      for (const int place : group.classes) members.push_back(ranks[static_cast<size_t>(place)]);
      ranks = std::move(members);
    }
    std::string axis(layout::AxisName(group.axis));
    if (group.copies > 0) {
      const int first = mesh.coordinate(rank, group.axis) / group.copies * group.copies;
      ranks = {ranks.begin() + first, ranks.begin() + first + group.copies};
      axis = layout::NameOfCopies(mesh, group.copies);
    }
    TRAINCTL_RETURN_IF_ERROR(
        groups.Add(communicator, schedule::NameOf(group), std::move(ranks), std::move(axis)));
  }
  for (size_t from = 0; from < step.programs.size(); ++from) {
    for (const schedule::Stream& stream : step.programs[from].streams) {
      if (stream.peer < 0 || !stream.sends) continue;
      const size_t to = static_cast<size_t>(stream.peer);
      const std::string name = NameOfMessages(static_cast<int>(from), stream.peer);
      TRAINCTL_RETURN_IF_ERROR(groups.Add(communicator, name, {stages[from], stages[to]},
                                          std::string(layout::AxisName(layout::Axis::kPp))));
      // In this order on every rank: in that of their programs, ranks could wait for one another for ever.
      const auto made = groups.by_name_.find(name);
      if (made != groups.by_name_.end()) TRAINCTL_RETURN_IF_ERROR(made->second.ConnectMessages());
    }
  }
  return groups;
}

comm::Group& Groups::Of(const schedule::Group& group) {
  const std::string name = schedule::NameOf(group);
  const auto found = by_name_.find(name);
  TRAINCTL_CHECK_MSG(found != by_name_.end(), "this rank is in no group '", name, "'");
  return found->second;
}

comm::Group& Groups::OfMessages(int from, int to) {
  const auto found = by_name_.find(NameOfMessages(from, to));
  TRAINCTL_CHECK_MSG(found != by_name_.end(), "this rank sends and receives no ", NameOfMessages(from, to));
  return found->second;
}

absl::Status Groups::Close() {
  for (const std::string& name : names_) TRAINCTL_RETURN_IF_ERROR(by_name_.at(name).Close());
  return absl::OkStatus();
}

}  // namespace trainctl::parallel
