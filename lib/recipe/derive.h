// Computes values that follow from other fields, in one place for loading a recipe, reading a stored one, and
// resuming. Pure.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/strings/string_view.h"
#include "base/dtype.h"
#include "optim/lr_schedule.h"
#include "recipe/recipe.h"

namespace trainctl::recipe {

// Returns the smallest number of steps that trains on at least `tokens` tokens. The batch size and seq_len
// must be positive.
int64_t StepsForTokens(const Recipe& recipe, int64_t tokens);
// Returns the smallest number of steps that trains on at least `epochs` * `epoch_tokens` tokens. The batch
// size and seq_len must be positive.
int64_t StepsForEpochs(const Recipe& recipe, double epochs, int64_t epoch_tokens);

// Sets the held-out share of each training source from the holdout settings of data.eval.
void DeriveHoldout(Recipe& recipe);

// Sets each [optimizer] field to the default for optimizer.name, unless `is_stated` returns true for its full
// name, such as "optimizer.lr".
void ApplyOptimizerDefaults(Recipe& recipe, const std::function<bool(absl::string_view)>& is_stated);

// Returns the data type of the master weights (train.master_dtype).
DType MasterType(const TrainConfig& train);

// Returns the learning rate schedule.
optim::LrSchedule LearningRates(const Recipe& recipe);

// Returns the value of checkpoint.every_steps = "auto": a tenth of the run, but at least 10 and at most 1000
// steps.
int64_t DefaultSaveInterval(const Recipe& recipe);

// Resolves checkpoint.every_steps = "auto". If checkpoint.every is set, the field stays empty (off).
void ResolveCheckpoint(Recipe& recipe);

}  // namespace trainctl::recipe
