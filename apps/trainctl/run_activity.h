// What workers do before their first step is done, in words. Pure; thread safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace trainctl::cli {

// Of what the first rank reports (base/control_channel.h): "starting: opening the data", "first step (41)".
std::string ActivityBeforeFirstStep(int64_t step, absl::string_view phase);

}  // namespace trainctl::cli
