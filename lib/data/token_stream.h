// An endless stream of a set's documents, epoch after epoch. With shuffling, each epoch has its own order.
// Supports random access. Thread-safe.
//
// Each epoch in use costs 8 bytes per 64 documents and, when it is first read, one pass over the lengths of
// all documents (about 0.3 us per document). At most four epochs are cached.
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
  std::string stream;  // source name, which makes the sources' orders independent
};

// The output of Read, with `count` elements in each array.
struct StreamOutput {
  int32_t* tokens;
  uint8_t* learn;   // 0 for tokens of a prompt, which are not trained on
  uint8_t* starts;  // 1 for the first token of a document
};

class TokenStream {
 public:
  // Requires that `documents` contain at least one token.
  TokenStream(DocumentSet documents, ShuffleKey key);
  ~TokenStream();

  int64_t epoch_tokens() const { return documents_.num_tokens(); }
  absl::Status CheckUnchanged() const { return documents_.CheckUnchanged(); }

  // Reads the tokens [position, position + count) of the stream; position + count must be below 2^62. Call
  // CheckUnchanged first.
  absl::Status Read(int64_t position, int64_t count, StreamOutput out) const;

 private:
  struct Epoch;
  absl::StatusOr<std::shared_ptr<const Epoch>> EpochOf(int64_t number) const;
  int64_t DocumentAt(const Epoch& epoch, int64_t i) const;

  DocumentSet documents_;
  ShuffleKey key_;
  mutable std::mutex mutex_;
  mutable std::list<std::shared_ptr<const Epoch>> recent_;  // most recently used first
};

}  // namespace trainctl::data
