#include "data/jsonl_line.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/json.h"
#include "base/status.h"

namespace trainctl::data {
namespace {

class LineScanner {
 public:
  LineScanner(absl::string_view line, absl::string_view where) : line_(line), where_(where) {}

  absl::Status Read(const std::vector<WantedField>& wanted) {
    std::vector<bool> is_found(wanted.size());
    SkipSpace();
    if (!Take('{')) {
      if (!ParseJson(line_, "").ok()) return NotJson();
      return BadDataError(absl::StrCat(where_, ": each line must be a JSON object"));
    }
    SkipSpace();
    if (!Take('}')) {
      do {
        TRAINCTL_RETURN_IF_ERROR(ReadMember(wanted, is_found));
        SkipSpace();
      } while (Take(','));
      if (!Take('}')) return NotJson();
    }
    SkipSpace();
    if (at_ != line_.size()) return NotJson();
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (!is_found[i]) return NotAString(wanted[i]);
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ReadMember(const std::vector<WantedField>& wanted, std::vector<bool>& is_found) {
    SkipSpace();
    absl::string_view key;
    if (!ScanString(key)) return NotJson();
    SkipSpace();
    if (!Take(':')) return NotJson();
    SkipSpace();
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (!IsKey(key, wanted[i].name)) continue;
      if (is_found[i])
        return BadDataError(absl::StrCat(where_, ": key '", wanted[i].name, "' is given twice"));
      is_found[i] = true;
      absl::string_view value;
      const size_t begin = at_;
      if (at_ < line_.size() && line_[at_] != '"') return NotAString(wanted[i]);
      if (!ScanString(value)) return NotJson();
      return Decode(value, begin, *wanted[i].value);
    }
    return SkipValue() ? absl::OkStatus() : NotJson();
  }

  // A key may be written with escapes.
  static bool IsKey(absl::string_view token, absl::string_view name) {
    const absl::string_view plain = token.substr(1, token.size() - 2);
    if (plain.find('\\') == absl::string_view::npos) return plain == name;
    const absl::StatusOr<Json> key = ParseJson(token, "");
    return key.ok() && key->get<std::string>() == name;
  }

  // `token` begins at `begin` and has its quotation marks.
  absl::Status Decode(absl::string_view token, size_t begin, std::string& value) const {
    absl::StatusOr<Json> parsed = ParseJson(token, "");
    if (parsed.ok()) {
      value = std::move(parsed->get_ref<std::string&>());
      return absl::OkStatus();
    }
    // ":1:COLUMN: reason", counted in the token.
    absl::string_view message = parsed.status().message();
    int64_t column = 0;
    absl::ConsumePrefix(&message, ":1:");
    while (!message.empty() && absl::ascii_isdigit(static_cast<unsigned char>(message[0]))) {
      column = column * 10 + (message[0] - '0');
      message.remove_prefix(1);
    }
    return BadDataError(
        absl::StrCat(where_, ":", static_cast<int64_t>(begin) + std::max<int64_t>(column, 1), message));
  }

  // With its quotation marks; false if none begins here or ends in the line.
  bool ScanString(absl::string_view& token) {
    const size_t begin = at_;
    if (!Take('"')) return false;
    for (; at_ < line_.size(); ++at_) {
      if (line_[at_] == '\\') {
        ++at_;
      } else if (line_[at_] == '"') {
        ++at_;
        token = line_.substr(begin, at_ - begin);
        return true;
      }
    }
    at_ = begin;
    return false;
  }

  // A number, a word, a string, or what stands between brackets; false if nothing of this is here.
  bool SkipValue() {
    absl::string_view ignored;
    std::string open;  // the brackets that wait for their ends
    do {
      SkipSpace();
      if (at_ >= line_.size()) return false;
      const char c = line_[at_];
      if (c == '"') {
        if (!ScanString(ignored)) return false;
      } else if (c == '{' || c == '[') {
        open += c == '{' ? '}' : ']';
        ++at_;
      } else if (c == '}' || c == ']') {
        if (open.empty() || open.back() != c) return false;
        open.pop_back();
        ++at_;
      } else if (!open.empty() && (c == ',' || c == ':')) {
        ++at_;
      } else if (!SkipWord()) {
        return false;
      }
    } while (!open.empty());
    return true;
  }

  // "-1.5e3", "NaN", "true".
  bool SkipWord() {
    const size_t begin = at_;
    while (at_ < line_.size() && (absl::ascii_isalnum(static_cast<unsigned char>(line_[at_])) ||
                                  absl::string_view("+-.").find(line_[at_]) != absl::string_view::npos)) {
      ++at_;
    }
    return at_ > begin;
  }

  void SkipSpace() {
    while (at_ < line_.size() && absl::ascii_isspace(static_cast<unsigned char>(line_[at_]))) ++at_;
  }

  bool Take(char c) {
    if (at_ >= line_.size() || line_[at_] != c) return false;
    ++at_;
    return true;
  }

  absl::Status NotJson() const {
    return BadDataError(absl::StrCat(where_, ":", at_ + 1, ": not valid JSON"));
  }
  absl::Status NotAString(const WantedField& field) const {
    return BadDataError(absl::StrCat(where_, ": field '", field.name, "' is missing or not a string"));
  }

  const absl::string_view line_;
  const absl::string_view where_;
  size_t at_ = 0;
};

}  // namespace

absl::Status ReadStringFields(absl::string_view line, absl::string_view where,
                              const std::vector<WantedField>& wanted) {
  return LineScanner(line, where).Read(wanted);
}

}  // namespace trainctl::data
