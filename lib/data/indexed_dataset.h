// A memory-mapped, Megatron-compatible token dataset, consisting of PREFIX.bin (tokens) and PREFIX.idx
// (index_format.h). Immutable after opening; thread-safe. Reading from a file that shrank after it was mapped
// would kill the process, so call CheckUnchanged before each read.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "base/files.h"
#include "data/index_format.h"

namespace trainctl::data {

class IndexedDataset {
 public:
  // Opens the dataset `prefix`, given without ".bin". Validates the whole index, but not the tokens. Returns
  // BadDataError if the index is invalid (the message names the file and the field) or if a file is a Git LFS
  // pointer.
  static absl::StatusOr<IndexedDataset> Open(const std::string& prefix);

  const std::string& path() const { return data_.path(); }
  const IndexView& index() const { return view_; }

  // Returns BadDataError if either file's size has changed since it was opened.
  absl::Status CheckUnchanged() const;

  // Reads the tokens once, without converting them, and checks that they are below `vocab`. Calls
  // `bytes_read` for each piece. Reads a file of up to kMostCheckedBytes in full, but only evenly spaced
  // pieces of a larger one. Returns the errors of Read.
  static constexpr int64_t kMostCheckedBytes = int64_t{64} << 30;
  absl::Status CheckTokens(int64_t vocab, const std::function<void(int64_t bytes)>& bytes_read) const;

  // Copies the tokens [first, first + count) of a document to `tokens`; the range must be within the
  // document. Returns BadDataError if a token is not in [0, vocab); the message gives the file, document,
  // position, token, and vocabulary.
  absl::Status Read(int64_t document, int64_t first, int64_t count, int64_t vocab, int32_t* tokens) const;

 private:
  absl::Status ErrorAt(int64_t token, int64_t vocab) const;
  IndexedDataset(MappedFile data, MappedFile index, IndexView view)
      : data_(std::move(data)), index_(std::move(index)), view_(view) {}

  MappedFile data_;
  MappedFile index_;
  IndexView view_;  // view of index_, whose mapping does not move with this object
};

}  // namespace trainctl::data
