#include "data/whole_sequences.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/counter_rng.h"
#include "base/status.h"

namespace trainctl::data {

absl::StatusOr<std::unique_ptr<WholeSequences>> WholeSequences::Make(DocumentSet documents, ShuffleKey key,
                                                                     int64_t seq_len, bool cut_longer,
                                                                     const std::string& name) {
  std::unique_ptr<WholeSequences> made(new WholeSequences(std::move(documents), std::move(key), seq_len));
  int64_t longest = 0;
  for (int64_t i = 0; i < made->documents_.num_documents(); ++i) {
    const int64_t tokens = made->documents_.DocumentTokens(i);
    longest = std::max(longest, tokens);
    if (tokens > seq_len) ++made->num_longer_;
    if (tokens <= seq_len || cut_longer) made->by_length_.push_back(i);
  }
  if (made->by_length_.empty()) {
    return BadDataError(
        absl::StrCat(name, ": all ", made->num_longer_, " documents have more than data.seq_len = ", seq_len,
                     " tokens, so none can be packed whole; the longest has ", longest,
                     ". Raise data.seq_len, or set data.long_documents = \"cut\" to train on only the first ",
                     seq_len, " tokens of each"));
  }
  std::stable_sort(made->by_length_.begin(), made->by_length_.end(),
                   [&](int64_t a, int64_t b) { return made->PlacedTokens(a) > made->PlacedTokens(b); });
  for (size_t i = made->by_length_.size(); i-- > 0;) {
    made->first_[made->PlacedTokens(made->by_length_[i])] = static_cast<int64_t>(i);
  }
  int64_t sequences = 0;
  const std::vector<int64_t> sequence_of = made->BestFit(sequences);
  made->OrderPlaces(sequence_of, sequences);
  return made;
}

int64_t WholeSequences::PlacedTokens(int64_t document) const {
  return std::min(documents_.DocumentTokens(document), seq_len_);
}

std::vector<int64_t> WholeSequences::BestFit(int64_t& sequences) const {
  std::map<int64_t, std::vector<int64_t>> open;  // free tokens: sequences with as many
  std::vector<int64_t> sequence_of;
  sequence_of.reserve(by_length_.size());
  sequences = 0;
  for (const int64_t document : by_length_) {
    const int64_t tokens = PlacedTokens(document);
    int64_t free_tokens = seq_len_;
    int64_t sequence = sequences;
    const auto tightest = open.lower_bound(tokens);
    if (tightest == open.end()) {
      ++sequences;
    } else {
      free_tokens = tightest->first;
      sequence = tightest->second.back();
      tightest->second.pop_back();
      if (tightest->second.empty()) open.erase(tightest);
    }
    sequence_of.push_back(sequence);
    if (free_tokens > tokens) open[free_tokens - tokens].push_back(sequence);
  }
  return sequence_of;
}

void WholeSequences::OrderPlaces(const std::vector<int64_t>& sequence_of, int64_t sequences) {
  // A sequence's rank is that of its first document.
  std::vector<int64_t> first_document(static_cast<size_t>(sequences), INT64_MAX);
  for (size_t i = 0; i < sequence_of.size(); ++i) {
    int64_t& first = first_document[static_cast<size_t>(sequence_of[i])];
    first = std::min(first, by_length_[i]);
  }
  const auto key = [&](int64_t place) {
    const size_t i = static_cast<size_t>(place);
    return std::pair(first_document[static_cast<size_t>(sequence_of[i])], by_length_[i]);
  };
  places_.resize(sequence_of.size());
  std::iota(places_.begin(), places_.end(), 0);
  std::sort(places_.begin(), places_.end(), [&](int64_t a, int64_t b) { return key(a) < key(b); });
  for (size_t i = 0; i < places_.size(); ++i) {
    const int64_t sequence = sequence_of[static_cast<size_t>(places_[i])];
    if (i == 0 || sequence != sequence_of[static_cast<size_t>(places_[i - 1])]) {
      first_place_.push_back(static_cast<int64_t>(i));
    }
  }
  first_place_.push_back(static_cast<int64_t>(places_.size()));
}

double WholeSequences::UsedShare() const {
  int64_t used = 0;
  for (const int64_t document : by_length_) used += PlacedTokens(document);
  return static_cast<double>(used) / static_cast<double>(EpochTokens());
}

int64_t WholeSequences::DocumentAt(int64_t epoch, int64_t i) const {
  if (!key_.shuffle) return by_length_[static_cast<size_t>(i)];
  const int64_t tokens = PlacedTokens(by_length_[static_cast<size_t>(i)]);
  const auto found = first_.find(tokens);
  const int64_t begin = found->second;
  const int64_t end = found == first_.begin() ? static_cast<int64_t>(by_length_.size())
                                              : std::prev(found)->second;  // of the next shorter ones
  const uint64_t stream = StreamOf(absl::StrCat(key_.stream, "/epoch/", epoch, "/length/", tokens));
  return by_length_[static_cast<size_t>(
      begin + static_cast<int64_t>(PermutedIndex(key_.seed, stream, static_cast<uint64_t>(i - begin),
                                                 static_cast<uint64_t>(end - begin))))];
}

int64_t WholeSequences::Shuffled(int64_t epoch, int64_t index) const {
  if (!key_.shuffle) return index;
  const uint64_t stream = StreamOf(absl::StrCat(key_.stream, "/sequences/", epoch));
  return static_cast<int64_t>(PermutedIndex(key_.seed, stream, static_cast<uint64_t>(index),
                                            static_cast<uint64_t>(EpochSequences())));
}

absl::Status WholeSequences::Fill(int64_t number, int64_t row, Batch& batch) const {
  const int64_t epoch = number / EpochSequences();
  const size_t sequence = static_cast<size_t>(Shuffled(epoch, number % EpochSequences()));
  std::vector<uint8_t> learn(static_cast<size_t>(seq_len_));
  const size_t end = static_cast<size_t>((row + 1) * seq_len_);
  size_t at = static_cast<size_t>(row * seq_len_);
  int32_t index = 0;  // of the document in the sequence
  for (int64_t place = first_place_[sequence]; place < first_place_[sequence + 1]; ++place) {
    const int64_t document = DocumentAt(epoch, places_[static_cast<size_t>(place)]);
    const int64_t count = PlacedTokens(document);
    TRAINCTL_RETURN_IF_ERROR(documents_.Read(document, 0, count, batch.tokens.data() + at, learn.data()));
    for (int64_t t = 0; t < count; ++t, ++at) {
      batch.document[at] = index;
      batch.positions[at] = static_cast<int32_t>(t);
      if (t + 1 == count) continue;  // the last token of a document has no target
      batch.targets[at] = batch.tokens[at + 1];
      batch.loss_mask[at] = learn[static_cast<size_t>(t + 1)];
    }
    ++index;
  }
  // Padding counts as a separate document, so nothing attends to it.
  for (int32_t t = 0; at < end; ++t, ++at) {
    batch.document[at] = index;
    batch.positions[at] = t;
  }
  return absl::OkStatus();
}

}  // namespace trainctl::data
