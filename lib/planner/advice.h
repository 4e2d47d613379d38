// Finds single changes of a recipe that would make its plan faster or reduce its memory. Thread-safe.
//
//   for (const Change& change : FindChangesFor(recipe, host, plan))
//     Print(change.setting, EffectOf(change, plan));
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
  // Text for the recipe or for --set, such as "parallel.zero_stage = 2". Settings that must change together
  // are separated by commas.
  std::string setting;
  double speed = 1;        // tokens per second divided by the plan's
  int64_t peak_bytes = 0;  // peak tensor memory of a worker
  layout::Layout layout;   // layout that the plan would choose after the change
};

inline constexpr int kMaxChanges = 3;

// Returns false if the searches would take minutes, because the model has many layers and the search for the
// plan built many whole steps.
bool TriesChanges(const recipe::Recipe& recipe, const plan::Plan& plan);

// Returns the best changes, at most kMaxChanges. First come changes that are faster on the same workers, then
// twice the nodes, and then changes that save at least 5 % of memory at no less than 0.75 of the speed.
// Settings that the recipe leaves open are chosen again by the search. `plan` must be the plan of the recipe,
// and `measured` is as for MakePlan. Returns an empty list if TriesChanges is false. Runs one search per
// possible change, on as many threads as there are cores.
std::vector<Change> FindChanges(const recipe::Recipe& recipe, const cluster::Host& host,
                                const simulate::MachineProfile* measured, const plan::Plan& plan);

// The same with the measured profile of `host`, if there is one, as in MakePlanFor. Ignores a profile that
// cannot be read, because MakePlanFor reports it.
std::vector<Change> FindChangesFor(const recipe::Recipe& recipe, const cluster::Host& host,
                                   const plan::Plan& plan);

// Describes the effect of a change, for example "1.94x as fast" or "3.0 % slower, 9.0 GiB less".
std::string EffectOf(const Change& change, const plan::Plan& plan);

}  // namespace trainctl::planner
