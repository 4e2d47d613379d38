#include "parallel/groups.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/status.h"

namespace trainctl::parallel {

absl::StatusOr<Groups> Groups::Make(comm::Communicator& communicator, const layout::Mesh& mesh,
                                    const schedule::Step& step) {
  const int rank = communicator.rank();
  Groups groups;
  for (const schedule::Group& group : step.groups) {
    std::vector<int> ranks = mesh.Group(rank, group.axis);
    if (!group.classes.empty()) {
      std::vector<int> members;
      for (const int place : group.classes) members.push_back(ranks[static_cast<size_t>(place)]);
      ranks = std::move(members);
    }
    if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) {
      communicator.SkipGroup();
      continue;
    }
    const std::string name = schedule::NameOf(group);
    TRAINCTL_ASSIGN_OR_RETURN(
        comm::Group made,
        communicator.MakeGroup(std::move(ranks), std::string(layout::AxisName(group.axis))));
    const bool is_new = groups.by_name_.emplace(name, std::move(made)).second;
    TRAINCTL_CHECK_MSG(is_new, "a step has the group '", name, "' twice");
    groups.names_.push_back(name);
  }
  return groups;
}

comm::Group& Groups::Of(const schedule::Group& group) {
  const std::string name = schedule::NameOf(group);
  const auto found = by_name_.find(name);
  TRAINCTL_CHECK_MSG(found != by_name_.end(), "this rank is in no group '", name, "'");
  return found->second;
}

absl::Status Groups::Close() {
  for (const std::string& name : names_) TRAINCTL_RETURN_IF_ERROR(by_name_.at(name).Close());
  return absl::OkStatus();
}

}  // namespace trainctl::parallel
