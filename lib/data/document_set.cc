#include "data/document_set.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/counter_rng.h"
#include "base/status.h"
#include "base/units.h"
#include "data/mixture.h"

namespace trainctl::data {

struct SplitBuilder {
  static DocumentSet Make(std::shared_ptr<const DocumentStore> store, std::vector<int64_t> ids,
                          int64_t num_documents, int64_t num_tokens) {
    DocumentSet set;
    set.store_ = std::move(store);
    set.ids_ = std::move(ids);
    set.num_documents_ = num_documents;
    set.num_tokens_ = num_tokens;
    return set;
  }
  static DocumentSet Part(DocumentSet whole, int64_t first, int64_t count) {
    whole.only_first_ = first;
    whole.only_tokens_ = count;
    whole.num_tokens_ = count;
    return whole;
  }
};

namespace {

class InterleavedDocuments : public DocumentStore {
 public:
  InterleavedDocuments(std::vector<DocumentSet> sets, const std::vector<int64_t>& counts)
      : sets_(std::move(sets)), order_(counts) {
    for (const int64_t count : counts) num_documents_ += count;
  }

  int64_t num_documents() const override { return num_documents_; }
  int64_t DocumentTokens(int64_t document) const override {
    const Mixture::Draw draw = order_.At(document);
    return sets_[static_cast<size_t>(draw.source)].DocumentTokens(draw.index);
  }
  absl::Status Read(int64_t document, int64_t first, int64_t count, int32_t* tokens,
                    uint8_t* learn) const override {
    const Mixture::Draw draw = order_.At(document);
    return sets_[static_cast<size_t>(draw.source)].Read(draw.index, first, count, tokens, learn);
  }
  absl::Status CheckUnchanged() const override {
    for (const DocumentSet& set : sets_) TRAINCTL_RETURN_IF_ERROR(set.CheckUnchanged());
    return absl::OkStatus();
  }

 private:
  std::vector<DocumentSet> sets_;
  Mixture order_;  // after all documents its counts are exact
  int64_t num_documents_ = 0;
};

int64_t HeldOutCount(double holdout, int64_t total, int64_t at_least) {
  return std::clamp<int64_t>(std::llround(holdout * static_cast<double>(total)), at_least, total - 1);
}

}  // namespace

absl::StatusOr<Split> SplitDocuments(std::shared_ptr<const DocumentStore> store, double holdout,
                                     uint64_t seed, uint64_t stream, const std::string& name) {
  if (!(holdout >= 0.0 && holdout < 1.0)) {
    return UsageError(
        absl::StrCat("data source ", name, ": holdout = ", holdout, " must be at least 0 and below 1"));
  }
  const int64_t stored = store->num_documents();
  int64_t filled = 0;
  int64_t num_tokens = 0;
  for (int64_t id = 0; id < stored; ++id) {
    const int64_t tokens = store->DocumentTokens(id);
    filled += tokens > 0 ? 1 : 0;
    num_tokens += tokens;
  }
  if (filled == 0) {
    return BadDataError(
        absl::StrCat("data source ", name, " contains no tokens in ", FormatNumberOf(stored, "document")));
  }
  const int64_t num_held_out = holdout > 0 && filled > 1 ? HeldOutCount(holdout, filled, 1) : 0;
  if (holdout == 0 && filled == stored) {
    return Split{SplitBuilder::Make(std::move(store), {}, stored, num_tokens), {}};
  }

  std::vector<int64_t> ids;  // of the documents that are not empty
  ids.reserve(static_cast<size_t>(filled));
  for (int64_t id = 0; id < stored; ++id) {
    if (store->DocumentTokens(id) > 0) ids.push_back(id);
  }
  // The held-out documents are the first of a keyed permutation, and stay in its order: any first part of
  // them is a fair sample.
  std::vector<int64_t> held_out_ids;
  held_out_ids.reserve(static_cast<size_t>(num_held_out));
  int64_t held_out_tokens = 0;
  for (int64_t i = 0; i < num_held_out; ++i) {
    int64_t& id = ids[PermutedIndex(seed, stream, static_cast<uint64_t>(i), static_cast<uint64_t>(filled))];
    held_out_tokens += store->DocumentTokens(id);
    held_out_ids.push_back(std::exchange(id, -1));
  }
  std::vector<int64_t> train_ids = std::move(ids);
  std::erase(train_ids, -1);
  DocumentSet train =
      SplitBuilder::Make(store, std::move(train_ids), filled - num_held_out, num_tokens - held_out_tokens);
  if (holdout == 0) return Split{std::move(train), {}};
  if (num_held_out > 0) {
    return Split{std::move(train),
                 SplitBuilder::Make(store, std::move(held_out_ids), num_held_out, held_out_tokens)};
  }
  if (num_tokens < 4) {
    return BadDataError(absl::StrCat("data source ", name, " has one document of ", num_tokens,
                                     " tokens; holding out a part requires at least 4"));
  }
  const int64_t tail_tokens = HeldOutCount(holdout, num_tokens, 2);
  DocumentSet tail = SplitBuilder::Part(train, num_tokens - tail_tokens, tail_tokens);
  return Split{SplitBuilder::Part(std::move(train), 0, num_tokens - tail_tokens), std::move(tail)};
}

std::unique_ptr<DocumentStore> Interleave(std::vector<DocumentSet> sets) {
  std::vector<int64_t> counts;
  for (const DocumentSet& set : sets) counts.push_back(set.num_documents());
  return std::make_unique<InterleavedDocuments>(std::move(sets), counts);
}

}  // namespace trainctl::data
