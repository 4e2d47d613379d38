#include "data/unpacked_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "base/files.h"
#include "base/lfs_pointer.h"
#include "base/status.h"
#include "data/unpackers.h"

namespace trainctl::data {
namespace {

constexpr size_t kPlainBytes = size_t{1} << 18;
constexpr size_t kLookedAtBytes = 16;

// "gzip" has no "-"; a skippable frame of zstd begins with one of sixteen numbers.
constexpr absl::string_view kGzipMagic("\x1f\x8b", 2);
constexpr absl::string_view kZstdMagic("\x28\xb5\x2f\xfd", 4);
constexpr absl::string_view kSkippableMagic("\x2a\x4d\x18", 3);  // behind a byte 0x50..0x5f

struct Foreign {
  absl::string_view magic;
  const char* name;
  const char* unpack;
};
constexpr std::array<Foreign, 4> kForeign = {{
    {{"\xfd\x37zXZ\0", 6}, "xz", "xz -d"},
    {{"BZh", 3}, "bzip2", "bzip2 -d"},
    {{"PK\x03\x04", 4}, "zip", "unzip"},
    {{"7z\xbc\xaf\x27\x1c", 6}, "7z", "7z x"},
}};
constexpr absl::string_view kBzip2Block("1AY&SY", 6);  // at byte 4: "BZh" alone could be text

absl::string_view AsText(absl::Span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

absl::string_view NameOf(Compression compression) {
  return compression == Compression::kGzip ? "gzip" : "zstd";
}

}  // namespace

std::string WithoutCompressionSuffix(const std::string& name) {
  for (const absl::string_view suffix : {".gz", ".zst"}) {
    if (absl::EndsWithIgnoreCase(name, suffix)) return name.substr(0, name.size() - suffix.size());
  }
  return name;
}

absl::Status ParquetError(const std::string& path) {
  // A name that a shell would take apart is left to the reader.
  const bool plain_name =
      path.find_first_of("'\"\\$`!\n") == std::string::npos && absl::EndsWithIgnoreCase(path, ".parquet");
  const std::string from = plain_name ? path : "FILE.parquet";
  const std::string to = from.substr(0, from.size() - absl::string_view(".parquet").size()) + ".jsonl";
  return UsageError(absl::StrCat(
      path,
      " is a Parquet file, which is not read; make JSONL of it, for example: pip install duckdb && "
      "python3 -c \"import duckdb; duckdb.sql('''COPY (FROM '",
      from, "') TO '", to, "' (FORMAT json)''')\""));
}

absl::StatusOr<Compression> RecognizeCompression(absl::Span<const uint8_t> first_bytes,
                                                 const std::string& path) {
  const absl::string_view begin = AsText(first_bytes);
  if (absl::StartsWith(begin, kGzipMagic)) return Compression::kGzip;
  if (absl::StartsWith(begin, kZstdMagic)) return Compression::kZstd;
  if (begin.size() > 3 && begin.substr(1, 3) == kSkippableMagic && (first_bytes[0] & 0xf0) == 0x50) {
    return Compression::kZstd;
  }
  if (absl::StartsWith(begin, "PAR1")) return ParquetError(path);
  for (const Foreign& foreign : kForeign) {
    if (!absl::StartsWith(begin, foreign.magic)) continue;
    if (foreign.magic == "BZh" && (begin.size() < 10 || begin.substr(4, 6) != kBzip2Block)) continue;
    return UsageError(absl::StrCat(path, " is packed with ", foreign.name,
                                   ", which is not read; unpack it first (", foreign.unpack,
                                   "), or pack it with gzip or zstd"));
  }
  if (WithoutCompressionSuffix(path) == path) return Compression::kNone;
  return BadDataError(absl::StrCat(
      path,
      ": byte 0: named as packed, but neither gzip (it would begin with 1f 8b) nor zstd (28 b5 2f fd); ",
      begin.empty() ? "the file is empty: fetch or write it again"
                    : "fetch or write it again, or take the ending off its name if it is plain"));
}

absl::StatusOr<Compression> CompressionOfFile(const std::string& path) {
  TRAINCTL_ASSIGN_OR_RETURN(const int64_t file_bytes, CheckDataFile(path));
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return ErrnoError("open", path, errno);
  std::array<uint8_t, std::max(kLookedAtBytes, kLfsPointerPrefixBytes)> begin;
  ssize_t count;
  do {
    count = ::read(fd, begin.data(), begin.size());
  } while (count < 0 && errno == EINTR);
  const int error_number = errno;
  ::close(fd);
  if (count < 0) return ErrnoError("read", path, error_number);
  const auto first_bytes = absl::MakeConstSpan(begin.data(), static_cast<size_t>(count));
  if (IsLfsPointer(AsText(first_bytes), file_bytes)) return LfsPointerError(path);
  return RecognizeCompression(first_bytes.subspan(0, kLookedAtBytes), path);
}

absl::StatusOr<UnpackedFile> UnpackedFile::Open(const std::string& path) {
  TRAINCTL_ASSIGN_OR_RETURN(SequentialFile file, SequentialFile::Open(path));
  UnpackedFile unpacked(std::move(file));
  TRAINCTL_ASSIGN_OR_RETURN(unpacked.packed_, unpacked.file_.Next());
  // All of a pointer comes in one piece.
  TRAINCTL_RETURN_IF_ERROR(RefuseLfsPointer(AsText(unpacked.packed_), path));
  TRAINCTL_ASSIGN_OR_RETURN(unpacked.compression_,
                            RecognizeCompression(unpacked.packed_.subspan(0, kLookedAtBytes), path));
  if (unpacked.compression_ == Compression::kNone) return unpacked;
  unpacked.unpacker_ = unpacked.compression_ == Compression::kGzip ? MakeGzipUnpacker() : MakeZstdUnpacker();
  unpacked.plain_.resize(kPlainBytes);
  return unpacked;
}

absl::Status UnpackedFile::Error(absl::string_view what) const {
  const int64_t place = file_.bytes_read() - static_cast<int64_t>(packed_.size());
  return BadDataError(absl::StrCat(file_.path(), ": byte ", place, " of the ", NameOf(compression_),
                                   " file, after ", unpacked_bytes_, " unpacked bytes: ", what));
}

absl::StatusOr<absl::Span<const uint8_t>> UnpackedFile::Next() {
  if (unpacker_ == nullptr) {
    if (!packed_.empty()) return std::exchange(packed_, {});
    return file_.Next();
  }
  while (true) {
    const absl::StatusOr<size_t> count =
        unpacker_->Unpack(packed_, absl::MakeSpan(&plain_[0], plain_.size()));
    if (!count.ok()) {
      if (ExitCodeFor(count.status()) != ExitCode::kBadData) return Annotate(count.status(), file_.path());
      return Error(count.status().message());
    }
    if (*count > 0) {
      unpacked_bytes_ += static_cast<int64_t>(*count);
      return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(plain_.data()), *count);
    }
    if (!packed_.empty()) continue;
    TRAINCTL_ASSIGN_OR_RETURN(packed_, file_.Next());
    if (!packed_.empty()) continue;
    if (!unpacker_->inside()) return absl::Span<const uint8_t>();
    return Error("it ends in the middle of its data: the file was cut off; fetch or write it again");
  }
}

}  // namespace trainctl::data
