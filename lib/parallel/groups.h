// The communicators of one rank for the groups of a step, by their names, and for the messages between its
// classes: each direction has its own, so that the streams of both can be under way at once.
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
  // Collective over the world: every rank makes those of the same step. UsageError if variables of the
  // environment would let a pipeline on devices hang.
  static absl::StatusOr<Groups> Make(comm::Communicator& communicator, const layout::Mesh& mesh,
                                     const schedule::Step& step);

  // Of a group that this rank is in.
  comm::Group& Of(const schedule::Group& group);
  // Of the messages of class `from` to class `to`, one of which is this rank's: ranks 0 and 1 of the group.
  comm::Group& OfMessages(int from, int to);
  comm::Group& Of(layout::Axis axis, int stream) { return Of({axis, stream, {}, 0}); }

  // Collective, at the end of a run that went well.
  absl::Status Close();

 private:
  absl::Status Add(comm::Communicator& communicator, std::string name, std::vector<int> ranks,
                   std::string axis);

  absl::flat_hash_map<std::string, comm::Group> by_name_;
  std::vector<std::string> names_;  // in the order of the step, for what is collective
};

}  // namespace trainctl::parallel
