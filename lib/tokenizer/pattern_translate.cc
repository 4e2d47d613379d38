#include "tokenizer/pattern_translate.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "tokenizer/code_points.h"
#include "tokenizer/utf8.h"

namespace trainctl::tokenizer {
namespace {

constexpr size_t kMaxSets = 1000;
constexpr size_t kMaxTranslatedBytes = 1 << 18;
// Two letters that Oniguruma takes for one character (as for U+00DF) where case does not matter.
constexpr absl::string_view kFolds[] = {"ss", "st", "ff", "fi", "fl"};

class Translator {
 public:
  Translator(absl::string_view pattern, absl::string_view what) : in_(pattern), what_(what) {}

  absl::StatusOr<TranslatedPattern> Run() {
    while (at_ < in_.size()) TRAINCTL_RETURN_IF_ERROR(Step());
    if (has_ignoring_group_) {  // PCRE2 takes U+017F for an s there, and U+212A for a k
      fixed_.Add(0x17F, 0x17F);
      fixed_.Add(0x212A, 0x212A);
    }
    auto stand_ins = std::make_shared<const StandIns>(sets_, fixed_);
    TranslatedPattern translated;
    for (const Part& part : parts_) {
      translated.pcre2 += part.text;
      if (part.set >= 0) PutMembers(stand_ins->members()[static_cast<size_t>(part.set)], translated.pcre2);
      if (translated.pcre2.size() > kMaxTranslatedBytes) return Refuse("too many character classes");
    }
    if (!stand_ins->is_identity()) translated.stand_ins = std::move(stand_ins);
    return translated;
  }

 private:
  // Text in PCRE2's syntax and the class behind it.
  struct Part {
    std::string text;
    int set = -1;  // in sets_; -1: none
  };
  // One character or a class.
  struct Atom {
    bool is_class = false;
    uint32_t character = 0;
    CodePointSet members;
  };

  static constexpr absl::string_view kBeyondAscii = "a non-ASCII character within (?i:...)";
  static constexpr absl::string_view kFoldedClass = "a class with non-ASCII characters within (?i:...)";

  absl::Status Refuse(absl::string_view why) const {
    return BadDataError(absl::StrCat(what_, ": the pattern '", in_, "' contains ", why, " at byte ", at_,
                                     ", which is not supported"));
  }
  bool Sees(absl::string_view text) const { return absl::StartsWith(in_.substr(at_), text); }

  absl::Status Step() {
    const char c = in_[at_];
    if (c == '\\') return BareEscape();
    if (c == '[') return Class();
    if (c == '(') return Group();
    if (c == ')') return CloseGroup();
    if (c == '{') return Interval();
    if (static_cast<uint8_t>(c) >= 0x80) return BareCharacter(CharBytes(c));
    if (ignores_case_) TRAINCTL_RETURN_IF_ERROR(CheckFold());
    return Copy(1);
  }

  std::string& Out() {
    if (parts_.empty() || parts_.back().set >= 0) parts_.emplace_back();
    return parts_.back().text;
  }

  absl::Status Copy(size_t bytes) {
    Out().append(in_.data() + at_, bytes);
    at_ += bytes;
    return absl::OkStatus();
  }

  absl::Status BareCharacter(size_t bytes) {
    if (ignores_case_) return Refuse(kBeyondAscii);
    const uint32_t character = FrontCodePoint(in_.substr(at_));
    fixed_.Add(character, character);
    return Copy(bytes);
  }

  static void PutCodePoint(uint32_t c, std::string& out) {
    if (c < 0x80 && absl::ascii_isalnum(static_cast<unsigned char>(c))) {
      out.push_back(static_cast<char>(c));
    } else {
      absl::StrAppend(&out, "\\x{", absl::Hex(c), "}");
    }
  }

  // The shorter of [...] and [^...].
  static void PutMembers(const StandIns::Members& members, std::string& out) {
    const bool negate = members.out.ranges().size() < members.in.ranges().size();
    const CodePointSet& shown = negate ? members.out : members.in;
    if (shown.ranges().empty()) {
      out += negate ? "[\\x{0}-\\x{10ffff}]" : "[^\\x{0}-\\x{10ffff}]";
      return;
    }
    out += negate ? "[^" : "[";
    for (const CodePointRange& range : shown.ranges()) {
      PutCodePoint(range.first, out);
      if (range.last > range.first + 1) out.push_back('-');
      if (range.last > range.first) PutCodePoint(range.last, out);
    }
    out.push_back(']');
  }

