// From Oniguruma's syntax (Ruby, UTF-8) to that of PCRE2 (UTF, UCP, MULTILINE).
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tokenizer/pattern.h"

namespace trainctl::tokenizer {
namespace {

// White_Space; PCRE2's \s has U+180E as well.
constexpr absl::string_view kSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr absl::string_view kNotSpace =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
    R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{d7ff}\x{e000}-\x{10ffff})";
constexpr absl::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
// Oniguruma looks at code points up to U+00FF in a table of their own, where these are characters of words;
// within a class it does not.
constexpr absl::string_view kBareWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
// Two letters that Oniguruma takes for one character (as for U+00DF) where case does not matter.
constexpr absl::string_view kFolds[] = {"ss", "st", "ff", "fi", "fl"};

class Translator {
 public:
  Translator(absl::string_view pattern, absl::string_view what) : in_(pattern), what_(what) {}

  absl::StatusOr<std::string> Run() {
    while (at_ < in_.size()) TRAINCTL_RETURN_IF_ERROR(Step());
    if (in_class_) return Refuse("a '[' without ']'");
    return std::move(out_);
  }

 private:
  static constexpr absl::string_view kBeyondAscii = "a character beyond ASCII within (?i:...)";
  static constexpr absl::string_view kFoldedClass = "a class of characters beyond ASCII within (?i:...)";

  absl::Status Refuse(absl::string_view why) const {
    return BadDataError(absl::StrCat(what_, ": the pattern '", in_, "' has ", why, " at byte ", at_,
                                     ", which is not supported here"));
  }
  bool Sees(absl::string_view text) const { return absl::StartsWith(in_.substr(at_), text); }

  absl::Status Step() {
    const char c = in_[at_];
    if (c == '\\') return Escape();
    if (ignores_case_ && static_cast<uint8_t>(c) >= 0x80) return Refuse(kBeyondAscii);
    if (in_class_) return InClass(c);
    if (c == '[') return OpenClass();
    if (c == '(') return Group();
    if (c == ')') return CloseGroup();
    if (c == '{') return Interval();
    if (ignores_case_) TRAINCTL_RETURN_IF_ERROR(CheckFold());
    return Copy(1);
  }

  absl::Status Copy(size_t bytes) {
    out_.append(in_.data() + at_, bytes);
    at_ += bytes;
    return absl::OkStatus();
  }

  absl::Status OpenClass() {
    in_class_ = true;
    TRAINCTL_RETURN_IF_ERROR(Copy(Sees("[^") ? 2 : 1));
    if (at_ < in_.size() && in_[at_] == ']') return Refuse("a class that begins with ']'");
    return absl::OkStatus();
  }

  absl::Status InClass(char c) {
    if (c == '[') return Refuse("a class within a class");
    if (Sees("&&")) return Refuse("an intersection of classes");
    if (c == ']') in_class_ = false;
    return Copy(1);
  }

  absl::Status CheckFold() const {
    const std::string next = absl::AsciiStrToLower(in_.substr(at_, 2));
    for (const absl::string_view fold : kFolds) {
      if (next == fold) return Refuse("letters within (?i:...) that are read as one character as well");
    }
    return absl::OkStatus();
  }

  absl::Status Group() {
    outer_groups_ignore_case_.push_back(ignores_case_);
    if (!Sees("(?")) {  // what it captures is not used
      out_ += "(?:";
      ++at_;
      return absl::OkStatus();
    }
    if (Sees("(?i:")) ignores_case_ = true;
    for (const absl::string_view known : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:"}) {
      if (Sees(known)) return Copy(known.size());
    }
    return Refuse("a group of a kind");
  }

  absl::Status CloseGroup() {
    if (outer_groups_ignore_case_.empty()) return Refuse("a ')' without '('");
    ignores_case_ = outer_groups_ignore_case_.back();
    outer_groups_ignore_case_.pop_back();
    return Copy(1);
  }

  absl::Status Interval() {
    size_t end = at_ + 1;
    while (end < in_.size() && (absl::ascii_isdigit(static_cast<unsigned char>(in_[end])) || in_[end] == ','))
      ++end;
    const bool is_interval = end < in_.size() && in_[end] == '}' && end > at_ + 1;
    if (!is_interval || in_[at_ + 1] == ',') return Refuse("a '{' that is not {n}, {n,} or {n,m}");
    if (end + 1 < in_.size() && in_[end + 1] == '+') return Refuse("a '+' behind {...}");
    const bool is_exact = !absl::StrContains(in_.substr(at_, end - at_), ',');
    if (is_exact && end + 1 < in_.size() && in_[end + 1] == '?') {
      return Refuse("a '?' behind {n}, which makes it optional there and lazy elsewhere; write (?:...{n})?");
    }
    return Copy(end + 1 - at_);
  }

