// Splits a source's documents into training and held-out documents. Empty documents belong to neither set.
// Immutable; thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/document_store.h"

namespace trainctl::data {

// A selection of a store's documents, renumbered 0, 1, ... Each has at least one token. Training documents
// keep the store's order; held-out ones are in the order in which they were drawn.
class DocumentSet {
 public:
  int64_t num_documents() const { return num_documents_; }
  int64_t num_tokens() const { return num_tokens_; }
  int64_t DocumentTokens(int64_t i) const {
    return only_tokens_ >= 0 ? only_tokens_ : store_->DocumentTokens(Id(i));
  }
  absl::Status Read(int64_t i, int64_t first, int64_t count, int32_t* tokens, uint8_t* learn) const {
    return store_->Read(Id(i), only_first_ + first, count, tokens, learn);
  }
  absl::Status CheckUnchanged() const { return store_->CheckUnchanged(); }

 private:
  friend struct SplitBuilder;
  int64_t Id(int64_t i) const { return ids_.empty() ? i : ids_[static_cast<size_t>(i)]; }

  std::shared_ptr<const DocumentStore> store_;
  std::vector<int64_t> ids_;  // empty if the whole store is selected
  int64_t num_documents_ = 0;
  int64_t num_tokens_ = 0;
  // Range of tokens, if the selection is part of one document.
  int64_t only_first_ = 0;
  int64_t only_tokens_ = -1;
};

struct Split {
  DocumentSet train;
  DocumentSet held_out;  // empty if the holdout is 0
};

// Holds out a share of the documents, chosen by `seed` and `stream`. The number is rounded and is at least
// one but not all. If the source has only one document, holds out that share of its tokens instead, from the
// end: at least 2 but not all. Returns BadDataError if the source has no tokens or too few to split; `name`
// is the source's name for the message.
absl::StatusOr<Split> SplitDocuments(std::shared_ptr<const DocumentStore> store, double holdout,
                                     uint64_t seed, uint64_t stream, const std::string& name);

// Combines several sets into one store. Interleaves their documents evenly, so that every prefix contains the
// sets in proportion to their sizes.
std::unique_ptr<DocumentStore> Interleave(std::vector<DocumentSet> sets);

}  // namespace trainctl::data
