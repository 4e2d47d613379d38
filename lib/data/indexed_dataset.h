// A memory-mapped Megatron-compatible token dataset: PREFIX.bin (tokens) and PREFIX.idx (index_format.h).
// Immutable after opening; thread safe. Reading a file that shrank under the map would end the process, so
// call CheckUnchanged before reads.
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
  // `prefix` without ".bin". Checks the whole index, not the tokens. BadDataError names file and field, or
  // the file that is a Git LFS pointer.
  static absl::StatusOr<IndexedDataset> Open(const std::string& prefix);

  const std::string& path() const { return data_.path(); }
  const IndexView& index() const { return view_; }

  // BadDataError when either file no longer has the size it was opened with.
  absl::Status CheckUnchanged() const;

  // Reads the tokens once, without converting them, and tells `bytes_read` of each piece: all of a file of up
  // to kMostCheckedBytes, of a larger one pieces at equal distances. The error is that of Read.
  static constexpr int64_t kMostCheckedBytes = int64_t{64} << 30;
  absl::Status CheckTokens(int64_t vocab, const std::function<void(int64_t bytes)>& bytes_read) const;

  // Tokens [first, first + count) of a document, which must lie within it, to `tokens`. BadDataError when one
  // is not within [0, vocab): file, document, position, token, vocabulary.
  absl::Status Read(int64_t document, int64_t first, int64_t count, int64_t vocab, int32_t* tokens) const;

 private:
  absl::Status ErrorAt(int64_t token, int64_t vocab) const;
  IndexedDataset(MappedFile data, MappedFile index, IndexView view)
      : data_(std::move(data)), index_(std::move(index)), view_(view) {}

  MappedFile data_;
  MappedFile index_;
  IndexView view_;  // views index_, whose map does not move with the object
};

}  // namespace trainctl::data
