#include "data/document_set.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/counter_rng.h"
#include "base/status.h"

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

int64_t HeldOutCount(double holdout, int64_t total, int64_t at_least) {
  return std::clamp<int64_t>(std::llround(holdout * static_cast<double>(total)), at_least, total - 1);
}

}  // namespace

absl::StatusOr<Split> SplitDocuments(std::shared_ptr<const DocumentStore> store, double holdout,
                                     uint64_t seed, uint64_t stream, const std::string& name) {
  if (!(holdout >= 0.0 && holdout < 1.0)) {
    return UsageError(absl::StrCat("data source ", name, ": holdout = ", holdout, " is not within [0, 1)"));
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
    return BadDataError(absl::StrCat("data source ", name, " has no token in ", stored, " documents"));
  }
  const int64_t num_held_out = holdout > 0 && filled > 1 ? HeldOutCount(holdout, filled, 1) : 0;
  if (holdout == 0 && filled == stored) {
    return Split{SplitBuilder::Make(std::move(store), {}, stored, num_tokens), {}};
  }

  // The held-out documents are the first of a keyed permutation.
  std::vector<bool> held_out(static_cast<size_t>(filled), false);
  for (int64_t i = 0; i < num_held_out; ++i) {
    held_out[PermutedIndex(seed, stream, static_cast<uint64_t>(i), static_cast<uint64_t>(filled))] = true;
  }
  std::vector<int64_t> train_ids;
  std::vector<int64_t> held_out_ids;
  train_ids.reserve(static_cast<size_t>(filled - num_held_out));
  held_out_ids.reserve(static_cast<size_t>(num_held_out));
  int64_t held_out_tokens = 0;
  size_t rank = 0;
  for (int64_t id = 0; id < stored; ++id) {
    const int64_t tokens = store->DocumentTokens(id);
    if (tokens == 0) continue;
    if (held_out[rank++]) {
      held_out_ids.push_back(id);
      held_out_tokens += tokens;
    } else {
      train_ids.push_back(id);
    }
  }
  DocumentSet train =
      SplitBuilder::Make(store, std::move(train_ids), filled - num_held_out, num_tokens - held_out_tokens);
  if (holdout == 0) return Split{std::move(train), {}};
  if (num_held_out > 0) {
    return Split{std::move(train),
                 SplitBuilder::Make(store, std::move(held_out_ids), num_held_out, held_out_tokens)};
  }
  if (num_tokens < 4) {
    return BadDataError(absl::StrCat("data source ", name, " has one document of ", num_tokens,
                                     " tokens; holding a part out needs at least 4"));
  }
  const int64_t tail_tokens = HeldOutCount(holdout, num_tokens, 2);
  DocumentSet tail = SplitBuilder::Part(train, num_tokens - tail_tokens, tail_tokens);
  return Split{SplitBuilder::Part(std::move(train), 0, num_tokens - tail_tokens), std::move(tail)};
}

}  // namespace trainctl::data
