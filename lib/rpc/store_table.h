// Internal to lib/rpc: what the key-value store answers, without a connection. Not thread safe.
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
  // Drops every key; later requests must carry `generation`.
  void StartGeneration(int64_t generation);
  // True when the request is answered or refused, false when it has to wait for a key.
  bool TryAnswer(const v1::StoreRequest& request, v1::StoreReply* reply, grpc::Status* status);
  int64_t stored_bytes() const { return stored_bytes_; }

 private:
  grpc::Status Check(const v1::StoreRequest& request) const;
  bool Answer(const v1::StoreRequest& request, v1::StoreReply* reply, grpc::Status* status);

  int64_t generation_ = 0;
  std::unique_ptr<InMemoryKeyValueStore> store_;
  int64_t stored_bytes_ = 0;  // an upper bound: replaced values are counted again
};

}  // namespace trainctl::rpc
