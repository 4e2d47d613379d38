// Single changes of a recipe that would make its plan faster or smaller. Pure; thread safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cluster/host.h"
#include "layout/layout.h"
#include "plan/plan.h"
#include "recipe/recipe.h"
#include "simulate/machine.h"

namespace trainctl::planner {

struct Change {
  std::string setting;     // "parallel.zero_stage = 2": what to write into the recipe, or to pass to --set
  double speed = 1;        // tokens per second, as a multiple of the plan's
  int64_t peak_bytes = 0;  // of a worker
  layout::Layout layout;
};

inline constexpr int kMaxChanges = 3;

// False for models so deep and plans so hard to find that the searches would take minutes.
bool TriesChanges(const recipe::Recipe& recipe, const plan::Plan& plan);

// The best single-setting changes: first those faster on the same workers, then more nodes, then those
// that save memory for little time. The rest of the layout is as planned or, if the changed setting frees
// it, as the search chooses it. `measured` as for MakePlan; `plan` is the plan of the recipe. Empty if
// changes are not tried.
std::vector<Change> FindChanges(const recipe::Recipe& recipe, const cluster::Host& host,
                                const simulate::MachineProfile* measured, const plan::Plan& plan);

// The same with what was measured of `host`, as MakePlanFor. A profile that cannot be read counts as none:
// the plan has reported it.
std::vector<Change> FindChangesFor(const recipe::Recipe& recipe, const cluster::Host& host,
                                   const plan::Plan& plan);

// "1.94x as fast", "3 % slower, 9.0 GiB less".
std::string EffectOf(const Change& change, const plan::Plan& plan);

}  // namespace trainctl::planner
