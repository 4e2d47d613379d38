// The communicators of one rank for the groups of a step, by their names.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "comm/communicator.h"
#include "layout/mesh.h"
#include "schedule/step.h"

namespace trainctl::parallel {

class Groups {
 public:
  Groups() = default;
  // Collective over the world: every rank makes those of the same step.
  static absl::StatusOr<Groups> Make(comm::Communicator& communicator, const layout::Mesh& mesh,
                                     const schedule::Step& step);

  // Of a group that this rank is in.
  comm::Group& Of(const schedule::Group& group);
  comm::Group& Of(layout::Axis axis, int stream) { return Of({axis, stream, {}}); }

  // Collective, at the end of a run that went well.
  absl::Status Close();

 private:
  absl::flat_hash_map<std::string, comm::Group> by_name_;
  std::vector<std::string> names_;  // in the order of the step, for what is collective
};

}  // namespace trainctl::parallel
