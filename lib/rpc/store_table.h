// Internal to lib/rpc: the content of the key-value store and its replies to requests, independent of any
// connection. Not thread-safe.
#pragma once

#include <grpcpp/support/status.h>

#include <cstdint>
#include <memory>

#include "base/key_value_store.h"
#include "proto/trainctl.pb.h"

namespace trainctl::rpc {

class StoreTable {
 public:
  StoreTable();
  // Drops all keys. From now on, requests must carry `generation`.
  void StartGeneration(int64_t generation);
  // Answers or refuses the request and returns true, or returns false if the request has to wait for a key.
  bool TryAnswer(const v1::StoreRequest& request, v1::StoreReply* reply, grpc::Status* status);
  int64_t stored_bytes() const { return stored_bytes_; }

 private:
  grpc::Status Check(const v1::StoreRequest& request) const;
  bool Answer(const v1::StoreRequest& request, v1::StoreReply* reply, grpc::Status* status);

  int64_t generation_ = 0;
  std::unique_ptr<InMemoryKeyValueStore> store_;
  int64_t stored_bytes_ = 0;  // upper bound, because replaced values still count
};

}  // namespace trainctl::rpc
