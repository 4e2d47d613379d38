// The store through which workers set up their collectives. lib/rpc serves it from the rendezvous, lib/comm
// adapts it to c10d::Store, and tests use InMemoryKeyValueStore. Implementations are thread-safe and scope
// keys to (job, generation).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace trainctl {

class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  virtual absl::Status Set(absl::string_view key, absl::Span<const uint8_t> value) = 0;
  // Blocks until the key exists and returns its value. Returns DeadlineExceeded, naming the key, after
  // `timeout`.
  virtual absl::StatusOr<std::vector<uint8_t>> Get(absl::string_view key, absl::Duration timeout) = 0;
  // Sets the key to `desired` if its value equals `expected`, where an absent key counts as empty. Returns
  // the resulting value.
  virtual absl::StatusOr<std::vector<uint8_t>> CompareSet(absl::string_view key,
                                                          absl::Span<const uint8_t> expected,
                                                          absl::Span<const uint8_t> desired) = 0;
  // Adds `delta` to a decimal counter that starts at 0 and returns the new value.
  virtual absl::StatusOr<int64_t> Add(absl::string_view key, int64_t delta) = 0;
  // Whether all keys exist.
  virtual absl::StatusOr<bool> Check(absl::Span<const std::string> keys) = 0;
  // Blocks until all keys exist. Returns DeadlineExceeded after `timeout`.
  virtual absl::Status Wait(absl::Span<const std::string> keys, absl::Duration timeout) = 0;
  // Removes the key. Returns whether it existed.
  virtual absl::StatusOr<bool> Delete(absl::string_view key) = 0;
  virtual absl::StatusOr<int64_t> NumKeys() = 0;
};

class InMemoryKeyValueStore : public KeyValueStore {
 public:
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
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::vector<uint8_t>, std::less<>> values_;
};

}  // namespace trainctl
