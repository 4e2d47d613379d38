#include "data/parquet_reader.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/life_signs.h"
#include "base/status.h"
#include "data/data_file.h"
#include "data/fingerprint.h"
#include "data/parquet_plugin.h"
#include "data/unpacked_file.h"
#include "tokenizer/utf8.h"

namespace trainctl::data {
namespace {

constexpr size_t kReasonBytes = 2048;
constexpr int64_t kRowsPerReport = 64;

absl::Status CheckMagic(const std::string& path) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string begin, FirstBytesOfFile(path));
  if (absl::StartsWith(begin, kParquetMagic)) return absl::OkStatus();
  if (absl::StartsWith(begin, "PARE"))
    return BadDataError(absl::StrCat(path, " is encrypted, which is not supported"));
  return BadDataError(absl::StrCat(path,
                                   begin.empty() ? " is empty, so it is not a Parquet file"
                                                 : " is not a Parquet file: it does not begin with PAR1",
                                   "; download or write it again, or correct its name or the source's kind"));
}

}  // namespace

ParquetReader::ParquetReader(FileStamp stamp, const ParquetApi* api, RowOptions options,
                             BytesReadFn bytes_read)
    : RowReader(std::move(options), std::move(bytes_read)), stamp_(std::move(stamp)), api_(api) {}

ParquetReader::~ParquetReader() {
  if (reader_ != nullptr) api_->close(reader_);
}

absl::StatusOr<std::unique_ptr<RowReader>> ParquetReader::Open(const std::string& path, RowOptions options,
                                                               BytesReadFn bytes_read) {
  TRAINCTL_RETURN_IF_ERROR(CheckMagic(path));
  TRAINCTL_ASSIGN_OR_RETURN(const ParquetApi* const api, LoadParquetApi(path));
  TRAINCTL_ASSIGN_OR_RETURN(FileStamp stamp, StampFile(path));
  std::unique_ptr<ParquetReader> reader(
      new ParquetReader(std::move(stamp), api, std::move(options), std::move(bytes_read)));
  TRAINCTL_RETURN_IF_ERROR(reader->OpenFile());
  return std::unique_ptr<RowReader>(std::move(reader));
}

absl::Status ParquetReader::OpenFile() {
  const std::array<const char*, 2> columns = {options().text_field.c_str(), options().prompt_field.c_str()};
  std::array<char, kReasonBytes> reason = {};
  reader_ = api_->open(path().c_str(), columns.data(), options().prompt_field.empty() ? 1 : 2, &num_rows_,
                       reason.data(), reason.size());
  if (reader_ != nullptr) return absl::OkStatus();
  return BadDataError(absl::StrCat(path(), ": ", reason.data()));
}

absl::StatusOr<bool> ParquetReader::Next(Document& document) {
  while (true) {
    std::array<char, kReasonBytes> reason = {};
    const int found = api_->next(reader_, strings_, reason.data(), reason.size());
    if (found < 0) {
      return BadDataError(absl::StrCat(path(), ": after row ", row_, ": ", reason.data(),
                                       ": the file is damaged; download or write it again"));
    }
    if (found == 0) {
      SetBytesRead(stamp_.size_bytes);
      return false;
    }
    ++row_;
    if (row_ % kRowsPerReport == 0) TellProgress();
    const absl::Status status = TakeRow(document);
    if (status.ok()) return true;
    TRAINCTL_RETURN_IF_ERROR(LeaveOut(status, "row"));
  }
}

absl::Status ParquetReader::TakeRow(Document& document) const {
  document.prompt.clear();
  TRAINCTL_RETURN_IF_ERROR(Take(strings_[0], options().text_field, document.text));
  if (options().prompt_field.empty()) return absl::OkStatus();
  return Take(strings_[1], options().prompt_field, document.prompt);
}

absl::Status ParquetReader::Take(const ParquetString& string, const std::string& name,
                                 std::string& value) const {
  const auto bad = [&](absl::string_view what) {
    return BadDataError(absl::StrCat(path(), ": row ", row_, ": column '", name, "' is ", what));
  };
  if (string.bytes == nullptr) return bad("null");
  value.assign(string.bytes, string.num_bytes);
  return tokenizer::IsUtf8(value) ? absl::OkStatus() : bad("not valid UTF-8");
}

// Reports bytes in proportion to rows, because the file position of a column reader is meaningless.
void ParquetReader::TellProgress() {
  Beat();
  const double share = static_cast<double>(row_) / static_cast<double>(std::max(num_rows_, row_));
  SetBytesRead(static_cast<int64_t>(share * static_cast<double>(stamp_.size_bytes)));
}

absl::StatusOr<FileFingerprint> ParquetReader::FingerprintOfAll() {
  TRAINCTL_ASSIGN_OR_RETURN(FileFingerprint all, FingerprintFile(path()));
  TRAINCTL_ASSIGN_OR_RETURN(const FileStamp now, StampFile(path()));
  if (now.device == stamp_.device && now.inode == stamp_.inode && now.size_bytes == stamp_.size_bytes &&
      now.modified_ns == stamp_.modified_ns) {
    return all;
  }
  return BadDataError(absl::StrCat(path(), " changed while it was being read; restore it, or start over"));
}

}  // namespace trainctl::data
