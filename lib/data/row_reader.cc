#include "data/row_reader.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "data/jsonl_reader.h"
#include "data/parquet_reader.h"

namespace trainctl::data {

void LeftOutLines::Add(std::string reason) {
  ++count;
  if (first.size() < kMaxNamed) first.push_back(std::move(reason));
}

void LeftOutLines::Add(const LeftOutLines& more) {
  count += more.count;
  for (const std::string& reason : more.first) {
    if (first.size() < kMaxNamed) first.push_back(reason);
  }
}

std::string FormatLeftOut(const LeftOutLines& lines) {
  const int64_t num_more = lines.count - static_cast<int64_t>(lines.first.size());
  return absl::StrCat(lines.count, lines.count == 1 ? " line" : " lines",
                      " skipped: ", absl::StrJoin(lines.first, "; "),
                      num_more > 0 ? absl::StrCat("; and ", num_more, " more") : "");
}

absl::StatusOr<std::unique_ptr<RowReader>> RowReader::Open(const std::string& path, SourceKind kind,
                                                           RowOptions options, BytesReadFn bytes_read) {
  TRAINCTL_CHECK(HasRows(kind));
  if (kind == SourceKind::kParquet) {
    return ParquetReader::Open(path, std::move(options), std::move(bytes_read));
  }
  return JsonlReader::Open(path, std::move(options), std::move(bytes_read));
}

absl::Status RowReader::LeaveOut(const absl::Status& reason, absl::string_view what) {
  if (options_.skip_bad_lines) {
    left_out_.Add(std::string(reason.message()));
    return absl::OkStatus();
  }
  if (options_.skip_setting.empty()) return reason;
  return BadDataError(
      absl::StrCat(reason.message(), "; to skip such ", what, "s, use ", options_.skip_setting));
}

void RowReader::SetBytesRead(int64_t bytes_read) {
  const int64_t more = bytes_read - std::exchange(bytes_read_, bytes_read);
  if (tell_bytes_read_) tell_bytes_read_(more);
}

}  // namespace trainctl::data
