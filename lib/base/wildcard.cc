#include "base/wildcard.h"

namespace trainctl {

bool MatchesWildcard(absl::string_view pattern, absl::string_view name) {
  // On a mismatch the last "*" takes one character more: linear space, no recursion.
  size_t at_pattern = 0;
  size_t at_name = 0;
  size_t after_star = absl::string_view::npos;
  size_t star_end = 0;
  while (at_name < name.size()) {
    const char wanted = at_pattern < pattern.size() ? pattern[at_pattern] : '\0';
    if (at_pattern < pattern.size() && wanted == '*') {
      after_star = ++at_pattern;
      star_end = at_name;
    } else if (at_pattern < pattern.size() && (wanted == '?' || wanted == name[at_name])) {
      ++at_pattern;
      ++at_name;
    } else if (after_star != absl::string_view::npos) {
      at_pattern = after_star;
      at_name = ++star_end;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', at_pattern) == absl::string_view::npos;
}

}  // namespace trainctl
