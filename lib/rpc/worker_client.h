// A worker's side of the rendezvous. It joins the job, sends heartbeats on its own thread, and provides the
// worker's key-value store and control channel. Thread-safe.
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
  // Called once, on the client's thread, if the launcher is gone or has replaced this process. By default,
  // prints one line to stderr and calls _exit(130).
  std::function<void(const std::string& reason)> on_lost;
};

class WorkerClient {
 public:
  // Creates a client without waiting for the launcher. Returns EnvironmentError if the token cannot be read.
  static absl::StatusOr<std::unique_ptr<WorkerClient>> Connect(WorkerClientOptions options);
  // Stops the heartbeat. Call Leave first; otherwise the launcher treats the missing heartbeat as a failure.
  ~WorkerClient();

  // Joins the job and blocks until all of its members have acknowledged the same assignment. Returns
  // DeadlineExceeded after `timeout`, and Unavailable if the launcher cannot be reached.
  absl::StatusOr<rendezvous::WorldAssignment> Join(absl::Duration timeout = absl::Minutes(5));

  // The store and the control channel, which live as long as the client. The store belongs to the joined
  // generation. A wait for a key returns Aborted as soon as another rank has failed.
  KeyValueStore& store();
  ControlChannel& control();

  // Announces a clean exit and waits until the launcher has received it; Fail of control() does the same for
  // a failure. Blocks for as long as the launcher hangs. Returns Unavailable if the launcher has exited or if
  // this worker has already announced an exit or a failure.
  absl::Status Leave(LeaveReason reason);

 private:
  class Impl;
  explicit WorkerClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainctl::rpc
