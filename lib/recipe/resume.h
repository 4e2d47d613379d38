// What may change between the first launch of a run and its resumption. Pure but for `Access`.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "recipe/load.h"

namespace trainctl::recipe {

// Records what "auto" means for the whole life of a run: optimizer.decay_steps becomes train.steps, so
// that a longer resume does not bend the past learning rates. To be called once, at the first launch,
// before the recipe is stored.
void FreezeForRun(Recipe& recipe);

// The stored recipe with `sets` on top. UsageError for a field that makes the run what it is
// (Resume::kIdentity), with the reason and what may be changed, and for everything that LoadRecipe refuses.
// train.steps and train.tokens both set the length. The notes are about what `sets` states.
absl::StatusOr<LoadedRecipe> ApplyResumeSets(const Recipe& stored, absl::Span<const std::string> sets,
                                             const Access& access = RealAccess());

// What differs of the fields that only an explicit --set may change: "optimizer.lr is 1e-4 and was 1e-3".
// From here on the run computes something else than its recipe did; it is recorded with the run.
std::vector<std::string> RecordedChanges(const Recipe& before, const Recipe& after);

struct Continuation {
  Recipe recipe;
  std::vector<std::string> changes;  // "checkpoint.keep is 9 and was 3"
};

// The stored recipe of a run whose recipe is launched again and now reads `now`. What may change is as it is
// now, "auto" and what is no longer written included; of the rest "auto" stays what it became. run.root and
// run.name are not compared: the folder of the run is given. UsageError listing the fields that make the run
// what it is and read otherwise, and for what does not fit together.
absl::StatusOr<Continuation> ContinueAs(const Recipe& stored, const LoadedRecipe& now);

// Whether a field decides the layout: degrees, stage, micro-batch, recompute, and what workers are on.
bool DecidesLayout(absl::string_view field);
// Whether both leave a planner the same choice of a layout.
bool AsksForSameLayout(const Recipe& a, const Recipe& b);

}  // namespace trainctl::recipe
