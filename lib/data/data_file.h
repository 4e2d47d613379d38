// Data files read from front to back, and what every reader asks of a data file first.
#pragma once

#include <xxhash.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace trainctl::data {

// The size of a readable regular file. BadDataError when it is missing, a folder, a pipe or a device (opening
// those could block); EnvironmentError when permission is missing. Thread safe.
absl::StatusOr<int64_t> CheckDataFile(const std::string& path);

absl::Status FileChangedError(const std::string& path, int64_t opened_bytes, int64_t now_bytes);

// Reads a file in pieces, hashing what it hands out. Not mapped: a file that shrinks simply ends.
// Not thread safe.
class SequentialFile {
 public:
  static absl::StatusOr<SequentialFile> Open(const std::string& path);
  SequentialFile(SequentialFile&& other) noexcept;
  SequentialFile& operator=(SequentialFile&& other) = delete;
  ~SequentialFile();

  // The next piece, valid until the next call; empty at the end.
  absl::StatusOr<absl::Span<const uint8_t>> Next();

  const std::string& path() const { return path_; }
  int64_t bytes_read() const { return bytes_read_; }
  uint64_t xxh3() const { return XXH3_64bits_digest(state_.get()); }  // XXH3-64 of what was read so far

 private:
  struct FreeState {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  explicit SequentialFile(std::string path);

  std::string path_;
  int fd_ = -1;
  int64_t bytes_read_ = 0;
  std::string buffer_;
  std::unique_ptr<XXH3_state_t, FreeState> state_;
};

}  // namespace trainctl::data
