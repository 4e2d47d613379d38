#include "cluster/hostlist.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace trainctl::cluster {
namespace {

// More digits than any count of hosts, and no overflow.
constexpr size_t kMaxDigits = 18;

absl::Status NotAList(absl::string_view list, absl::string_view why) {
  constexpr size_t kShown = 80;
  return BadDataError(absl::StrCat("host list \"", absl::CHexEscape(list.substr(0, kShown)),
                                   list.size() > kShown ? "..." : "", "\": ", why));
}

bool IsNumber(absl::string_view text) {
  return !text.empty() && text.size() <= kMaxDigits &&
         std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isdigit(c); });
}

bool IsOfAName(char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.'; }

// What a bracket stands for: "001-003,7" is 001, 002, 003 and 7.
absl::StatusOr<std::vector<std::string>> ExpandRanges(absl::string_view list, absl::string_view ranges) {
  std::vector<std::string> numbers;
  for (const absl::string_view range : absl::StrSplit(ranges, ',')) {
    const std::pair<absl::string_view, absl::string_view> ends =
        absl::StrSplit(range, absl::MaxSplits('-', 1));
    const bool is_one = range.find('-') == absl::string_view::npos;
    int64_t first = 0;
    int64_t last = 0;
    if (!IsNumber(ends.first) || !absl::SimpleAtoi(ends.first, &first)) {
      return NotAList(list, absl::StrCat("'", absl::CHexEscape(range), "' is neither a number nor a range"));
    }
    if (is_one) {
      last = first;
    } else if (!IsNumber(ends.second) || !absl::SimpleAtoi(ends.second, &last)) {
      return NotAList(list, absl::StrCat("'", absl::CHexEscape(range), "' is not a range"));
    }
    if (last < first) return NotAList(list, absl::StrCat("'", range, "' runs backwards"));
    if (last - first >= kMaxHosts - static_cast<int64_t>(numbers.size())) {
      return NotAList(list, absl::StrCat("more than ", kMaxHosts, " hosts"));
    }
    const int width = static_cast<int>(ends.first.size());
    for (int64_t number = first; number <= last; ++number) {
      numbers.push_back(absl::StrFormat("%0*d", width, number));
    }
  }
  return numbers;
}

// One entry of the list, such as "n[1-2]-ib[0-1]". Brackets are balanced.
absl::StatusOr<std::vector<std::string>> ExpandEntry(absl::string_view list, absl::string_view entry) {
  if (entry.empty()) return NotAList(list, "it contains an empty name");
  std::vector<std::string> names = {""};
  while (!entry.empty()) {
    std::vector<std::string> parts;
    if (entry[0] == '[') {
      const size_t end = entry.find(']');
      TRAINCTL_ASSIGN_OR_RETURN(parts, ExpandRanges(list, entry.substr(1, end - 1)));
      entry.remove_prefix(end + 1);
    } else {
      const size_t end = std::min(entry.find('['), entry.size());
      const absl::string_view text = entry.substr(0, end);
      if (!std::all_of(text.begin(), text.end(), IsOfAName)) {
        return NotAList(list, absl::StrCat("'", absl::CHexEscape(text),
                                           "' contains characters that are not allowed in a host name"));
      }
      parts = {std::string(text)};
      entry.remove_prefix(end);
    }
    if (static_cast<int64_t>(names.size() * parts.size()) > kMaxHosts) {
      return NotAList(list, absl::StrCat("more than ", kMaxHosts, " hosts"));
    }
    std::vector<std::string> longer;
    longer.reserve(names.size() * parts.size());
    for (const std::string& name : names) {
      for (const std::string& part : parts) {
        if (name.size() + part.size() > kMaxHostName)
          return NotAList(list, "it contains a name that is too long");
        longer.push_back(name + part);
      }
    }
    names = std::move(longer);
  }
  return names;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandHostlist(absl::string_view list) {
  if (list.empty()) return NotAList(list, "it is empty");
  std::vector<std::string> hosts;
  size_t begin = 0;
  bool in_bracket = false;
  for (size_t i = 0; i <= list.size(); ++i) {
    const bool at_end = i == list.size();
    if (!at_end && list[i] == (in_bracket ? ']' : '[')) {
      in_bracket = !in_bracket;
    } else if (!at_end && (list[i] == '[' || list[i] == ']')) {
      return NotAList(list, absl::StrCat("unexpected '", list.substr(i, 1), "'"));
    }
    if (!at_end && (list[i] != ',' || in_bracket)) continue;
    if (in_bracket) return NotAList(list, "a '[' is never closed");
    TRAINCTL_ASSIGN_OR_RETURN(std::vector<std::string> names,
                              ExpandEntry(list, list.substr(begin, i - begin)));
    if (static_cast<int64_t>(hosts.size() + names.size()) > kMaxHosts) {
      return NotAList(list, absl::StrCat("more than ", kMaxHosts, " hosts"));
    }
    std::move(names.begin(), names.end(), std::back_inserter(hosts));
    begin = i + 1;
  }
  return hosts;
}

}  // namespace trainctl::cluster
