// The sequences of one source, which become the rows of batches. Immutable; thread-safe.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/batch_source.h"
#include "data/token_stream.h"
#include "recipe/recipe.h"

namespace trainctl::data {

// How documents are arranged in sequences. kDocuments and kContinuous concatenate a source's documents and
// cut the stream every seq_len tokens, whereas kWhole never splits a document (whole_sequences.h). Attention
// does not cross document boundaries, except for kContinuous.
enum class Packing { kDocuments, kContinuous, kWhole };

// Returns the packing for data.packing. "auto" means kWhole if the source has prompts, and kDocuments
// otherwise. Returns UsageError if data.packing is unknown.
absl::StatusOr<Packing> PackingOf(const recipe::DataConfig& data, const recipe::DataSource& source);

// Returns a batch of `num_sequences` rows of padding: tokens and targets are 0, and all targets are masked
// out.
Batch PaddingBatch(int64_t num_sequences, int64_t seq_len);

class Sequences {
 public:
  virtual ~Sequences() = default;

  // Writes sequence `number` (>= 0) to row `row` of `batch`, which must be padding.
  virtual absl::Status Fill(int64_t number, int64_t row, Batch& batch) const = 0;

  // Returns the number of sequences that together contain every token of the source once. The last one may be
  // partly padding.
  virtual int64_t EpochSequences() const = 0;
  // Returns the number of tokens that an epoch contributes to a run, including padding.
  virtual int64_t EpochTokens() const = 0;
  // Returns BadDataError if a file has changed. Must be called before Fill.
  virtual absl::Status CheckUnchanged() const = 0;
};

enum class Repeat {
  // Epochs repeat without end. If the key enables shuffling, each epoch's sequences are shuffled as well, so
  // that the pieces of one long document do not fill a batch.
  kEndless,
  kOnce,  // one epoch in order, followed by padding
};

// Returns the sequences of a token stream. Sequence k contains the tokens [k * seq_len, (k + 1) * seq_len) of
// the stream; the target of each token is the one that follows it.
//
// With kDocuments, document numbers count the boundaries inside a sequence, positions restart at the
// beginning of the sequence and of each document in it, and the last token of a document has target 0, masked
// out. With kContinuous, boundaries are ignored. In both cases, targets that belong to a prompt are masked
// out.
std::unique_ptr<Sequences> StreamSequences(DocumentSet documents, ShuffleKey key, int64_t seq_len,
                                           Packing packing, Repeat repeat);

}  // namespace trainctl::data
