#include "data/jsonl_reader.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "data/jsonl_line.h"

namespace trainctl::data {
namespace {

constexpr size_t kMaxLineBytes = size_t{1} << 30;

// Returns `status`, which says that the first line is bad, or an error that names the format of the file.
absl::Status NamingFormat(absl::string_view line, absl::string_view where, const absl::Status& status) {
  constexpr size_t kNullsWithin = 4;
  if (absl::StrContains(line.substr(0, kNullsWithin), '\0')) {
    return BadDataError(
        absl::StrCat(where,
                     ": the line contains NUL bytes, as UTF-16 text does, but JSONL is UTF-8; "
                     "convert it with iconv -f UTF-16LE -t UTF-8"));
  }
  line = absl::StripAsciiWhitespace(line);
  if (!absl::ConsumePrefix(&line, "[")) return status;
  line = absl::StripLeadingAsciiWhitespace(line);
  if (!line.empty() && line.front() != '{') return status;
  return BadDataError(
      absl::StrCat(where,
                   ": the file is a JSON array, but JSONL has one object per line; convert it "
                   "with jq -c '.[]'"));
}

// Checks that the first line of a file has all `wanted` fields. If one is missing, the file probably uses
// other names, so the error lists the fields of the line.
absl::Status CheckNames(absl::string_view line, absl::string_view where,
                        const std::vector<WantedField>& wanted) {
  const std::vector<std::string> names = FieldNames(line);
  const auto has = [&](absl::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const WantedField& field : wanted) {
    if (names.empty() || has(field.name)) continue;
    const bool is_chat = has("messages") || has("conversations");
    return BadDataError(absl::StrCat(
        where, ": field '", field.name, "' is missing; the line has '", absl::StrJoin(names, "', '"), "'. ",
        is_chat ? "Conversations must be rendered to text first (docs/guide/finetune.md)"
                : "Name the fields to read (in a recipe: text_field and prompt_field; on the command line: "
                  "--text-field and --prompt-field)"));
  }
  return absl::OkStatus();
}

}  // namespace

JsonlReader::JsonlReader(UnpackedFile file, RowOptions options, BytesReadFn bytes_read)
    : RowReader(std::move(options), std::move(bytes_read)), file_(std::move(file)) {}

absl::StatusOr<std::unique_ptr<RowReader>> JsonlReader::Open(const std::string& path, RowOptions options,
                                                             BytesReadFn bytes_read) {
  TRAINCTL_ASSIGN_OR_RETURN(UnpackedFile file, UnpackedFile::Open(path));
  return std::unique_ptr<RowReader>(
      new JsonlReader(std::move(file), std::move(options), std::move(bytes_read)));
}

std::unique_ptr<RowReader> JsonlReader::Open(UnpackedFile file, RowOptions options) {
  return std::unique_ptr<RowReader>(new JsonlReader(std::move(file), std::move(options), {}));
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
      return BadDataError(absl::StrCat(file_.file().path(), ":", line_number_ + 1,
                                       ": the line is longer than ", kMaxLineBytes, " bytes"));
    }
    TRAINCTL_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> piece, file_.Next());
    at_end_ = piece.empty();
    pending_.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    SetBytesRead(file_.file().bytes_read());
  }
}

absl::StatusOr<bool> JsonlReader::Next(Document& document) {
  std::vector<WantedField> wanted = {{options().text_field, &document.text}};
  if (!options().prompt_field.empty()) {
    wanted.insert(wanted.begin(), {options().prompt_field, &document.prompt});
  }
  absl::string_view line;
  while (true) {
    TRAINCTL_ASSIGN_OR_RETURN(const bool found, NextLine(line));
    if (!found) return false;
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    document.prompt.clear();
    const std::string where = absl::StrCat(file_.file().path(), ":", line_number_);
    absl::Status status = ReadStringFields(line, where, wanted);
    const bool is_first = !std::exchange(has_begun_, true);
    if (status.ok()) return true;
    if (is_first) status = NamingFormat(line, where, status);
    if (is_first && !options().skip_bad_lines) TRAINCTL_RETURN_IF_ERROR(CheckNames(line, where, wanted));
    TRAINCTL_RETURN_IF_ERROR(LeaveOut(status, "line"));
  }
}

absl::StatusOr<FileFingerprint> JsonlReader::FingerprintOfAll() {
  return FileFingerprint{file_.file().path(), file_.file().bytes_read(), file_.file().xxh3()};
}

}  // namespace trainctl::data