  absl::Status PutClass(CodePointSet members) {
    size_t set = 0;
    while (set < sets_.size() && sets_[set] != members) ++set;
    if (set == kMaxSets) return Refuse(absl::StrCat("more than ", kMaxSets, " different classes"));
    if (set == sets_.size()) sets_.push_back(std::move(members));
    // Classes of PCRE2's own making must not gain members.
    if (ignores_case_) Out() += "(?-i:";
    Out();
    parts_.back().set = static_cast<int>(set);
    if (ignores_case_) Out() += ")";
    return absl::OkStatus();
  }

  absl::Status Class() {
    ++at_;
    const bool negated = Sees("^");
    if (negated) ++at_;
    if (Sees("]")) return Refuse("a class that begins with ']'");
    CodePointSet members;
    in_class_ = true;
    while (!Sees("]")) {
      TRAINCTL_ASSIGN_OR_RETURN(const Atom first, ClassAtom());
      const bool has_range = Sees("-") && !Sees("-]");
      if (first.is_class) {
        if (has_range) return Refuse("a '-' after a class");
        members.Add(first.members);
        continue;
      }
      if (!has_range) {
        members.Add(first.character, first.character);
        continue;
      }
      ++at_;
      TRAINCTL_ASSIGN_OR_RETURN(const Atom last, ClassAtom());
      if (last.is_class) return Refuse("a range that ends with a class");
      if (last.character < first.character) return Refuse("a range whose end precedes its start");
      members.Add(first.character, last.character);
    }
    ++at_;
    in_class_ = false;
    if (ignores_case_) AddOtherCases(members);
    return PutClass(negated ? members.Complement() : std::move(members));
  }

  static void AddOtherCases(CodePointSet& members) {
    for (uint32_t lower = 'a'; lower <= 'z'; ++lower) {
      const uint32_t upper = lower - 'a' + 'A';
      if (!members.Contains(lower) && !members.Contains(upper)) continue;
      members.Add(lower, lower);
      members.Add(upper, upper);
      if (lower == 's') members.Add(0x17F, 0x17F);
      if (lower == 'k') members.Add(0x212A, 0x212A);
    }
  }

  absl::StatusOr<Atom> ClassAtom() {
    if (at_ >= in_.size()) return Refuse("a '[' without ']'");
    if (Sees("[")) return Refuse("a class within a class");
    if (Sees("&&")) return Refuse("an intersection of classes");
    if (Sees("\\")) return Escape();
    return Character(0);
  }

  // The character `offset` bytes ahead.
  absl::StatusOr<Atom> Character(size_t offset) {
    const absl::string_view rest = in_.substr(at_ + offset);
    Atom atom;
    atom.character = FrontCodePoint(rest);
    if (ignores_case_ && atom.character >= 0x80) return Refuse(kBeyondAscii);
    at_ += offset + CharBytes(rest.front());
    return atom;
  }

  absl::Status CheckFold() const {
    const std::string next = absl::AsciiStrToLower(in_.substr(at_, 2));
    for (const absl::string_view fold : kFolds) {
      if (next == fold) return Refuse("letters within (?i:...) that can also match as a single character");
    }
    return absl::OkStatus();
  }

  absl::Status Group() {
    outer_groups_ignore_case_.push_back(ignores_case_);
    if (!Sees("(?")) {  // what it captures is not used
      Out() += "(?:";
      ++at_;
      return absl::OkStatus();
    }
    if (Sees("(?i:")) ignores_case_ = has_ignoring_group_ = true;
    for (const absl::string_view known : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:"}) {
      if (Sees(known)) return Copy(known.size());
    }
    return Refuse("an unknown kind of group");
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
    if (end + 1 < in_.size() && in_[end + 1] == '+') return Refuse("a '+' after {...}");
    const bool is_exact = !absl::StrContains(in_.substr(at_, end - at_), ',');
    if (is_exact && end + 1 < in_.size() && in_[end + 1] == '?') {
      return Refuse(
          "a '?' after {n}, which makes it optional in Oniguruma and lazy elsewhere; write (?:...{n})?");
    }
    return Copy(end + 1 - at_);
  }

  absl::Status BareEscape() {
    TRAINCTL_ASSIGN_OR_RETURN(Atom atom, Escape());
    if (atom.is_class) return PutClass(std::move(atom.members));
    if (atom.character >= 0x80) fixed_.Add(atom.character, atom.character);
    PutCodePoint(atom.character, Out());
    return absl::OkStatus();
  }

  static Atom ClassOf(CodePointSet members) { return {true, 0, std::move(members)}; }
  static Atom CharacterOf(uint32_t character) { return {false, character, {}}; }

