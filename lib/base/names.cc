#include "base/names.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace trainctl {
std::string NormalName(absl::string_view text) {
  std::string normal;
  for (const char c : text) {
    if (absl::ascii_isalnum(c)) normal.push_back(absl::ascii_tolower(c));
  }
  return normal;
}

std::string QuotedName(absl::string_view text) {
  constexpr size_t kShown = 60;
  return absl::StrCat("'", absl::CHexEscape(text.substr(0, kShown)), text.size() > kShown ? "..." : "", "'");
}

int EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<int> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::string NearestNames(absl::string_view text, const std::vector<std::string>& names) {
  constexpr size_t kCompared = 64;  // a name of a megabyte costs no more
  const std::string wanted = NormalName(text);
  std::vector<std::pair<int, std::string>> ranked;
  for (const std::string& name : names) {
    const std::string normal = NormalName(name);
    int distance = EditDistance(absl::string_view(wanted).substr(0, kCompared), normal);
    // "h100" is nearer to "h100-sxm-80gb" than to "h200" by what people mean.
    const size_t common =
        std::mismatch(wanted.begin(), wanted.begin() + std::min(wanted.size(), normal.size()), normal.begin())
            .first -
        wanted.begin();
    distance -= 2 * static_cast<int>(common);
    ranked.emplace_back(distance, name);
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> nearest;
  for (size_t i = 0; i < ranked.size() && i < 3; ++i) nearest.push_back(ranked[i].second);
  return absl::StrJoin(nearest, ", ");
}

}  // namespace trainctl
