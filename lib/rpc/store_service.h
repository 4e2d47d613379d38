// Internal to lib/rpc: the key-value store of the current generation. A call that has to wait for a
// key holds no thread: it is parked and finished by the call that sets the key, by its client's
// deadline, or by the end of its generation. Thread safe.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <list>
#include <mutex>
#include <string>

#include "proto/trainctl.pb.h"
#include "rpc/store_table.h"

namespace trainctl::rpc {

class StoreService {
 public:
  // Answers one call; the reactor lives until gRPC is done with it.
  grpc::ServerUnaryReactor* Handle(const v1::StoreRequest* request, v1::StoreReply* reply);
  // Drops every key and ends parked calls; later calls must carry `generation`.
  void StartGeneration(int64_t generation);
  // Ends the parked calls of the current generation with ABORTED and the reason.
  void AbortWaiting(const std::string& reason);

 private:
  class Call;

  void WakeWaiting();
  void Cancel(Call* call);

  std::mutex mutex_;
  StoreTable table_;
  std::string aborted_;  // why waiting is over in this generation
  std::list<Call*> waiting_;
};

}  // namespace trainctl::rpc
