// Batches for training and evaluation. A batch is a pure function of (seed, step): the same at any
// number of workers, after any resume, over epochs. Thread safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "recipe/recipe.h"

namespace trainctl::data {

// Sequences [first, first + count) of a step's global batch.
struct SequenceRange {
  int64_t first = 0;
  int64_t count = 0;
};

// Row-major [num_sequences, seq_len] each.
struct Batch {
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;    // the next token, within the document
  std::vector<int32_t> positions;  // restart at 0 with each document, but for packing = "continuous"
  // Attention is causal within equal document numbers; numbers are per sequence, 0, 1, 2, ... and
  // non-decreasing along it. All zero for packing = "continuous".
  std::vector<int32_t> document;
  std::vector<uint8_t> loss_mask;  // 1 where the target counts
  int64_t num_sequences = 0;
  int64_t seq_len = 0;
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Sequences of the global batch of `step` (0-based). BadDataError when a file has changed under
  // the run (size), or a token is not below the vocabulary.
  virtual absl::StatusOr<Batch> Get(int64_t step, SequenceRange which) const = 0;
};

struct EvalSet {
  std::string name;
  std::unique_ptr<BatchSource> source;  // "step" is the evaluation batch's number
  int64_t num_batches = 0;              // at most train.eval_batches; the same at any layout
};

// How the documents of a source or evaluation set were placed (data.packing = "whole").
struct Placement {
  std::string source;
  int64_t documents = 0;
  int64_t longer = 0;     // than a sequence: left out, or cut, as data.long_documents says
  double used_share = 0;  // of the tokens of its sequences; the others are padding
};
// "answers: 515 documents placed whole; 3 longer than 1,024 tokens left out; 98.4 % of each sequence is used"
std::string FormatPlacement(const Placement& placement, const recipe::DataConfig& data);

// How much of a training source a run reads.
struct SourceUse {
  std::string source;
  int64_t epoch_tokens = 0;  // includes padding if documents are placed whole
  double epochs = 0;
};
// "the data has 2.10M tokens; the run reads 0.16 epochs"; of several sources, each.
std::string FormatUses(const std::vector<SourceUse>& uses);

struct DataSets {
  std::unique_ptr<BatchSource> train;
  std::vector<EvalSet> eval;
  std::vector<SourceUse> uses;
  std::vector<Placement> placements;
  std::string end_of_document;  // the token that ends a document; empty: none, or bytes
  std::string own_starts;       // a sentence about texts that begin with the tokenizer's prefix
  // A sentence for each source with bad lines that were left out (data.on_bad_line). Kept documents have
  // none.
  std::vector<std::string> left_out;
};

class KeptDocuments;

struct OpenOptions {
  // Told, now and then, how much of what has to be read was.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress;
  KeptDocuments* kept = nullptr;  // asked first, and given what was read
  bool check_tokens = false;      // read indexed datasets once, to see that every token is in the vocabulary
};

// Opens the training mix and the evaluation sets of a recipe: together, where both are used, since text and
// JSONL are read and kept in memory once then. `batch_sequences` per step comes from the recipe. Errors:
// BadDataError naming the file.
absl::StatusOr<DataSets> OpenData(const recipe::Recipe& recipe, OpenOptions options = {});
absl::StatusOr<std::unique_ptr<BatchSource>> OpenTrainSource(const recipe::Recipe& recipe);
absl::StatusOr<std::vector<EvalSet>> OpenEvalSets(const recipe::Recipe& recipe);

struct DataReport {
  std::vector<absl::Status> problems;  // empty: the data can be opened
  std::vector<std::string> notes;      // what a person should know before they are trained on
  std::string end_of_document;         // as in DataSets, if the data can be opened
};
// The first problem of the tokenizer, of each source and of each evaluation set. A source with a missing file
// is skipped if another source has a problem, because loading the recipe has named that file.
DataReport CheckData(const recipe::Recipe& recipe, OpenOptions options = {});

// Bytes of files that OpenData reads whole, where nothing is kept.
int64_t BytesReadAtOpening(const recipe::DataConfig& data);

// What a run records of each file, and compares on resume: its size, and XXH3-64 of its bytes. Of a file
// above kWholeFileBytes only its ends and pieces in between are read, so that a run on terabytes starts at
// once.
struct FileFingerprint {
  std::string path;
  int64_t size_bytes = 0;
  uint64_t xxh3 = 0;
  bool sampled = false;  // xxh3 is of kFingerprintPieces pieces, one behind the other
};
inline constexpr int64_t kWholeFileBytes = int64_t{64} << 20;
inline constexpr int64_t kFingerprintPieces = 64;
inline constexpr int64_t kFingerprintPieceBytes = int64_t{64} << 10;
absl::StatusOr<std::vector<FileFingerprint>> Fingerprint(const recipe::DataConfig& data);

}  // namespace trainctl::data
