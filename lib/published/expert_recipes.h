// How the performance recipes of Megatron-Bridge exchange tokens with experts, release by release: its
// published rows do not say. Data with sources. Pure; thread safe.
#pragma once

#include "absl/strings/string_view.h"
#include "frameworks/workload.h"

namespace trainctl::published {

// Year, month and patch of the container that notes name, "26.04.01 NeMo Container": 260401; "26.04": 260400.
// 0: none.
int ReleaseIn(absl::string_view notes);

// Sets expert_dispatch, overlap_experts and fused_experts of a row whose notes name a NeMo container ("26.04
// NeMo Container"). False, and nothing is set, where no recipe is known.
bool ApplyExpertRecipe(absl::string_view model, absl::string_view notes, frameworks::Workload& workload);

}  // namespace trainctl::published
