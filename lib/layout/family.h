// Families of layouts under their usual names. `trainctl plan` shows the best layout of each. Pure functions;
// thread-safe.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "layout/layout.h"

namespace trainctl::layout {

// Listed in the order of the plan's table: data parallelism from replicated to sharded, then the families
// that split the model.
enum class Family { kDdp, kZero1, kZero2, kZero3, kHsdp, kTensor, kPipeline, kTensorAndPipeline };
inline constexpr int kNumFamilies = 8;

// Returns the family of a layout. If the layout splits the model, its ZeRO stage does not matter. kHsdp
// covers every ZeRO stage with dp_replicate and dp_shard above 1.
Family FamilyOf(const Layout& layout);

// Returns "DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3", "HSDP", "tp", "pp" or "tp x pp".
absl::string_view FamilyName(Family family);

}  // namespace trainctl::layout
