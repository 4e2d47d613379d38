// Internal to lib/rpc: the key-value store of the current generation. A call that has to wait for a
// key holds no thread: it is parked and answered by the call that sets the key, or by the end of its
// generation. Thread safe.
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
  // Of this launch: a call of another one is refused.
  explicit StoreService(Launch launch) : launch_(std::move(launch)) {}

  struct CallId {
    const void* owner = nullptr;
    uint64_t number = 0;
    friend bool operator==(const CallId&, const CallId&) = default;
  };
  // Called once, unless the call is cancelled before. It must not call the service.
  using Answer = std::function<void(const grpc::Status&, v1::StoreReply)>;

  void Handle(CallId id, const v1::StoreRequest& request, Answer answer);
  // False: it was not waiting (any more). Once this has returned, it will not be answered.
  bool Cancel(CallId id);
  void CancelAllOf(const void* owner);
  // Drops every key and ends parked calls; later calls must carry `generation`.
  void StartGeneration(int64_t generation);
  // Ends the parked calls of the current generation with ABORTED and the reason.
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
  std::string aborted_;  // why waiting is over in this generation
  std::list<Call> waiting_;
};

}  // namespace trainctl::rpc
