// Reads data files sequentially and provides the checks that every reader starts with.
#pragma once

#include <xxhash.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace trainctl::data {

// Returns the size of a readable regular file. Returns BadDataError if the file is missing, or if it is a
// folder, a pipe, or a device, because opening one could block. Returns EnvironmentError if permission is
// denied. Thread-safe.
absl::StatusOr<int64_t> CheckDataFile(const std::string& path);
// Like CheckDataFile, for a file named on the command line. Returns UsageError instead of BadDataError.
absl::StatusOr<int64_t> CheckInputFile(const std::string& path);

// Returns the first 64 bytes of the file, or the whole file if it is shorter. Returns the errors of
// CheckDataFile, and BadDataError for a Git LFS pointer. Thread-safe.
absl::StatusOr<std::string> FirstBytesOfFile(const std::string& path);

absl::Status FileChangedError(const std::string& path, int64_t opened_bytes, int64_t now_bytes);

// Reads a file in pieces and hashes the data it returns. Does not map the file, so a file that shrinks merely
// ends early. Not thread-safe.
class SequentialFile {
 public:
  static absl::StatusOr<SequentialFile> Open(const std::string& path);
  // Opens standard input, which may be a pipe or a file. Next then blocks until it has a full piece or the
  // input ends. It returns CancelledError soon after `*stop` becomes true. `stop` may be null; otherwise it
  // must outlive this object.
  static absl::StatusOr<SequentialFile> OpenStandardInput(const std::atomic<bool>* stop);
  SequentialFile(SequentialFile&& other) noexcept;
  SequentialFile& operator=(SequentialFile&& other) = delete;
  ~SequentialFile();

  // Returns the next piece, which is valid until the next call. Empty at the end of the file.
  absl::StatusOr<absl::Span<const uint8_t>> Next();

  const std::string& path() const { return path_; }
  int64_t bytes_read() const { return bytes_read_; }
  // The XXH3-64 hash of the bytes read so far.
  uint64_t xxh3() const { return XXH3_64bits_digest(state_.get()); }

 private:
  struct FreeState {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  explicit SequentialFile(std::string path);
  absl::StatusOr<size_t> ReadSome(size_t begin);
  absl::Status WaitForInput() const;

  std::string path_;
  int fd_ = -1;
  bool is_stream_ = false;
  const std::atomic<bool>* stop_ = nullptr;
  int64_t bytes_read_ = 0;
  std::string buffer_;
  std::unique_ptr<XXH3_state_t, FreeState> state_;
};

}  // namespace trainctl::data
