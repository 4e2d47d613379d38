// The documents of a set, one behind the other without end: epoch after epoch, each in its own order when
// shuffled. Any position can be read at once. Thread safe.
//
// Cost: per epoch in use, 8 bytes for every 64 documents, and one pass over the lengths of all documents when
// a position of that epoch is first read (about 0.3 us a document). At most four epochs are kept.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/document_set.h"

namespace trainctl::data {

struct ShuffleKey {
  bool shuffle = false;
  uint64_t seed = 0;
  std::string stream;  // names the source, so that sources are shuffled independently
};

// Where Read writes; `count` elements each.
struct StreamOutput {
  int32_t* tokens;
  uint8_t* learn;   // 0: a prompt's token, not to be learned
  uint8_t* starts;  // 1: the first token of a document
};

class TokenStream {
 public:
  // `documents` must hold at least one token.
  TokenStream(DocumentSet documents, ShuffleKey key);
  ~TokenStream();

  int64_t epoch_tokens() const { return documents_.num_tokens(); }
  absl::Status CheckUnchanged() const { return documents_.CheckUnchanged(); }

  // Tokens [position, position + count) of the stream; position + count must be below 2^62. Call
  // CheckUnchanged first.
  absl::Status Read(int64_t position, int64_t count, StreamOutput out) const;

 private:
  struct Epoch;
  absl::StatusOr<std::shared_ptr<const Epoch>> EpochOf(int64_t number) const;
  int64_t DocumentAt(const Epoch& epoch, int64_t i) const;

  DocumentSet documents_;
  ShuffleKey key_;
  mutable std::mutex mutex_;
  mutable std::list<std::shared_ptr<const Epoch>> recent_;  // the last used first
};

}  // namespace trainctl::data
