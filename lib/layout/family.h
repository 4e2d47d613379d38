// The families of layouts, as the field names them. Pure; thread safe.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "layout/layout.h"

namespace trainctl::layout {

// In the order of the plan's table: from replicated to sharded, then those that cut the model.
enum class Family { kDdp, kZero1, kZero2, kZero3, kHsdp, kTensor, kPipeline, kTensorAndPipeline };
inline constexpr int kNumFamilies = 8;

Family FamilyOf(const Layout& layout);

// "DDP", "ZeRO-1", "HSDP", "tp", "pp", "tp x pp".
absl::string_view FamilyName(Family family);

}  // namespace trainctl::layout
