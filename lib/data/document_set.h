// Which documents of a source train and which are held out. Empty documents are left out of both.
// Immutable; thread safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/document_store.h"

namespace trainctl::data {

// Documents chosen from a store, numbered anew 0, 1, ...; each has at least one token. Those that train are
// in the store's order, those held out in the order in which they were drawn.
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
  std::vector<int64_t> ids_;  // empty: all of the store
  int64_t num_documents_ = 0;
  int64_t num_tokens_ = 0;
  // A set that is a part of one document.
  int64_t only_first_ = 0;
  int64_t only_tokens_ = -1;
};

struct Split {
  DocumentSet train;
  DocumentSet held_out;  // no documents for holdout = 0
};

// Holds out the rounded share of documents, at least one and not all, chosen by `seed` and `stream`; of a
// source with a single document, the rounded share of its tokens at its end, at least 2 and not all.
// BadDataError when the source (`name`, for the message) has no token, or too few to split.
absl::StatusOr<Split> SplitDocuments(std::shared_ptr<const DocumentStore> store, double holdout,
                                     uint64_t seed, uint64_t stream, const std::string& name);

// Several sets as one store: their documents dealt evenly, so that any first part has all sets in their
// shares.
std::unique_ptr<DocumentStore> Interleave(std::vector<DocumentSet> sets);

}  // namespace trainctl::data
