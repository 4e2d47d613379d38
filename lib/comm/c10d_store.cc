#include "comm/c10d_store.h"

#include <chrono>

#include "absl/time/time.h"

namespace trainctl::comm {
namespace {

[[noreturn]] void Throw(const absl::Status& status) {
  C10_THROW_ERROR(DistStoreError, "rendezvous store: " + std::string(status.message()));
}

class StoreAdapter : public c10d::Store {
 public:
  explicit StoreAdapter(KeyValueStore& store) : store_(store) {}

  c10::intrusive_ptr<c10d::Store> clone() override { return c10::make_intrusive<StoreAdapter>(store_); }

  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    const absl::Status status = store_.Set(key, value);
    if (!status.ok()) Throw(status);
  }
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override {
    return Value(store_.CompareSet(key, expected, desired));
  }
  std::vector<uint8_t> get(const std::string& key) override { return Value(store_.Get(key, Timeout())); }
  int64_t add(const std::string& key, int64_t value) override { return Value(store_.Add(key, value)); }
  bool deleteKey(const std::string& key) override { return Value(store_.Delete(key)); }
  bool check(const std::vector<std::string>& keys) override { return Value(store_.Check(keys)); }
  int64_t getNumKeys() override { return Value(store_.NumKeys()); }
  void wait(const std::vector<std::string>& keys) override { Wait(keys, Timeout()); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    Wait(keys, absl::FromChrono(timeout));
  }

 private:
  absl::Duration Timeout() const { return absl::FromChrono(getTimeout()); }

  void Wait(const std::vector<std::string>& keys, absl::Duration timeout) {
    const absl::Status status = store_.Wait(keys, timeout);
    if (!status.ok()) Throw(status);
  }

  template <typename T>
  static T Value(absl::StatusOr<T> result) {
    if (!result.ok()) Throw(result.status());
    return *std::move(result);
  }

  KeyValueStore& store_;
};

}  // namespace

c10::intrusive_ptr<c10d::Store> MakeC10dStore(KeyValueStore& store) {
  return c10::make_intrusive<StoreAdapter>(store);
}

}  // namespace trainctl::comm
