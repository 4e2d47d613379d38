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
  std::vector<int32_t> positions;  // restart at 0 with each document (packing = "documents")
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

struct DataSets {
  std::unique_ptr<BatchSource> train;
  std::vector<EvalSet> eval;
};

class KeptDocuments;

struct OpenOptions {
  // Told, now and then, how much of what has to be read was.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress;
  KeptDocuments* kept = nullptr;  // asked first, and given what was read
};

// Opens the training mix and the evaluation sets of a recipe: together, where both are used, since text and
// JSONL are read and kept in memory once then. `batch_sequences` per step comes from the recipe. Errors:
// BadDataError naming the file.
absl::StatusOr<DataSets> OpenData(const recipe::Recipe& recipe, OpenOptions options = {});
absl::StatusOr<std::unique_ptr<BatchSource>> OpenTrainSource(const recipe::Recipe& recipe);
absl::StatusOr<std::vector<EvalSet>> OpenEvalSets(const recipe::Recipe& recipe);

// Why they cannot be opened: what is wrong with the tokenizer, each source and each evaluation set, the first
// mistake of each. Empty: they can. A source with a file that does not exist is passed over where another
// one is wrong: loading the recipe has named it.
std::vector<absl::Status> FindDataProblems(const recipe::Recipe& recipe, OpenOptions options = {});

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
