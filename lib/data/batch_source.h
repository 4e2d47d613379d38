// Provides batches for training and evaluation. In every epoch, a batch is a pure function of (seed, step)
// and does not depend on the number of workers or on resumes. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/fingerprint.h"
#include "recipe/recipe.h"

namespace trainctl::data {

// The sequences [first, first + count) of a step's global batch.
struct SequenceRange {
  int64_t first = 0;
  int64_t count = 0;
};

// A set of sequences. Each vector is row-major with shape [num_sequences, seq_len].
struct Batch {
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;  // next token of the same document
  // Positions restart at 0 with each document, unless packing is "continuous".
  std::vector<int32_t> positions;
  // Document numbers; attention is causal among tokens with the same number. In each sequence they start at 0
  // and count up. All zero if packing is "continuous".
  std::vector<int32_t> document;
  std::vector<uint8_t> loss_mask;  // 1 if the target counts toward the loss
  int64_t num_sequences = 0;
  int64_t seq_len = 0;
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Returns sequences from the global batch of `step` (0-based). Returns BadDataError if a file's size has
  // changed during the run or a token is outside the vocabulary.
  virtual absl::StatusOr<Batch> Get(int64_t step, SequenceRange which) const = 0;
};

// How a source's or evaluation set's documents were placed, if data.packing is "whole".
struct Placement {
  std::string source;
  int64_t documents = 0;
  // Documents longer than a sequence, which are left out or cut according to data.long_documents.
  int64_t longer = 0;
  // Documents that were cut before their completion begins, if OpenOptions::check_targets is set.
  int64_t cut_to_prompt = 0;
  double used_share = 0;  // share of tokens that are not padding
};
// Formats a placement, for example: "answers: 515 documents placed whole; 3 longer than 1,024 tokens left
// out; 98.4 % of each sequence is used".
std::string FormatPlacement(const Placement& placement, const recipe::DataConfig& data);

struct EvalSet {
  std::string name;
  std::unique_ptr<BatchSource> source;  // source whose "step" is the number of the evaluation batch
  int64_t num_batches = 0;              // at most train.eval_batches; independent of the layout
  std::optional<Placement> placement;   // set if documents are placed whole
};

// How fast a run reads a training source.
struct SourceUse {
  std::string source;
  int64_t epoch_tokens = 0;  // includes padding if documents are placed whole
  double epochs_per_step = 0;
};
// Formats what `steps` steps read, for example: "the data contains 2.10M tokens; the run covers 0.16 epochs".
// Lists each source if there are several.
std::string FormatUses(const std::vector<SourceUse>& uses, int64_t steps);

struct DataSets {
  std::unique_ptr<BatchSource> train;
  std::vector<EvalSet> eval;
  std::vector<SourceUse> uses;
  std::vector<Placement> placements;
  std::string end_of_document;  // token that ends a document; empty if there is none or tokens are bytes
  std::string own_starts;       // sentence about texts that begin with the tokenizer's prefix; may be empty
  std::string changed_prompts;  // sentence about prompts whose tokens differ without the text; may be empty
  // One sentence for each source with bad lines that were left out. Does not cover kept documents.
  std::vector<std::string> left_out;
  // Training sources and evaluation sets without a target that counts toward the loss, if
  // OpenOptions::check_targets is set.
  std::vector<std::string> idle_sources, idle_sets;
};

class KeptDocuments;

struct OpenOptions {
  // Called from time to time with the number of bytes read and the total to read.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress;
  // If set, documents are taken from here instead of being read, and newly read ones are added.
  KeptDocuments* kept = nullptr;
  // Whether to scan indexed datasets once, to check that every token is in the vocabulary.
  bool check_tokens = false;
  // Whether to look for a target that counts toward the loss in each source and evaluation set.
  bool check_targets = false;
};

// Opens the recipe's training mix and evaluation sets. A training step reads train.batch_sequences sequences.
// If you need both, open them together, so that text and JSONL are read and stored only once. Errors name the
// file.
absl::StatusOr<DataSets> OpenData(const recipe::Recipe& recipe, OpenOptions options = {});
// Opens only the training mix.
absl::StatusOr<std::unique_ptr<BatchSource>> OpenTrainSource(const recipe::Recipe& recipe);
// Opens the training data and returns the number of tokens in one epoch of all training sources, which is the
// sum of SourceUse::epoch_tokens. Does not require train.steps.
absl::StatusOr<int64_t> CountEpochTokens(const recipe::Recipe& recipe, OpenOptions options = {});
// Same as DataSets::uses, if that takes at most about a second. Empty if the data cannot be opened, or if
// opening it reads files of more than a few MiB.
std::vector<SourceUse> FindUsesQuickly(const recipe::Recipe& recipe);
// Opens only the evaluation sets.
absl::StatusOr<std::vector<EvalSet>> OpenEvalSets(const recipe::Recipe& recipe);

struct DataReport {
  std::vector<absl::Status> problems;  // empty if the data can be opened
  std::vector<std::string> notes;      // notes for the user to read before training
  std::vector<SourceUse> uses;         // set if the data can be opened
  std::string end_of_document;         // same as DataSets::end_of_document; set if the data can be opened
};
// Reports the first problem with the tokenizer, with each source, and with each evaluation set. Data without
// a target that counts toward the loss is a problem if no training source has one, and otherwise a note.
// Skips a source with a missing file if another source has a problem, because loading the recipe has already
// reported that file.
DataReport CheckData(const recipe::Recipe& recipe, OpenOptions options = {});

// Returns the total size of the files that OpenData reads in full if no documents are kept.
int64_t BytesReadAtOpening(const recipe::DataConfig& data);

// Whether OpenData, when given a KeptDocuments, may read anything worth keeping.
bool MayKeepDocuments(const recipe::DataConfig& data);

// Returns the fingerprint of each file of the data.
absl::StatusOr<std::vector<FileFingerprint>> Fingerprint(const recipe::DataConfig& data);

}  // namespace trainctl::data
