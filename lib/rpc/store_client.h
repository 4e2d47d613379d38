// Internal to lib/rpc: a KeyValueStore that calls the job's rendezvous service. Thread-safe.
#pragma once

#include <atomic>
#include <string>

#include "base/key_value_store.h"
#include "proto/trainctl.grpc.pb.h"
#include "rpc/token.h"

namespace trainctl::rpc {

class StoreClient : public KeyValueStore {
 public:
  // Creates a client for the process with this incarnation. `stub` must outlive it.
  StoreClient(v1::Trainctl::Stub* stub, Pass pass, int64_t incarnation)
      : stub_(stub), pass_(std::move(pass)), incarnation_(incarnation) {}
  void set_generation(int64_t generation) { generation_ = generation; }

  absl::Status Set(absl::string_view key, absl::Span<const uint8_t> value) override;
  absl::StatusOr<std::vector<uint8_t>> Get(absl::string_view key, absl::Duration timeout) override;
  absl::StatusOr<std::vector<uint8_t>> CompareSet(absl::string_view key, absl::Span<const uint8_t> expected,
                                                  absl::Span<const uint8_t> desired) override;
  absl::StatusOr<int64_t> Add(absl::string_view key, int64_t delta) override;
  absl::StatusOr<bool> Check(absl::Span<const std::string> keys) override;
  absl::Status Wait(absl::Span<const std::string> keys, absl::Duration timeout) override;
  absl::StatusOr<bool> Delete(absl::string_view key) override;
  absl::StatusOr<int64_t> NumKeys() override;

 private:
  absl::StatusOr<v1::StoreReply> Call(v1::StoreRequest request, absl::Duration timeout);

  v1::Trainctl::Stub* const stub_;
  const Pass pass_;
  const int64_t incarnation_;
  std::atomic<int64_t> generation_{0};
};

}  // namespace trainctl::rpc
