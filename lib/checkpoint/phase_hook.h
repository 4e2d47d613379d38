// Calls a hook at named points of a save, for fault injection: "saving" (when a rank's file is half written),
// "before_commit_rename" and "after_commit_rename". Set the hook before the first save; setting it is not
// thread-safe.
#pragma once

#include <functional>

namespace trainctl::checkpoint {

using PhaseHook = std::function<void(const char* phase)>;

void SetPhaseHook(PhaseHook hook);  // an empty function removes the hook
void ReachPhase(const char* phase);

}  // namespace trainctl::checkpoint
