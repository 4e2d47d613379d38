// The communicators of one rank: one for each group of a step, found by name, and one for each direction of
// messages between two classes. The directions are separate so that the streams of both can be active at the
// same time.
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
  // Creates the communicators of `step`. Collective over the world: every rank passes the same step. Returns
  // UsageError if environment variables would let a pipeline on devices hang.
  static absl::StatusOr<Groups> Make(comm::Communicator& communicator, const layout::Mesh& mesh,
                                     const schedule::Step& step);

  // Returns the communicator of a group. This rank must be in the group.
  comm::Group& Of(const schedule::Group& group);
  // Returns the communicator for messages from class `from` to class `to`, in which their ranks are 0 and 1.
  // One of the two classes must be this rank's.
  comm::Group& OfMessages(int from, int to);
  comm::Group& Of(layout::Axis axis, int stream) { return Of({axis, stream, {}, 0}); }

  // Closes all communicators. Collective, at the end of a successful run.
  absl::Status Close();

 private:
  absl::Status Add(comm::Communicator& communicator, std::string name, std::vector<int> ranks,
                   std::string axis);

  absl::flat_hash_map<std::string, comm::Group> by_name_;
  std::vector<std::string> names_;  // names in the step's order, for collective calls
};

}  // namespace trainctl::parallel
