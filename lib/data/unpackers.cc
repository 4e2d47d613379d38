#include "data/unpackers.h"

#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>

#include "base/status.h"

namespace trainctl::data {
namespace {

constexpr int kGzipOnly = 16 + MAX_WBITS;  // no zlib and no raw streams
constexpr int kMaxWindowLog = 27;          // 128 MiB, which zstd itself takes without being asked

class GzipUnpacker : public Unpacker {
 public:
  GzipUnpacker() { TRAINCTL_CHECK(::inflateInit2(&stream_, kGzipOnly) == Z_OK); }
  GzipUnpacker(const GzipUnpacker&) = delete;
  GzipUnpacker& operator=(const GzipUnpacker&) = delete;
  ~GzipUnpacker() override { ::inflateEnd(&stream_); }

  absl::StatusOr<size_t> Unpack(absl::Span<const uint8_t>& packed, absl::Span<char> plain) override {
    if (!inside_) {
      TRAINCTL_RETURN_IF_ERROR(SkipPadding(packed));
      if (packed.empty()) return 0;
      TRAINCTL_CHECK(::inflateReset(&stream_) == Z_OK);
      inside_ = true;
    }
    stream_.next_in = const_cast<Bytef*>(packed.data());
    stream_.avail_in = static_cast<uInt>(packed.size());
    stream_.next_out = reinterpret_cast<Bytef*>(plain.data());
    stream_.avail_out = static_cast<uInt>(plain.size());
    const int code = ::inflate(&stream_, Z_NO_FLUSH);
    packed.remove_prefix(packed.size() - stream_.avail_in);
    if (code == Z_STREAM_END) {
      inside_ = false;
      had_member_ = true;
    } else if (code == Z_MEM_ERROR) {
      return EnvironmentError("not enough memory to decompress it");
    } else if (code != Z_OK && code != Z_BUF_ERROR) {  // Z_BUF_ERROR: it needs more
      return BadDataError(
          absl::StrCat(stream_.msg != nullptr ? stream_.msg : "not gzip data", "; the file is damaged"));
    }
    return plain.size() - stream_.avail_out;
  }

  bool inside() const override { return inside_; }

 private:
  // Tapes and block devices fill a file up with zeros.
  absl::Status SkipPadding(absl::Span<const uint8_t>& packed) {
    if (!had_member_) return absl::OkStatus();
    const auto other = std::find_if(packed.begin(), packed.end(), [](uint8_t byte) { return byte != 0; });
    padded_ |= other != packed.begin();
    packed.remove_prefix(static_cast<size_t>(other - packed.begin()));
    if (padded_ && !packed.empty())
      return BadDataError(
          "there is data after the zero padding; the file is damaged, or it is two files in one");
    return absl::OkStatus();
  }

  z_stream stream_ = {};
  bool inside_ = false;
  bool had_member_ = false;
  bool padded_ = false;
};

class ZstdUnpacker : public Unpacker {
 public:
  ZstdUnpacker() : stream_(::ZSTD_createDStream()) {
    TRAINCTL_CHECK(stream_ != nullptr);
    ::ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, kMaxWindowLog);
  }
  ZstdUnpacker(const ZstdUnpacker&) = delete;
  ZstdUnpacker& operator=(const ZstdUnpacker&) = delete;
  ~ZstdUnpacker() override { ::ZSTD_freeDStream(stream_); }

  absl::StatusOr<size_t> Unpack(absl::Span<const uint8_t>& packed, absl::Span<char> plain) override {
    if (!inside_ && packed.empty()) return 0;
    ZSTD_inBuffer in = {packed.data(), packed.size(), 0};
    ZSTD_outBuffer out = {plain.data(), plain.size(), 0};
    const size_t left = ::ZSTD_decompressStream(stream_, &out, &in);
    packed.remove_prefix(in.pos);
    if (::ZSTD_isError(left) != 0) {
      if (::ZSTD_getErrorCode(left) == ZSTD_error_frameParameter_windowTooLarge) {
        return BadDataError(
            absl::StrCat("its window exceeds ", (int64_t{1} << kMaxWindowLog) >> 20,
                         " MiB, the default limit of zstd; compress it again without --long"));
      }
      return BadDataError(absl::StrCat(::ZSTD_getErrorName(left), "; the file is damaged"));
    }
    inside_ = left != 0;
    return out.pos;
  }

  bool inside() const override { return inside_; }

 private:
  ZSTD_DStream* stream_;
  bool inside_ = false;
};

}  // namespace

std::unique_ptr<Unpacker> MakeGzipUnpacker() { return std::make_unique<GzipUnpacker>(); }
std::unique_ptr<Unpacker> MakeZstdUnpacker() { return std::make_unique<ZstdUnpacker>(); }

}  // namespace trainctl::data
