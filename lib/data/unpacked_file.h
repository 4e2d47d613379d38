// Reads compressed data files sequentially as plain bytes. Supports gzip (any number of members) and zstd
// (any number of frames, including skippable ones), which are recognized by their first bytes. Any other file
// is returned unchanged. Memory use is two buffers plus the format's window: 32 KiB for gzip and up to 128
// MiB for zstd.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "data/data_file.h"

namespace trainctl::data {

// The first bytes of a Parquet file.
inline constexpr absl::string_view kParquetMagic = "PAR1";

enum class Compression { kNone, kGzip, kZstd };

// Determines a file's compression from its first bytes; uses at most 16 of them. Returns UsageError for an
// unsupported format (xz, bzip2, zip), with the command that unpacks it, and for Parquet, which has its own
// kind. Returns BadDataError if the name ends in .gz or .zst but the bytes do not match. Pure.
absl::StatusOr<Compression> RecognizeCompression(absl::Span<const uint8_t> first_bytes,
                                                 const std::string& path);

// Like RecognizeCompression, but reads the first bytes from the file. Returns BadDataError for a Git LFS
// pointer.
absl::StatusOr<Compression> CompressionOfFile(const std::string& path);

// Returns `name` without a final .gz or .zst; ignores case.
std::string WithoutCompressionSuffix(const std::string& name);

// Decompresses a byte stream piece by piece.
class Unpacker {
 public:
  virtual ~Unpacker() = default;
  // Consumes compressed bytes from the front of `packed`, writes to `plain`, and returns the number of bytes
  // written. If that is 0 and `packed` is empty, more input is required. Errors do not include the file name
  // or the position.
  virtual absl::StatusOr<size_t> Unpack(absl::Span<const uint8_t>& packed, absl::Span<char> plain) = 0;
  // Whether a member or frame has begun but not ended.
  virtual bool inside() const = 0;
};

// A data file that is decompressed as it is read. Not thread-safe.
class UnpackedFile {
 public:
  // Opens a file. Returns the errors of CompressionOfFile.
  static absl::StatusOr<UnpackedFile> Open(const std::string& path);
  // Like above, for a file that is already open.
  static absl::StatusOr<UnpackedFile> Open(SequentialFile file);

  // Returns the next piece of plain bytes, which is valid until the next call. Empty at the end of the file.
  // Leaves out a UTF-8 byte order mark. Returns BadDataError if the file is damaged or truncated; the message
  // gives the file, the byte offset in it, and how much was unpacked before. Also returns BadDataError if it
  // is UTF-16 or UTF-32 text.
  absl::StatusOr<absl::Span<const uint8_t>> Next();

  // The file as stored on disk: its path, the number of bytes read so far, and their checksum.
  const SequentialFile& file() const { return file_; }

 private:
  explicit UnpackedFile(SequentialFile file) : file_(std::move(file)) {}
  absl::Status Error(absl::string_view what) const;
  absl::StatusOr<absl::Span<const uint8_t>> NextPlain();

  SequentialFile file_;
  absl::Span<const uint8_t> packed_;  // bytes read but not yet returned or unpacked
  Compression compression_ = Compression::kNone;
  std::unique_ptr<Unpacker> unpacker_;  // null if the file is not compressed
  std::string plain_;
  int64_t unpacked_bytes_ = 0;
  bool has_begun_ = false;
};

}  // namespace trainctl::data
