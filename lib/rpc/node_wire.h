// Internal to lib/rpc: converts the messages between the coordinator and agents to and from the generated
// types.
#pragma once

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/trainctl.pb.h"
#include "rendezvous/node.h"
#include "rendezvous/service.h"

namespace trainctl::rpc {

v1::NodeOrder ToWire(const rendezvous::NodeCommand& command);
// Converts an order, whose slots belong to `node`. Returns UsageError for a body that only newer peers
// support or that no agent could carry out. rendezvous::Agent checks that the workers it names exist.
absl::StatusOr<rendezvous::NodeCommand> FromWire(const v1::NodeOrder& order, const std::string& node);

v1::NodeReport ToWire(const rendezvous::NodeEvent& event);
// Converts a report from `node` and rejects any worker index outside its `num_workers` workers. An agent may
// only speak for its own workers, so this builds the member names itself. Texts are made printable.
absl::StatusOr<rendezvous::NodeEvent> FromWire(const v1::NodeReport& report, const std::string& node,
                                               int num_workers);

// `now` is the caller's wall-clock time. FromWire derives NodeFacts::clock_ahead from the difference.
v1::Ready ToWire(const rendezvous::NodeOffer& offer, absl::Time now);
absl::StatusOr<rendezvous::NodeOffer> FromWire(const v1::Ready& ready, const std::string& node,
                                               absl::Time now);

v1::Setup ToWire(const rendezvous::NodeSetup& setup);
rendezvous::NodeSetup FromWire(const v1::Setup& setup);

}  // namespace trainctl::rpc
