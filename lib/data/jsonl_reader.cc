#include "data/jsonl_reader.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"
#include "base/json.h"
#include "base/status.h"

namespace trainctl::data {
namespace {

constexpr size_t kMaxLineBytes = size_t{1} << 30;

absl::StatusOr<Json> ParseLine(absl::string_view line, const std::string& where) {
  absl::StatusOr<Json> parsed = ParseJson(line, "line");
  if (!parsed.ok()) {  // the parser counts within the line: "line:1:COLUMN: ..."
    absl::string_view message = parsed.status().message();
    if (!absl::ConsumePrefix(&message, "line:1")) absl::ConsumePrefix(&message, "line");
    return BadDataError(absl::StrCat(where, message));
  }
  if (!parsed->is_object()) return BadDataError(absl::StrCat(where, ": each line must be a JSON object"));
  return parsed;
}

}  // namespace

JsonlReader::JsonlReader(UnpackedFile file, JsonlFields fields, BytesReadFn bytes_read)
    : file_(std::move(file)), fields_(std::move(fields)), bytes_read_(std::move(bytes_read)) {}

absl::StatusOr<JsonlReader> JsonlReader::Open(const std::string& path, JsonlFields fields,
                                              BytesReadFn bytes_read) {
  TRAINCTL_ASSIGN_OR_RETURN(UnpackedFile file, UnpackedFile::Open(path));
  return JsonlReader(std::move(file), std::move(fields), std::move(bytes_read));
}

absl::StatusOr<bool> JsonlReader::NextLine(absl::string_view& line) {
  size_t searched = consumed_;
  while (true) {
    const size_t end = pending_.find('\n', searched);
    if (end != std::string::npos || (at_end_ && consumed_ < pending_.size())) {
      line = absl::string_view(pending_).substr(consumed_, end == std::string::npos ? end : end - consumed_);
      consumed_ = end == std::string::npos ? pending_.size() : end + 1;
      ++line_number_;
      return true;
    }
    if (at_end_) return false;
    pending_.erase(0, consumed_);
    consumed_ = 0;
    searched = pending_.size();
    if (searched > kMaxLineBytes) {
      return BadDataError(absl::StrCat(file().path(), ":", line_number_ + 1, ": the line is longer than ",
                                       kMaxLineBytes, " bytes"));
    }
    TRAINCTL_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> piece, file_.Next());
    at_end_ = piece.empty();
    pending_.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    if (bytes_read_) bytes_read_(file().bytes_read() - told_bytes_);
    told_bytes_ = file().bytes_read();
  }
}

absl::StatusOr<bool> JsonlReader::Next(Document& document) {
  absl::string_view line;
  while (true) {
    TRAINCTL_ASSIGN_OR_RETURN(const bool found, NextLine(line));
    if (!found) return false;
    if (!absl::StripAsciiWhitespace(line).empty()) break;
  }
  const std::string where = absl::StrCat(file().path(), ":", line_number_);
  TRAINCTL_ASSIGN_OR_RETURN(const Json object, ParseLine(line, where));
  document.prompt.clear();
  if (!fields_.prompt.empty()) {
    TRAINCTL_ASSIGN_OR_RETURN(document.prompt, JsonString(object, fields_.prompt, where));
  }
  TRAINCTL_ASSIGN_OR_RETURN(document.text, JsonString(object, fields_.text, where));
  return true;
}

}  // namespace trainctl::data