  // In Oniguruma, a few numbers of Latin-1 are characters of words outside of classes.
  CodePointSet Word() const {
    CodePointSet word = WordCharacters();
    if (in_class_) return word;
    for (const uint32_t number : {0xB2, 0xB3, 0xB9, 0xBC, 0xBD, 0xBE}) word.Add(number, number);
    return word;
  }

  absl::StatusOr<Atom> Escape() {
    if (at_ + 1 >= in_.size()) return Refuse("a '\\' at its end");
    const char c = in_[at_ + 1];
    if (c == 'p' || c == 'P') return Property();
    if (c == 'x' || c == 'u') return Number();
    if (absl::StrContains("SwD", c) && in_class_ && ignores_case_) return Refuse(kFoldedClass);
    if (c == 'W' && in_class_) return Refuse("\\W within a class");
    if (!absl::StrContains("sSwWdDvrntf", c)) {
      if (absl::ascii_isalnum(static_cast<unsigned char>(c))) {
        return Refuse(absl::StrCat("\\", std::string(1, c)));
      }
      return Character(1);
    }
    at_ += 2;
    switch (c) {
      case 's':
        return ClassOf(WhiteSpace());
      case 'S':
        return ClassOf(WhiteSpace().Complement());
      case 'w':
        return ClassOf(Word());
      case 'W':
        return ClassOf(Word().Complement());
      case 'd':
        return ClassOf(*CharactersWith("Nd"));
      case 'D':
        return ClassOf(CharactersWith("Nd")->Complement());
      case 'v':
        return CharacterOf('\v');
      case 'r':
        return CharacterOf('\r');
      case 'n':
        return CharacterOf('\n');
      case 't':
        return CharacterOf('\t');
      default:
        return CharacterOf('\f');
    }
  }

  absl::StatusOr<Atom> Property() {
    if (ignores_case_) return Refuse("a property within (?i:...)");
    const size_t end = in_.find('}', at_);
    if (at_ + 2 >= in_.size() || in_[at_ + 2] != '{' || end == absl::string_view::npos) {
      return Refuse("\\p without {...}");
    }
    absl::string_view name = in_.substr(at_ + 3, end - at_ - 3);
    const bool negated = absl::ConsumePrefix(&name, "^") != (in_[at_ + 1] == 'P');
    std::optional<CodePointSet> members = CharactersWith(name);
    if (!members.has_value()) {
      return Refuse(
          absl::StrCat("the property '", name, "', which is neither a general category nor a script"));
    }
    at_ = end + 1;
    return ClassOf(negated ? members->Complement() : *std::move(members));
  }

  // \x{H...}, \xHH and \uHHHH
  absl::StatusOr<Atom> Number() {
    const bool braces = Sees("\\x{");
    const size_t begin = at_ + (braces ? 3 : 2);
    const size_t end = braces ? in_.find('}', begin) : begin + (in_[at_ + 1] == 'u' ? 4 : 2);
    if (end == absl::string_view::npos || end > in_.size()) return Refuse("an unterminated number");
    const absl::string_view digits = in_.substr(begin, end - begin);
    bool is_number = !digits.empty() && digits.size() <= 6;
    for (const char c : digits) is_number = is_number && absl::ascii_isxdigit(static_cast<unsigned char>(c));
    if (!is_number) return Refuse("a number that is not hexadecimal");
    uint32_t code_point = 0;
    if (!absl::SimpleHexAtoi(digits, &code_point)) return Refuse("a number that is not hexadecimal");
    if (in_[at_ + 1] == 'x' && !braces && code_point >= 0x80) {
      return Refuse("\\xHH for a non-ASCII byte; write \\x{...} for the character");
    }
    if (ignores_case_ && code_point >= 0x80) return Refuse(kBeyondAscii);
    if (code_point > kMaxCodePoint || (code_point >= 0xD800 && code_point < 0xE000)) {
      return Refuse("a number that is not a character");
    }
    at_ = end + (braces ? 1 : 0);
    return CharacterOf(code_point);
  }

  absl::string_view in_;
  absl::string_view what_;
  size_t at_ = 0;
  bool in_class_ = false;
  bool ignores_case_ = false;
  bool has_ignoring_group_ = false;
  std::vector<bool> outer_groups_ignore_case_;
  std::vector<Part> parts_;
  std::vector<CodePointSet> sets_;
  CodePointSet fixed_;  // characters that stand for themselves in the pattern
};

}  // namespace

absl::StatusOr<TranslatedPattern> TranslatePattern(absl::string_view oniguruma, absl::string_view what) {
  return Translator(oniguruma, what).Run();
}

}  // namespace trainctl::tokenizer
