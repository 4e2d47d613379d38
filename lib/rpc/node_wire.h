// Internal to lib/rpc: what coordinator and agents tell each other, against the generated types.
#pragma once

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/trainctl.pb.h"
#include "rendezvous/node.h"
#include "rendezvous/service.h"

namespace trainctl::rpc {

v1::NodeOrder ToWire(const rendezvous::NodeCommand& command);
// `node`: of the slots. UsageError: a body that only newer peers know, or that no agent could carry out.
// Whether the workers that it names are there is left to rendezvous::Agent, which knows them.
absl::StatusOr<rendezvous::NodeCommand> FromWire(const v1::NodeOrder& order, const std::string& node);

v1::NodeReport ToWire(const rendezvous::NodeEvent& event);
// `num_workers`: of the node; a worker beyond is refused. Names of members are made here: an agent speaks of
// its own workers only. Texts are printable.
absl::StatusOr<rendezvous::NodeEvent> FromWire(const v1::NodeReport& report, const std::string& node,
                                               int num_workers);

// `now`: by the wall clock of the caller; where they differ, NodeFacts::clock_ahead is.
v1::Ready ToWire(const rendezvous::NodeOffer& offer, absl::Time now);
absl::StatusOr<rendezvous::NodeOffer> FromWire(const v1::Ready& ready, const std::string& node,
                                               absl::Time now);

v1::Setup ToWire(const rendezvous::NodeSetup& setup);
rendezvous::NodeSetup FromWire(const v1::Setup& setup);

}  // namespace trainctl::rpc
