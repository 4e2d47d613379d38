// Sequences of whole documents. No document is split between sequences, so a completion always sees its
// prompt.
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

// Places documents by best fit, longest first (Johnson 1973: at most 11/9 of the minimum number of sequences,
// plus a constant). The placement depends only on the lengths of the documents, so every epoch has the same
// number of sequences. Each epoch contains each placed document exactly once.
//
// If the key shuffles, each epoch randomly assigns the documents of each length to the places of that length,
// and also shuffles the sequences. Otherwise, the sequences and the documents in them follow the order of the
// documents.
//
// Uses 16 bytes of memory per document and 8 per sequence.
class WholeSequences : public Sequences {
 public:
  // Documents longer than seq_len tokens are cut to seq_len if `cut_longer`, and otherwise left out. `name`
  // is the source's name for error messages. Returns BadDataError if all documents are left out.
  static absl::StatusOr<std::unique_ptr<WholeSequences>> Make(DocumentSet documents, ShuffleKey key,
                                                              int64_t seq_len, bool cut_longer,
                                                              const std::string& name);

  absl::Status Fill(int64_t number, int64_t row, Batch& batch) const override;
  int64_t EpochSequences() const override { return static_cast<int64_t>(first_place_.size()) - 1; }
  int64_t EpochTokens() const override { return EpochSequences() * seq_len_; }
  absl::Status CheckUnchanged() const override { return documents_.CheckUnchanged(); }

  int64_t num_longer() const { return num_longer_; }
  int64_t num_documents() const { return documents_.num_documents(); }
  // Returns the share of an epoch's tokens that are not padding.
  double UsedShare() const;

 private:
  WholeSequences(DocumentSet documents, ShuffleKey key, int64_t seq_len)
      : documents_(std::move(documents)), key_(std::move(key)), seq_len_(seq_len) {}

  // Returns the sequence of each document in `by_length_` and sets `sequences` to the number of sequences.
  std::vector<int64_t> BestFit(int64_t& sequences) const;
  void OrderPlaces(const std::vector<int64_t>& sequence_of, int64_t sequences);
  int64_t PlacedTokens(int64_t document) const;
  // Returns the document at place `i` of by_length_ in an epoch.
  int64_t DocumentAt(int64_t epoch, int64_t i) const;
  int64_t Shuffled(int64_t epoch, int64_t index) const;

  DocumentSet documents_;
  ShuffleKey key_;
  int64_t seq_len_;
  int64_t num_longer_ = 0;
  std::vector<int64_t> by_length_;    // placed documents, longest first, then in order
  std::map<int64_t, int64_t> first_;  // first index in by_length_, keyed by length
  std::vector<int64_t> places_;       // indices in by_length_, sequence by sequence
  std::vector<int64_t> first_place_;  // first place of each sequence, then the end
};

}  // namespace trainctl::data
