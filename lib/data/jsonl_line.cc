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
      if (!SkipValue()) return NotJson();
      SkipSpace();
      if (at_ != line_.size()) return NotJson();
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
      if (!is_found[i]) {
        return BadDataError(absl::StrCat(where_, ": field '", wanted[i].name, "' is missing"));
      }
    }
    return absl::OkStatus();
  }

  std::vector<std::string> Names() {
    std::vector<std::string> names;
    SkipSpace();
    if (!Take('{')) return {};
    do {
      SkipSpace();
      absl::string_view key;
      if (!SkipString(key)) return names;
      const absl::StatusOr<Json> name = ParseJson(key, "");
      SkipSpace();
      if (!name.ok() || !Take(':')) return {};
      names.push_back(name->get<std::string>());
      SkipSpace();
      if (!SkipValue()) return {};
      SkipSpace();
    } while (Take(','));
    return names;
  }

 private:
  absl::Status ReadMember(const std::vector<WantedField>& wanted, std::vector<bool>& is_found) {
    SkipSpace();
    const size_t key_begin = at_;
    absl::string_view key;
    if (!SkipString(key)) return NotJson();
    SkipSpace();
    if (!Take(':')) return NotJson();
    SkipSpace();
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (!IsKey(key, wanted[i].name)) continue;
      if (is_found[i]) {
        return BadDataError(
            absl::StrCat(where_, ":", key_begin + 1, ": key '", wanted[i].name, "' occurs twice"));
      }
      is_found[i] = true;
      absl::string_view value;
      const size_t begin = at_;
      if (ScanString(value)) return Decode(value, begin, *wanted[i].value);
      if (!SkipValue()) return NotJson();
      return BadDataError(absl::StrCat(where_, ":", begin + 1, ": field '", wanted[i].name, "' is ",
                                       line_.substr(begin, at_ - begin) == "null" ? "null" : "not a string"));
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

  // The same, with escapes and control characters checked. The bytes need not be UTF-8.
  bool SkipString(absl::string_view& token) {
    const size_t begin = at_;
    if (!ScanString(token)) return false;
    for (size_t i = 1; i + 1 < token.size(); ++i) {
      bool is_good = static_cast<unsigned char>(token[i]) >= 0x20;
      if (token[i] == '\\') {
        ++i;
        is_good = absl::string_view("\"\\/bfnrtu").find(token[i]) != absl::string_view::npos;
        for (size_t digits = token[i] == 'u' ? 4 : 0; is_good && digits > 0; --digits) {
          ++i;
          is_good = i + 1 < token.size() && absl::ascii_isxdigit(static_cast<unsigned char>(token[i]));
        }
      }
      if (!is_good) {
        at_ = begin + std::min(i, token.size() - 1);
        return false;
      }
    }
    return true;
  }

  // Skips one value of any depth. False at the first byte that json.loads of Python would refuse.
  bool SkipValue() {
    absl::string_view ignored;
    std::string open;  // the closing brackets that are still due, innermost last
    while (true) {
      SkipSpace();
      if (Take('{')) {
        SkipSpace();
        if (!Take('}')) {
          open += '}';
          if (!SkipKey()) return false;
          continue;
        }
      } else if (Take('[')) {
        SkipSpace();
        if (!Take(']')) {
          open += ']';
          continue;
        }
      } else if (at_ < line_.size() && line_[at_] == '"') {
        if (!SkipString(ignored)) return false;
      } else if (!SkipWord()) {
        return false;
      }
      // After a value: closing brackets, then a comma if another value follows.
      while (true) {
        if (open.empty()) return true;
        SkipSpace();
        if (Take(',')) break;
        if (!Take(open.back())) return false;
        open.pop_back();
      }
      if (open.back() == '}' && !SkipKey()) return false;
    }
  }

  bool SkipKey() {
    absl::string_view ignored;
    SkipSpace();
    if (!SkipString(ignored)) return false;
    SkipSpace();
    return Take(':');
  }

  // "-1.5e3", "NaN", "true".
  bool SkipWord() {
    for (const absl::string_view word : {"true", "false", "null", "NaN", "Infinity", "-Infinity"}) {
      if (line_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return true;
    }
    Take('-');
    if (!Take('0') && !SkipDigits()) return false;
    if (Take('.') && !SkipDigits()) return false;
    if (!Take('e') && !Take('E')) return true;
    if (!Take('+')) Take('-');
    return SkipDigits();
  }

  // False if there is none.
  bool SkipDigits() {
    const size_t begin = at_;
    while (at_ < line_.size() && absl::ascii_isdigit(static_cast<unsigned char>(line_[at_]))) ++at_;
    return at_ > begin;
  }

  void SkipSpace() {
    while (at_ < line_.size() && absl::string_view(" \t\r\n").find(line_[at_]) != absl::string_view::npos) {
      ++at_;
    }
  }

  bool Take(char c) {
    if (at_ >= line_.size() || line_[at_] != c) return false;
    ++at_;
    return true;
  }

  absl::Status NotJson() const {
    return BadDataError(absl::StrCat(where_, ":", at_ + 1, ": not valid JSON"));
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

std::vector<std::string> FieldNames(absl::string_view line) { return LineScanner(line, "").Names(); }

}  // namespace trainctl::data
