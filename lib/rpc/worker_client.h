// A worker's side of the rendezvous: joins, keeps the heartbeat going on its own thread, and is the
// worker's key-value store and control channel. Thread safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(auto flags, launcher::ParseWorkerFlags(args));
//   TRAINCTL_ASSIGN_OR_RETURN(auto client, rpc::WorkerClient::Connect(flags));
//   TRAINCTL_ASSIGN_OR_RETURN(auto world, client->Join());
//   ... train with client->store() and client->control() ...
//   client->Leave(rpc::LeaveReason::kFinished);   // then exit with 0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/control_channel.h"
#include "base/key_value_store.h"
#include "launcher/worker_contract.h"
#include "rendezvous/assignment.h"

namespace trainctl::rpc {

enum class LeaveReason { kFinished, kStopped };  // exit codes 0 and 75

struct WorkerClientOptions {
  launcher::WorkerFlags flags;
  // The launcher is gone, or has put another process in this one's place. Called once, on the
  // client's thread. By default: one line to stderr, then _exit(130).
  std::function<void(const std::string& reason)> on_lost;
};

class WorkerClient {
 public:
  // Does not wait. EnvironmentError when the token cannot be read.
  static absl::StatusOr<std::unique_ptr<WorkerClient>> Connect(WorkerClientOptions options);
  // Ends the heartbeat; without a Leave before, the launcher sees a failure.
  ~WorkerClient();

  // Blocks until every member of the job has acknowledged one assignment. DeadlineExceeded after
  // `timeout`; Unavailable when the launcher cannot be reached.
  absl::StatusOr<rendezvous::WorldAssignment> Join(absl::Duration timeout = absl::Minutes(5));

  // Both live as long as the client; the store is that of the joined generation. A wait for a key
  // ends with Aborted as soon as another rank has failed.
  KeyValueStore& store();
  ControlChannel& control();

  // Announces a clean end and waits until the launcher has it, as Fail of control() does with a failure: for
  // a launcher that stands still as long as it does. Unavailable when the launcher has ended. Nothing can be
  // said after either.
  absl::Status Leave(LeaveReason reason);

 private:
  class Impl;
  explicit WorkerClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainctl::rpc
