// Caches the ids of recent words in a fixed-size table, in which a new word replaces an older one in the same
// slot. Not thread-safe.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainctl::tokenizer {

class WordCache {
 public:
  static constexpr size_t kMaxWordBytes = 30;
  static constexpr size_t kMaxIds = 8;

  struct Entry {
    uint8_t word_bytes = 0;
    uint8_t num_ids = 0;
    char word[kMaxWordBytes];
    int32_t ids[kMaxIds];
  };

  // Appends the ids of `word`. If they are not cached, calls `encode()`, which must append them, and caches
  // the result.
  template <typename Encode>
  void Append(absl::string_view word, std::vector<int32_t>* ids, const Encode& encode) {
    if (word.size() > kMaxWordBytes) return encode();
    Entry& entry = EntryOf(word);
    if (Holds(entry, word)) {
      ids->insert(ids->end(), entry.ids, entry.ids + entry.num_ids);
      return;
    }
    const size_t before = ids->size();
    encode();
    Fill(entry, word, ids->data() + before, ids->size() - before);
  }

 private:
  static constexpr int kBits = 15;

  // Returns the entry for `word`, which must not be longer than kMaxWordBytes.
  Entry& EntryOf(absl::string_view word) {
    if (entries_.empty()) entries_.resize(size_t{1} << kBits);
    return entries_[Hash(word) >> (64 - kBits)];
  }
  static bool Holds(const Entry& entry, absl::string_view word) {
    return entry.word_bytes == word.size() && std::memcmp(entry.word, word.data(), word.size()) == 0;
  }
  // Stores the ids of `word`, unless there are more than kMaxIds.
  static void Fill(Entry& entry, absl::string_view word, const int32_t* ids, size_t num_ids) {
    if (num_ids > kMaxIds) return;
    entry.word_bytes = static_cast<uint8_t>(word.size());
    entry.num_ids = static_cast<uint8_t>(num_ids);
    std::memcpy(entry.word, word.data(), word.size());
    if (num_ids > 0) std::memcpy(entry.ids, ids, num_ids * sizeof(int32_t));
  }

  static uint64_t Hash(absl::string_view word) {
    constexpr uint64_t kFactor = 0x9E3779B97F4A7C15;
    uint64_t hash = word.size() * kFactor;
    const char* at = word.data();
    size_t left = word.size();
    for (; left >= 8; at += 8, left -= 8) {
      uint64_t part;
      std::memcpy(&part, at, 8);
      hash = Mix(hash ^ part);
    }
    uint64_t part = 0;
    std::memcpy(&part, at, left);
    return Mix(hash ^ part);
  }
  static uint64_t Mix(uint64_t value) {
    value *= 0xD6E8FEB86659FD93;
    value ^= value >> 32;
    return value * 0xD6E8FEB86659FD93;
  }

  std::vector<Entry> entries_;
};

}  // namespace trainctl::tokenizer
