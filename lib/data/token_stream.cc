#include "data/token_stream.h"

#include <algorithm>
#include <utility>

#include "base/counter_rng.h"
#include "base/status.h"

namespace trainctl::data {
namespace {

constexpr int64_t kDocumentsPerBlock = 64;
constexpr size_t kKeptEpochs = 4;

}  // namespace

struct TokenStream::Epoch {
  int64_t number = 0;
  uint64_t stream = 0;                // of the permutation
  std::vector<int64_t> block_starts;  // position in the epoch of every 64th document of its order
};

TokenStream::TokenStream(DocumentSet documents, ShuffleKey key)
    : documents_(std::move(documents)), key_(std::move(key)) {
  TRAINCTL_CHECK(documents_.num_tokens() > 0);
}

TokenStream::~TokenStream() = default;

int64_t TokenStream::DocumentAt(const Epoch& epoch, int64_t i) const {
  if (!key_.shuffle) return i;
  return static_cast<int64_t>(PermutedIndex(key_.seed, epoch.stream, static_cast<uint64_t>(i),
                                            static_cast<uint64_t>(documents_.num_documents())));
}

absl::StatusOr<std::shared_ptr<const TokenStream::Epoch>> TokenStream::EpochOf(int64_t number) const {
  if (!key_.shuffle) number = 0;  // all alike
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto it = recent_.begin(); it != recent_.end(); ++it) {
    if ((*it)->number != number) continue;
    recent_.splice(recent_.begin(), recent_, it);
    return recent_.front();
  }
  auto epoch = std::make_shared<Epoch>();
  epoch->number = number;
  epoch->stream = StreamOf(absl::StrCat(key_.stream, "/epoch/", number));
  const int64_t num_documents = documents_.num_documents();
  epoch->block_starts.reserve(static_cast<size_t>(num_documents / kDocumentsPerBlock + 1));
  int64_t position = 0;
  for (int64_t i = 0; i < num_documents; ++i) {
    if (i % kDocumentsPerBlock == 0) epoch->block_starts.push_back(position);
    position += documents_.DocumentTokens(DocumentAt(*epoch, i));
  }
  if (position != documents_.num_tokens()) {
    return BadDataError(absl::StrCat("data source ", key_.stream, ": its documents had ",
                                     documents_.num_tokens(), " tokens when it was opened and now have ",
                                     position, "; data files must not change during a run"));
  }
  recent_.push_front(epoch);
  if (recent_.size() > kKeptEpochs) recent_.pop_back();
  return epoch;
}

absl::Status TokenStream::Read(int64_t position, int64_t count, StreamOutput out) const {
  TRAINCTL_CHECK(position >= 0 && count >= 0 && position < (int64_t{1} << 62) - count);
  int64_t done = 0;
  while (done < count) {
    const int64_t number = (position + done) / epoch_tokens();
    const int64_t offset = (position + done) % epoch_tokens();
    TRAINCTL_ASSIGN_OR_RETURN(const std::shared_ptr<const Epoch> epoch, EpochOf(number));
    const auto& starts = epoch->block_starts;
    const int64_t block = std::upper_bound(starts.begin(), starts.end(), offset) - starts.begin() - 1;
    const int64_t done_before = done;
    int64_t i = block * kDocumentsPerBlock;
    int64_t skip = offset - starts[static_cast<size_t>(block)];  // within document i of the epoch's order
    for (; done < count && i < documents_.num_documents(); ++i) {
      const int64_t document = DocumentAt(*epoch, i);
      const int64_t document_tokens = documents_.DocumentTokens(document);
      if (skip >= document_tokens) {
        skip -= document_tokens;
        continue;
      }
      const int64_t taken = std::min(count - done, document_tokens - skip);
      TRAINCTL_RETURN_IF_ERROR(documents_.Read(document, skip, taken, out.tokens + done, out.learn + done));
      std::fill_n(out.starts + done, taken, uint8_t{0});
      if (skip == 0) out.starts[done] = 1;
      done += taken;
      skip = 0;
    }
    if (done == done_before) {
      return BadDataError(absl::StrCat(
          "data source ", key_.stream,
          ": its documents have changed since it was opened; data files must not change during a run"));
    }
  }
  return absl::OkStatus();
}

}  // namespace trainctl::data
