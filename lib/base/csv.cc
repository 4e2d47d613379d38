#include "base/csv.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"

namespace trainctl {
namespace {

class CsvParser {
 public:
  CsvParser(absl::string_view text, absl::string_view what) : text_(text), what_(what) {}

  absl::StatusOr<std::vector<CsvRecord>> Parse() {
    if (text_.substr(0, 3) == "\xEF\xBB\xBF") at_ = 3;  // a byte order mark
    while (at_ < text_.size()) {
      CsvRecord record{.line = line_, .cells = {}};
      TRAINCTL_RETURN_IF_ERROR(ParseRecord(record));
      const bool empty = record.cells.size() == 1 && record.cells[0].empty();
      if (!empty) records_.push_back(std::move(record));
    }
    return std::move(records_);
  }

 private:
  absl::Status Fail(absl::string_view reason) const {
    return BadDataError(absl::StrCat(what_, ":", line_, ":", at_ - line_begin_ + 1, ": ", reason));
  }

  bool AtLineEnd() const { return at_ >= text_.size() || text_[at_] == '\n' || text_[at_] == '\r'; }

  void SkipLineEnd() {
    if (at_ < text_.size() && text_[at_] == '\r') ++at_;
    if (at_ < text_.size() && text_[at_] == '\n') ++at_;
    ++line_;
    line_begin_ = at_;
  }

  absl::Status ParseRecord(CsvRecord& record) {
    for (;;) {
      std::string cell;
      const bool quoted = at_ < text_.size() && text_[at_] == '"';
      TRAINCTL_RETURN_IF_ERROR(quoted ? ParseQuoted(cell) : ParsePlain(cell));
      record.cells.push_back(std::move(cell));
      if (AtLineEnd()) {
        SkipLineEnd();
        return absl::OkStatus();
      }
      if (text_[at_] != ',') return Fail("a comma or the end of the line belongs behind a closing quote");
      ++at_;
    }
  }

  absl::Status ParsePlain(std::string& cell) {
    const size_t begin = at_;
    while (!AtLineEnd() && text_[at_] != ',') {
      if (text_[at_] == '\0') return Fail("a NUL byte: this is not a text file");
      ++at_;
    }
    cell = std::string(text_.substr(begin, at_ - begin));
    return absl::OkStatus();
  }

  absl::Status ParseQuoted(std::string& cell) {
    const int begin_line = line_;
    for (++at_; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '\0') return Fail("a NUL byte: this is not a text file");
      if (c == '"') {
        if (at_ + 1 >= text_.size() || text_[at_ + 1] != '"') {
          ++at_;
          return absl::OkStatus();
        }
        ++at_;
      } else if (c == '\n') {
        ++line_;
        line_begin_ = at_ + 1;
      }
      cell.push_back(c);
    }
    return Fail(absl::StrCat("the quote that opens in line ", begin_line, " is never closed"));
  }

  absl::string_view text_;
  absl::string_view what_;
  size_t at_ = 0;
  size_t line_begin_ = 0;
  int line_ = 1;
  std::vector<CsvRecord> records_;
};

}  // namespace

absl::StatusOr<std::vector<CsvRecord>> ParseCsv(absl::string_view text, absl::string_view what) {
  return CsvParser(text, what).Parse();
}

std::string CsvLine(const std::vector<std::string>& cells) {
  return absl::StrCat(
      absl::StrJoin(cells, ",",
                    [](std::string* out, const std::string& cell) {
                      if (cell.find_first_of(",\"\r\n") == std::string::npos) {
                        out->append(cell);
                      } else {
                        absl::StrAppend(out, "\"", absl::StrReplaceAll(cell, {{"\"", "\"\""}}), "\"");
                      }
                    }),
      "\n");
}

}  // namespace trainctl
