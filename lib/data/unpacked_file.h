// Data files read from front to back as what was packed into them: gzip (any number of members) and zstd (any
// number of frames, skippable ones too), recognised by their first bytes; any other file is handed out as it
// is. Memory is two buffers and the window of the format: 32 KiB for gzip, at most 128 MiB for zstd.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "data/data_file.h"

namespace trainctl::data {

enum class Compression { kNone, kGzip, kZstd };

// What a file is packed with, from its first bytes (up to 16 of them are looked at). UsageError for formats
// that are not read here (Parquet, xz, bzip2, zip), with the way to convert them; BadDataError when the name
// ends in .gz or .zst and the bytes are neither. Pure.
absl::StatusOr<Compression> RecognizeCompression(absl::Span<const uint8_t> first_bytes,
                                                 const std::string& path);

// As above, from the first bytes of a file. BadDataError for a Git LFS pointer.
absl::StatusOr<Compression> CompressionOfFile(const std::string& path);

// Parquet is not read: how to make JSONL of `path`.
absl::Status ParquetError(const std::string& path);

// `name` without a last .gz or .zst, in any case of letters.
std::string WithoutCompressionSuffix(const std::string& name);

// Turns packed bytes into plain ones, piece by piece.
class Unpacker {
 public:
  virtual ~Unpacker() = default;
  // Takes packed bytes from the front of `packed`, writes to `plain`, and returns how many it wrote. When
  // that is 0 and `packed` is empty, it needs more. An error's message says what is wrong, without file and
  // place.
  virtual absl::StatusOr<size_t> Unpack(absl::Span<const uint8_t>& packed, absl::Span<char> plain) = 0;
  // A member or frame has begun and not ended.
  virtual bool inside() const = 0;
};

// Not thread safe.
class UnpackedFile {
 public:
  // The errors of CompressionOfFile.
  static absl::StatusOr<UnpackedFile> Open(const std::string& path);

  // The next piece of plain bytes, valid until the next call; empty at the end. Damaged and cut off files are
  // BadDataError with the file, the byte in it, and how much was unpacked before.
  absl::StatusOr<absl::Span<const uint8_t>> Next();

  // The file as it is on disk: its path, bytes read so far, checksum.
  const SequentialFile& file() const { return file_; }

 private:
  explicit UnpackedFile(SequentialFile file) : file_(std::move(file)) {}
  absl::Status Error(absl::string_view what) const;

  SequentialFile file_;
  absl::Span<const uint8_t> packed_;  // read, not yet handed out or unpacked
  Compression compression_ = Compression::kNone;
  std::unique_ptr<Unpacker> unpacker_;  // null: the file is plain
  std::string plain_;
  int64_t unpacked_bytes_ = 0;
};

}  // namespace trainctl::data
