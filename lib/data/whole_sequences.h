// Sequences of whole documents: none is cut, so a completion always sees its prompt.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/document_set.h"
#include "data/sequences.h"
#include "data/token_stream.h"

namespace trainctl::data {

// Documents are placed by best fit, the longest first (Johnson 1973: at most 11/9 of the fewest possible
// sequences, and a few). How many documents of which length share a sequence depends on the lengths alone, so
// that every epoch has the same number of sequences. Which document of that length takes a place, and the
// order of the sequences, are drawn again for each epoch if the key shuffles; otherwise sequences and the
// documents in them come in the order of the documents. An epoch has each placed document exactly once.
//
// Memory: 16 bytes per document and 8 per sequence.
class WholeSequences : public Sequences {
 public:
  // Documents of more than seq_len tokens are cut to seq_len if `cut_longer`, otherwise left out. `name` is
  // the source's name for messages. BadDataError if all documents are left out.
  static absl::StatusOr<std::unique_ptr<WholeSequences>> Make(DocumentSet documents, ShuffleKey key,
                                                              int64_t seq_len, bool cut_longer,
                                                              const std::string& name);

  absl::Status Fill(int64_t number, int64_t row, Batch& batch) const override;
  int64_t EpochSequences() const override { return static_cast<int64_t>(first_place_.size()) - 1; }
  int64_t EpochTokens() const override { return EpochSequences() * seq_len_; }
  absl::Status CheckUnchanged() const override { return documents_.CheckUnchanged(); }

  int64_t num_longer() const { return num_longer_; }
  int64_t num_documents() const { return documents_.num_documents(); }
  // Share of an epoch's tokens that are not padding.
  double UsedShare() const;

 private:
  WholeSequences(DocumentSet documents, ShuffleKey key, int64_t seq_len)
      : documents_(std::move(documents)), key_(std::move(key)), seq_len_(seq_len) {}

  // The sequence of each document in `by_length_`. Sets `sequences` to the number of sequences.
  std::vector<int64_t> BestFit(int64_t& sequences) const;
  void OrderPlaces(const std::vector<int64_t>& sequence_of, int64_t sequences);
  int64_t PlacedTokens(int64_t document) const;
  // The document that takes place `i` of by_length_ in an epoch.
  int64_t DocumentAt(int64_t epoch, int64_t i) const;
  int64_t Shuffled(int64_t epoch, int64_t index) const;

  DocumentSet documents_;
  ShuffleKey key_;
  int64_t seq_len_;
  int64_t num_longer_ = 0;
  std::vector<int64_t> by_length_;    // those that are placed, the longest first, then in their order
  std::map<int64_t, int64_t> first_;  // by length: the index of its first document in by_length_
  std::vector<int64_t> places_;       // of by_length_, sequence by sequence
  std::vector<int64_t> first_place_;  // of each sequence, and the end
};

}  // namespace trainctl::data
