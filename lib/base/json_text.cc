#include "base/json_text.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/json.h"

namespace trainctl {
namespace {

constexpr absl::string_view kSpaces = " \t\r\n";

// The places of a field in the text.
struct Member {
  std::string key;
  size_t key_begin = 0;
  size_t value_begin = 0;
  size_t value_end = 0;
};

// Returns the end of the string that begins at `begin`.
size_t EndOfString(absl::string_view text, size_t begin) {
  size_t at = begin + 1;
  while (text[at] != '"') at += text[at] == '\\' ? 2 : 1;
  return at + 1;
}

size_t EndOfValue(absl::string_view text, size_t begin) {
  int depth = 0;
  size_t at = begin;
  do {
    switch (text[at]) {
      case '"':
        at = EndOfString(text, at);
        break;
      case '{':
      case '[':
        ++depth;
        ++at;
        break;
      case '}':
      case ']':
        --depth;
        ++at;
        break;
      default:  // a number, a literal, or what separates the values of a list
        at = depth > 0 ? at + 1 : text.find_first_of(",} \t\r\n", at);
    }
  } while (depth > 0);
  return at;
}

std::vector<Member> MembersOf(absl::string_view text) {
  std::vector<Member> members;
  size_t at = text.find_first_not_of(kSpaces, text.find('{') + 1);
  while (text[at] == '"') {
    Member member = {.key_begin = at};
    const size_t key_end = EndOfString(text, at);
    member.key = ParseValidJson(text.substr(at, key_end - at)).get<std::string>();
    member.value_begin = text.find_first_not_of(kSpaces, text.find(':', key_end) + 1);
    member.value_end = EndOfValue(text, member.value_begin);
    at = text.find_first_not_of(kSpaces, member.value_end);
    if (text[at] == ',') at = text.find_first_not_of(kSpaces, at + 1);
    members.push_back(std::move(member));
  }
  return members;
}

// Returns the text between two members, with its comma.
std::string SeparatorOf(absl::string_view text, const std::vector<Member>& members) {
  if (members.size() > 1) {
    return std::string(text.substr(members[0].value_end, members[1].key_begin - members[0].value_end));
  }
  const size_t begin = text.find('{') + 1;
  const absl::string_view gap = text.substr(begin, members[0].key_begin - begin);
  return absl::StrCat(",", gap.empty() ? " " : gap);
}

// Formats a list or object over several lines if each member of the text has a separate line.
std::string FormatValue(const Json& value, absl::string_view separator) {
  const size_t newline = separator.rfind('\n');
  if (newline == absl::string_view::npos) return FormatJson(value);
  const absl::string_view indent = separator.substr(newline + 1);
  if (indent.find_first_not_of(kSpaces) != absl::string_view::npos) return FormatJson(value);
  const bool has_tabs = indent.find('\t') != absl::string_view::npos;
  const std::string lines = value.dump(static_cast<int>(indent.size()), has_tabs ? '\t' : ' ');
  return absl::StrReplaceAll(lines, {{"\n", absl::StrCat("\n", indent)}});
}

}  // namespace

std::string WithJsonField(absl::string_view text, absl::string_view key, const Json& value) {
  const std::vector<Member> members = MembersOf(text);
  if (members.empty()) return FormatJson(Json({{std::string(key), value}}));
  const std::string separator = SeparatorOf(text, members);
  const std::string written = FormatValue(value, separator);
  for (const Member& member : members) {
    if (member.key != key) continue;
    return absl::StrCat(text.substr(0, member.value_begin), written, text.substr(member.value_end));
  }
  const size_t end = members.back().value_end;
  return absl::StrCat(text.substr(0, end), separator, FormatJson(Json(std::string(key))), ": ", written,
                      text.substr(end));
}

}  // namespace trainctl
