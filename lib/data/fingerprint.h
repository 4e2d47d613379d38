// Fingerprints of files, which show whether a file has changed. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace trainctl::data {

// A file's size and the XXH3-64 hash of its contents. A run records this for each file and compares it on
// resume. For a file larger than kWholeFileBytes, only its two ends and some pieces in between are hashed, so
// a run on terabytes of data starts without delay.
struct FileFingerprint {
  std::string path;
  int64_t size_bytes = 0;
  uint64_t xxh3 = 0;
  bool sampled = false;  // whether xxh3 covers only kFingerprintPieces pieces, concatenated
};
inline constexpr int64_t kWholeFileBytes = int64_t{64} << 20;
inline constexpr int64_t kFingerprintPieces = 64;
inline constexpr int64_t kFingerprintPieceBytes = int64_t{64} << 10;

// Computes a fingerprint of the whole file, regardless of its size. Errors name the file.
absl::StatusOr<FileFingerprint> FingerprintFile(const std::string& path);

// Computes the same fingerprint as Fingerprint, which covers only some pieces of a large file. The first
// piece begins at byte 0, the last one ends at the end of the file, and the others are evenly spaced (rounded
// down to a byte).
absl::StatusOr<FileFingerprint> QuickFingerprintFile(const std::string& path);

}  // namespace trainctl::data
