#include "base/key_value_store.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "base/status.h"

namespace trainctl {

absl::Status InMemoryKeyValueStore::Set(absl::string_view key, absl::Span<const uint8_t> value) {
  std::lock_guard lock(mutex_);
  values_[std::string(key)].assign(value.begin(), value.end());
  changed_.notify_all();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint8_t>> InMemoryKeyValueStore::Get(absl::string_view key,
                                                                absl::Duration timeout) {
  std::unique_lock lock(mutex_);
  const bool found = changed_.wait_for(lock, absl::ToChronoMilliseconds(timeout),
                                       [&] { return values_.find(key) != values_.end(); });
  if (!found) return absl::DeadlineExceededError(absl::StrCat("no value for key '", key, "' in time"));
  return values_.find(key)->second;
}

absl::StatusOr<std::vector<uint8_t>> InMemoryKeyValueStore::CompareSet(absl::string_view key,
                                                                       absl::Span<const uint8_t> expected,
                                                                       absl::Span<const uint8_t> desired) {
  std::lock_guard lock(mutex_);
  const auto it = values_.find(key);
  if (it == values_.end() && !expected.empty()) return std::vector<uint8_t>(expected.begin(), expected.end());
  if (it != values_.end() &&
      !std::equal(it->second.begin(), it->second.end(), expected.begin(), expected.end())) {
    return it->second;
  }
  std::vector<uint8_t> value(desired.begin(), desired.end());
  values_[std::string(key)] = value;
  changed_.notify_all();
  return value;
}

absl::StatusOr<int64_t> InMemoryKeyValueStore::Add(absl::string_view key, int64_t delta) {
  std::lock_guard lock(mutex_);
  std::vector<uint8_t>& stored = values_[std::string(key)];
  int64_t value = 0;
  if (!stored.empty() && !absl::SimpleAtoi(std::string(stored.begin(), stored.end()), &value)) {
    return absl::InvalidArgumentError(absl::StrCat("key '", key, "' does not hold a number"));
  }
  if (__builtin_add_overflow(value, delta, &value)) {
    return absl::InvalidArgumentError(absl::StrCat("key '", key, "' cannot count further"));
  }
  const std::string text = absl::StrCat(value);
  stored.assign(text.begin(), text.end());
  changed_.notify_all();
  return value;
}

absl::StatusOr<bool> InMemoryKeyValueStore::Check(absl::Span<const std::string> keys) {
  std::lock_guard lock(mutex_);
  return std::all_of(keys.begin(), keys.end(), [&](const std::string& key) { return values_.contains(key); });
}

absl::Status InMemoryKeyValueStore::Wait(absl::Span<const std::string> keys, absl::Duration timeout) {
  std::unique_lock lock(mutex_);
  const auto present = [&](const std::string& key) { return values_.contains(key); };
  const bool found = changed_.wait_for(lock, absl::ToChronoMilliseconds(timeout),
                                       [&] { return std::all_of(keys.begin(), keys.end(), present); });
  if (found) return absl::OkStatus();
  const auto missing = std::find_if_not(keys.begin(), keys.end(), present);
  return absl::DeadlineExceededError(absl::StrCat("no value for key '", *missing, "' in time"));
}

absl::StatusOr<bool> InMemoryKeyValueStore::Delete(absl::string_view key) {
  std::lock_guard lock(mutex_);
  return values_.erase(std::string(key)) > 0;
}

absl::StatusOr<int64_t> InMemoryKeyValueStore::NumKeys() {
  std::lock_guard lock(mutex_);
  return static_cast<int64_t>(values_.size());
}

}  // namespace trainctl
