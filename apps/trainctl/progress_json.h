// What may be unknown or not finite, as the JSON of `runs` and `status` has it.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "base/json_fwd.h"

namespace trainctl::cli {

// JSON has no word for what is not finite: "nan", "inf" and "-inf", as in metrics.jsonl.
Json NumberOrNull(const std::optional<double>& value);
Json SecondsOrNull(const std::optional<absl::Duration>& value);
Json StepOrNull(int64_t step);  // null: below 0

}  // namespace trainctl::cli
