// Named moments of a save, for fault injection: "saving" (a rank file is half written),
// "before_commit_rename", "after_commit_rename". Set it before saving starts; not thread safe.
#pragma once

#include <functional>

namespace trainctl::checkpoint {

using PhaseHook = std::function<void(const char* phase)>;

void SetPhaseHook(PhaseHook hook);  // an empty function removes it
void ReachPhase(const char* phase);

}  // namespace trainctl::checkpoint
