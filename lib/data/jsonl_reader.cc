#include "data/jsonl_reader.h"

#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "data/jsonl_line.h"

namespace trainctl::data {
namespace {

constexpr size_t kMaxLineBytes = size_t{1} << 30;

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
  document.prompt.clear();
  std::vector<WantedField> wanted = {{fields_.text, &document.text}};
  if (!fields_.prompt.empty()) wanted.insert(wanted.begin(), {fields_.prompt, &document.prompt});
  TRAINCTL_RETURN_IF_ERROR(ReadStringFields(line, where, wanted));
  return true;
}

}  // namespace trainctl::data
