// A memory-mapped Megatron-compatible token dataset: PREFIX.bin (tokens) and PREFIX.idx (index_format.h).
// Immutable after opening; thread safe. Reading a file that shrank under the map would end the process, so
// call CheckUnchanged before reads.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/files.h"
#include "data/index_format.h"

namespace trainctl::data {

class IndexedDataset {
 public:
  // `prefix` without ".bin". Checks the whole index, not the tokens. BadDataError names file and field.
  static absl::StatusOr<IndexedDataset> Open(const std::string& prefix);

  const std::string& path() const { return data_.path(); }
  const IndexView& index() const { return view_; }

  // BadDataError when either file no longer has the size it was opened with.
  absl::Status CheckUnchanged() const;

  // Tokens [first, first + count) of a document, which must lie within it, to `tokens`. BadDataError when one
  // is not within [0, vocab): file, document, position, token, vocabulary.
  absl::Status Read(int64_t document, int64_t first, int64_t count, int64_t vocab, int32_t* tokens) const;

 private:
  IndexedDataset(MappedFile data, MappedFile index, IndexView view)
      : data_(std::move(data)), index_(std::move(index)), view_(view) {}

  MappedFile data_;
  MappedFile index_;
  IndexView view_;  // views index_, whose map does not move with the object
};

}  // namespace trainctl::data