  // As a class of its own, or as a part of the one that is open.
  void PutClass(absl::string_view members) {
    if (in_class_) {
      absl::StrAppend(&out_, members);
    } else {
      absl::StrAppend(&out_, "[", members, "]");
    }
    at_ += 2;
  }

  absl::Status Escape() {
    if (at_ + 1 >= in_.size()) return Refuse("a '\\' at its end");
    const char c = in_[at_ + 1];
    switch (c) {
      case 's':
        return PutClass(kSpace), absl::OkStatus();
      case 'S':
        if (in_class_ && ignores_case_) return Refuse(kFoldedClass);
        return PutClass(kNotSpace), absl::OkStatus();
      case 'w':
        if (in_class_ && ignores_case_) return Refuse(kFoldedClass);
        return PutClass(in_class_ ? kWord : kBareWord), absl::OkStatus();
      case 'W':
        if (in_class_) return Refuse("\\W within a class");
        return absl::StrAppend(&out_, "[^", kBareWord, "]"), at_ += 2, absl::OkStatus();
      case 'd':
        return PutClass(R"(\p{Nd})"), absl::OkStatus();
      case 'D':
        if (in_class_ && ignores_case_) return Refuse(kFoldedClass);
        return PutClass(R"(\P{Nd})"), absl::OkStatus();
      case 'v':
        return absl::StrAppend(&out_, R"(\x{b})"), at_ += 2, absl::OkStatus();
      case 'p':
      case 'P':
        return Property();
      case 'x':
      case 'u':
        return Number();
      case 'r':
      case 'n':
      case 't':
      case 'f':
        return Copy(2);
      default:
        break;
    }
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)))
      return Refuse(absl::StrCat("\\", std::string(1, c)));
    return Copy(2);
  }

  absl::Status Property() {
    if (ignores_case_) return Refuse("a property within (?i:...)");
    const size_t end = in_.find('}', at_);
    if (at_ + 2 >= in_.size() || in_[at_ + 2] != '{' || end == absl::string_view::npos) {
      return Refuse("\\p without {...}");
    }
    absl::string_view name = in_.substr(at_ + 3, end - at_ - 3);
    const bool negated = absl::StartsWith(name, "^");
    if (negated) name.remove_prefix(1);
    for (const char c : name) {
      if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '_')
        return Refuse("a property of a kind");
    }
    // Categories have one or two letters; what is longer is taken for a script (in PCRE2 that alone would
    // mean the characters that are used with the script).
    const bool is_category = name.size() <= 2;
    absl::StrAppend(&out_, in_.substr(at_, 3), negated ? "^" : "", is_category ? "" : "sc:", name, "}");
    at_ = end + 1;
    return absl::OkStatus();
  }

  // \x{H...}, \xHH and \uHHHH
  absl::Status Number() {
    const bool braces = Sees("\\x{");
    const size_t begin = at_ + (braces ? 3 : 2);
    const size_t end = braces ? in_.find('}', begin) : begin + (in_[at_ + 1] == 'u' ? 4 : 2);
    if (end == absl::string_view::npos || end > in_.size()) return Refuse("a number without its end");
    const absl::string_view digits = in_.substr(begin, end - begin);
    bool is_number = !digits.empty() && digits.size() <= 6;
    for (const char c : digits) is_number = is_number && absl::ascii_isxdigit(static_cast<unsigned char>(c));
    if (!is_number) return Refuse("a number that is not hexadecimal");
    uint32_t code_point = 0;
    if (!absl::SimpleHexAtoi(digits, &code_point)) return Refuse("a number that is not hexadecimal");
    if (in_[at_ + 1] == 'x' && !braces && code_point >= 0x80) {
      return Refuse("\\xHH of a byte beyond ASCII; write \\x{...} for the character");
    }
    if (ignores_case_ && code_point >= 0x80) return Refuse(kBeyondAscii);
    absl::StrAppend(&out_, "\\x{", digits, "}");
    at_ = end + (braces ? 1 : 0);
    return absl::OkStatus();
  }

  absl::string_view in_;
  absl::string_view what_;
  size_t at_ = 0;
  bool in_class_ = false;
  bool ignores_case_ = false;
  std::vector<bool> outer_groups_ignore_case_;
  std::string out_;
};

}  // namespace

absl::StatusOr<std::string> TranslatePattern(absl::string_view oniguruma, absl::string_view what) {
  return Translator(oniguruma, what).Run();
}

}  // namespace trainctl::tokenizer
