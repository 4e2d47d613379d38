#include "checkpoint/phase_hook.h"

#include <utility>

namespace trainctl::checkpoint {
namespace {

PhaseHook& Hook() {
  static PhaseHook hook;
  return hook;
}

}  // namespace

void SetPhaseHook(PhaseHook hook) { Hook() = std::move(hook); }

void ReachPhase(const char* phase) {
  if (Hook()) Hook()(phase);
}

}  // namespace trainctl::checkpoint
