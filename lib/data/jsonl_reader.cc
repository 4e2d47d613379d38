#include "data/jsonl_reader.h"

#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "data/jsonl_line.h"

namespace trainctl::data {
namespace {

constexpr size_t kMaxLineBytes = size_t{1} << 30;

}  // namespace

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
                      " left out: ", absl::StrJoin(lines.first, "; "),
                      num_more > 0 ? absl::StrCat("; and ", num_more, " more") : "");
}

JsonlReader::JsonlReader(UnpackedFile file, JsonlOptions options, BytesReadFn bytes_read)
    : file_(std::move(file)), options_(std::move(options)), bytes_read_(std::move(bytes_read)) {}

absl::StatusOr<JsonlReader> JsonlReader::Open(const std::string& path, JsonlOptions options,
                                              BytesReadFn bytes_read) {
  TRAINCTL_ASSIGN_OR_RETURN(UnpackedFile file, UnpackedFile::Open(path));
  return JsonlReader(std::move(file), std::move(options), std::move(bytes_read));
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
  std::vector<WantedField> wanted = {{options_.text_field, &document.text}};
  if (!options_.prompt_field.empty()) {
    wanted.insert(wanted.begin(), {options_.prompt_field, &document.prompt});
  }
  absl::string_view line;
  while (true) {
    TRAINCTL_ASSIGN_OR_RETURN(const bool found, NextLine(line));
    if (!found) return false;
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    document.prompt.clear();
    const absl::Status status =
        ReadStringFields(line, absl::StrCat(file().path(), ":", line_number_), wanted);
    if (status.ok()) return true;
    if (!options_.skip_bad_lines) {
      if (options_.skip_setting.empty()) return status;
      return BadDataError(
          absl::StrCat(status.message(), "; ", options_.skip_setting, " leaves such lines out"));
    }
    left_out_.Add(std::string(status.message()));
  }
}

}  // namespace trainctl::data
