// Internal to lib/rpc: serves the key-value store of the current generation. A call that has to wait for a
// key does not block a thread: it is parked until another call sets the key or the generation ends.
// Thread-safe.
#pragma once

#include <grpcpp/support/status.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <utility>

#include "proto/trainctl.pb.h"
#include "rpc/header.h"
#include "rpc/store_table.h"

namespace trainctl::rpc {

class StoreService {
 public:
  // Serves this launch and refuses calls from any other launch.
  explicit StoreService(Launch launch) : launch_(std::move(launch)) {}

  struct CallId {
    const void* owner = nullptr;
    uint64_t number = 0;
    friend bool operator==(const CallId&, const CallId&) = default;
  };
  // Called exactly once per call, unless the call is cancelled first. It must not call back into the service.
  using Answer = std::function<void(const grpc::Status&, v1::StoreReply)>;

  void Handle(CallId id, const v1::StoreRequest& request, Answer answer);
  // Cancels a waiting call, which is then never answered. Returns false if the call was not waiting.
  bool Cancel(CallId id);
  void CancelAllOf(const void* owner);
  // Drops all keys and ends all parked calls. From now on, calls must carry `generation`.
  void StartGeneration(int64_t generation);
  // Ends the current generation's parked calls with ABORTED and the given reason.
  void AbortWaiting(const std::string& reason);

 private:
  struct Call {
    CallId id;
    v1::StoreRequest request;
    Answer answer;
  };

  void WakeWaiting();

  const Launch launch_;
  std::mutex mutex_;
  StoreTable table_;
  std::string aborted_;  // why calls can no longer wait in this generation; empty if they can
  std::list<Call> waiting_;
};

}  // namespace trainctl::rpc
