#include "recipe/check_context.h"

#include <algorithm>

namespace trainctl::recipe {

bool CheckContext::IsUsable(Paths paths) const {
  return std::none_of(paths.begin(), paths.end(),
                      [&](absl::string_view path) { return issues_.IsBad(path); });
}

void CheckContext::FailEach(const std::vector<Conflict>& conflicts) {
  for (const Conflict& conflict : conflicts) {
    if (conflict.is_found && IsUsable(conflict.fields)) Fail(conflict.fields, conflict.message);
  }
}

std::string CheckContext::PlaceOf(Paths paths) const {
  for (const absl::string_view path : paths) {
    if (IsGiven(path)) return origins_.at(std::string(path));
  }
  return "";
}

}  // namespace trainctl::recipe
