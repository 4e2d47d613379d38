// Defines how a recipe may change between the first launch of a run and a resume. Pure except for `Access`.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "recipe/load.h"

namespace trainctl::recipe {

// Resolves "auto" values that must stay the same for the life of a run: optimizer.decay_steps becomes
// train.steps, so extending the run later does not alter past learning rates. Call this once, at the first
// launch, before the recipe is stored.
void FreezeForRun(Recipe& recipe);

// Applies `sets` to the stored recipe. train.steps, train.tokens, and train.epochs set the length of the
// whole run, counted from its first step. The notes cover only `sets`.
//
// Returns UsageError for everything that LoadRecipe rejects, and if `sets` contains a field that identifies
// the run (Resume::kIdentity); the message gives the reason and lists the fields that may change.
absl::StatusOr<LoadedRecipe> ApplyResumeSets(const Recipe& stored, absl::Span<const std::string> sets,
                                             const Access& access = RealAccess());

// Returns the changes to train.steps and to fields that only an explicit --set may change, for example
// "optimizer.lr is 1e-4 and was 1e-3". They affect the length or the results of the run from here on, so they
// are recorded with it.
std::vector<std::string> RecordedChanges(const Recipe& before, const Recipe& after);

struct Continuation {
  Recipe recipe;
  std::vector<std::string> changes;  // for example "checkpoint.keep is 9 and was 3"
};

// Merges a run's stored recipe with `now`, the recipe of a new launch of the same run. Fields that may change
// take their value from `now`, even if they are "auto" or unset there. For all other fields, "auto" keeps the
// value it resolved to originally. run.root and run.name are not compared, because the run folder is already
// known.
//
// Returns UsageError if identifying fields differ (the message lists them) or if the result is inconsistent.
absl::StatusOr<Continuation> ContinueAs(const Recipe& stored, const LoadedRecipe& now);

// Whether a field affects the layout: a parallel degree, the ZeRO stage, the micro-batch, recompute, or the
// workers' devices.
bool DecidesLayout(absl::string_view field);
// Whether the two recipes allow the planner the same set of layouts.
bool AsksForSameLayout(const Recipe& a, const Recipe& b);

}  // namespace trainctl::recipe
