#include "data/fingerprint.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <utility>

#include "base/files.h"
#include "base/status.h"
#include "data/data_file.h"
#include "data/file_stamps.h"

namespace trainctl::data {
namespace {

absl::Status ReadAt(int fd, const std::string& path, int64_t offset, absl::Span<char> out) {
  while (!out.empty()) {
    const ssize_t count = ::pread(fd, out.data(), out.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoError("read", path, errno);
    if (count == 0) return BadDataError(absl::StrCat(path, ": the file shrank while being read"));
    out.remove_prefix(static_cast<size_t>(count));
    offset += count;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FileFingerprint> FingerprintFile(const std::string& path) {
  TRAINCTL_ASSIGN_OR_RETURN(SequentialFile file, SequentialFile::Open(path));
  while (true) {
    TRAINCTL_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> piece, file.Next());
    if (piece.empty()) return FileFingerprint{path, file.bytes_read(), file.xxh3()};
  }
}

absl::StatusOr<FileFingerprint> QuickFingerprintFile(const std::string& path) {
  TRAINCTL_ASSIGN_OR_RETURN(const int64_t size_bytes, CheckDataFile(path));
  if (size_bytes <= kWholeFileBytes) return FingerprintFile(path);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return ErrnoError("open", path, errno);
  std::string pieces(static_cast<size_t>(kFingerprintPieces * kFingerprintPieceBytes), '\0');
  absl::Status status;
  for (int64_t i = 0; i < kFingerprintPieces && status.ok(); ++i) {
    // The distances are summed without overflow: a quotient, and the share of the remainder.
    const int64_t room = size_bytes - kFingerprintPieceBytes;
    const int64_t offset =
        room / (kFingerprintPieces - 1) * i + room % (kFingerprintPieces - 1) * i / (kFingerprintPieces - 1);
    status = ReadAt(fd, path, offset,
                    absl::MakeSpan(&pieces[static_cast<size_t>(i * kFingerprintPieceBytes)],
                                   static_cast<size_t>(kFingerprintPieceBytes)));
  }
  ::close(fd);
  TRAINCTL_RETURN_IF_ERROR(status);
  return FileFingerprint{path, size_bytes, XXH3_64bits(pieces.data(), pieces.size()), true};
}

absl::StatusOr<std::vector<FileFingerprint>> Fingerprint(const recipe::DataConfig& data) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<std::string> files, DataFiles(data));
  std::vector<FileFingerprint> fingerprints;
  for (const std::string& file : files) {
    const bool is_tokenizer = fingerprints.empty() && data.tokenizer != "byte";
    TRAINCTL_ASSIGN_OR_RETURN(fingerprints.emplace_back(),
                              is_tokenizer ? FingerprintFile(file) : QuickFingerprintFile(file));
  }
  return fingerprints;
}

}  // namespace trainctl::data
