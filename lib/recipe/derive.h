// Values that follow from others, in one place for loading, stored recipes and resuming. Pure.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/strings/string_view.h"
#include "base/dtype.h"
#include "optim/lr_schedule.h"
#include "recipe/recipe.h"

namespace trainctl::recipe {

// Steps that see at least `tokens` tokens. Requires a positive batch and seq_len.
int64_t StepsForTokens(const Recipe& recipe, int64_t tokens);

// Sets the derived share held out of every training source from the holdout of data.eval.
void DeriveHoldout(Recipe& recipe);

// Gives the fields of [optimizer] that are not stated ("optimizer.lr") the defaults of optimizer.name.
void ApplyOptimizerDefaults(Recipe& recipe, const std::function<bool(absl::string_view)>& is_stated);

// Of what train.master_dtype asks for.
DType MasterType(const TrainConfig& train);

// Its rate of each step.
optim::LrSchedule LearningRates(const Recipe& recipe);

// What checkpoint.every_steps = "auto" stands for: a tenth of the run, at least 10 and at most 1000 steps.
int64_t DefaultSaveInterval(const Recipe& recipe);

// Gives checkpoint.every_steps = "auto" its value; it stays empty (off) when `every` is given.
void ResolveCheckpoint(Recipe& recipe);

}  // namespace trainctl::recipe
