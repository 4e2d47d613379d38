#include "data/unpacked_file.h"

#include <array>
#include <utility>

#include "absl/strings/match.h"
#include "base/lfs_pointer.h"
#include "base/status.h"
#include "data/text_encoding.h"
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

absl::StatusOr<Compression> RecognizeCompression(absl::Span<const uint8_t> first_bytes,
                                                 const std::string& path) {
  const absl::string_view begin = AsText(first_bytes);
  if (absl::StartsWith(begin, kGzipMagic)) return Compression::kGzip;
  if (absl::StartsWith(begin, kZstdMagic)) return Compression::kZstd;
  if (begin.size() > 3 && begin.substr(1, 3) == kSkippableMagic && (first_bytes[0] & 0xf0) == 0x50) {
    return Compression::kZstd;
  }
  if (absl::StartsWith(begin, kParquetMagic)) {
    return UsageError(absl::StrCat(
        path, " is a Parquet file; set kind = \"parquet\", or give it a name that ends with .parquet"));
  }
  for (const Foreign& foreign : kForeign) {
    if (!absl::StartsWith(begin, foreign.magic)) continue;
    if (foreign.magic == "BZh" && (begin.size() < 10 || begin.substr(4, 6) != kBzip2Block)) continue;
    return UsageError(absl::StrCat(path, " is compressed with ", foreign.name,
                                   ", which is not supported; decompress it first (", foreign.unpack,
                                   "), or compress it with gzip or zstd"));
  }
  if (WithoutCompressionSuffix(path) == path) return Compression::kNone;
  return BadDataError(absl::StrCat(
      path,
      ": byte 0: the file name indicates compression, but the file is neither gzip (1f 8b) nor zstd (28 b5 "
      "2f fd); ",
      begin.empty()
          ? "the file is empty, so download or write it again"
          : "download or write it again, or remove the file name extension if it is not compressed"));
}

absl::StatusOr<Compression> CompressionOfFile(const std::string& path) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string first_bytes, FirstBytesOfFile(path));
  return RecognizeCompression(
      absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(first_bytes.data()), first_bytes.size())
          .subspan(0, kLookedAtBytes),
      path);
}

absl::StatusOr<UnpackedFile> UnpackedFile::Open(const std::string& path) {
  TRAINCTL_ASSIGN_OR_RETURN(SequentialFile file, SequentialFile::Open(path));
  return Open(std::move(file));
}

absl::StatusOr<UnpackedFile> UnpackedFile::Open(SequentialFile file) {
  const std::string path = file.path();
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
                                   " file, after ", unpacked_bytes_, " decompressed bytes: ", what));
}

absl::StatusOr<absl::Span<const uint8_t>> UnpackedFile::Next() {
  TRAINCTL_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> piece, NextPlain());
  if (std::exchange(has_begun_, true)) return piece;
  TRAINCTL_ASSIGN_OR_RETURN(const size_t mark_bytes, ByteOrderMarkBytes(AsText(piece), file_.path()));
  return mark_bytes < piece.size() || piece.empty() ? piece.subspan(mark_bytes) : NextPlain();
}

absl::StatusOr<absl::Span<const uint8_t>> UnpackedFile::NextPlain() {
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
    return Error("the data ends prematurely, so the file is truncated; download or write it again");
  }
}

}  // namespace trainctl::data
