#include "apps/trainctl/progress_json.h"

#include <cmath>

#include "base/json.h"

namespace trainctl::cli {

Json NumberOrNull(const std::optional<double>& value) {
  if (!value.has_value()) return nullptr;
  if (std::isnan(*value)) return "nan";
  if (std::isinf(*value)) return *value > 0 ? "inf" : "-inf";
  return *value;
}

Json SecondsOrNull(const std::optional<absl::Duration>& value) {
  if (!value.has_value()) return nullptr;
  return NumberOrNull(absl::ToDoubleSeconds(*value));
}

Json StepOrNull(int64_t step) { return step < 0 ? Json(nullptr) : Json(step); }

}  // namespace trainctl::cli
