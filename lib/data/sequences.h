// The sequences of one source, as rows of a batch. Immutable; thread safe.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/batch_source.h"
#include "data/token_stream.h"
#include "recipe/recipe.h"

namespace trainctl::data {

// kDocuments and kContinuous cut the stream of a source's documents every seq_len tokens; kWhole places each
// document whole (whole_sequences.h). Attention stays inside a document except for kContinuous.
enum class Packing { kDocuments, kContinuous, kWhole };

// The packing of data.packing. For "auto", kWhole if the source has prompts, otherwise kDocuments.
// UsageError.
absl::StatusOr<Packing> PackingOf(const recipe::DataConfig& data, const recipe::DataSource& source);

// A batch of `num_sequences` rows, all of padding: token and target 0, masked out.
Batch PaddingBatch(int64_t num_sequences, int64_t seq_len);

class Sequences {
 public:
  virtual ~Sequences() = default;

  // Fills row `row` of `batch`, which must be padding, with sequence `number` >= 0.
  virtual absl::Status Fill(int64_t number, int64_t row, Batch& batch) const = 0;

  // How many have every token of the source once, the last of them perhaps in part.
  virtual int64_t EpochSequences() const = 0;
  // The tokens that an epoch adds to a run, padding included.
  virtual int64_t EpochTokens() const = 0;
  // Call before Fill.
  virtual absl::Status CheckUnchanged() const = 0;
};

enum class Repeat {
  kEndless,  // epoch after epoch; with a key that shuffles, the sequences of an epoch in shuffled order too,
             // so that the pieces of one long document do not fill a batch
  kOnce,     // one epoch, in order; behind its last token stays padding
};

// Sequence k is tokens [k * seq_len, (k + 1) * seq_len) of the stream; its targets are one token further.
//
// kDocuments: document numbers count the borders inside the sequence; positions count from its start or the
// document's start in it; the last token of a document has target 0, masked out. kContinuous: borders do not
// matter. In both, a target that belongs to a prompt is masked out.
std::unique_ptr<Sequences> StreamSequences(DocumentSet documents, ShuffleKey key, int64_t seq_len,
                                           Packing packing, Repeat repeat);

}  // namespace trainctl::data
