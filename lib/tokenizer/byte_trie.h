// A set of words that finds those which are prefixes of a text. Thread-safe once all words are added.
#pragma once

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace trainctl::tokenizer {

class ByteTrie {
 public:
  void Add(absl::string_view word, int32_t id) {
    int32_t node = 0;
    for (const char c : word)
      node = next_.try_emplace(Key(node, c), num_nodes_ + 1).first->second, GrowTo(node);
    ids_[node] = id;
  }
  bool empty() const { return ids_.empty(); }

  // Calls see(length, id) for each word that is a prefix of `text`, shortest first.
  template <typename See>
  void ForEachPrefix(absl::string_view text, const See& see) const {
    int32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const auto next = next_.find(Key(node, text[i]));
      if (next == next_.end()) return;
      node = next->second;
      const auto id = ids_.find(node);
      if (id != ids_.end()) see(i + 1, id->second);
    }
  }

 private:
  static uint64_t Key(int32_t node, char c) {
    return static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(c);
  }
  void GrowTo(int32_t node) { num_nodes_ = num_nodes_ > node ? num_nodes_ : node; }

  int32_t num_nodes_ = 0;
  absl::flat_hash_map<uint64_t, int32_t> next_;
  absl::flat_hash_map<int32_t, int32_t> ids_;
};

}  // namespace trainctl::tokenizer
