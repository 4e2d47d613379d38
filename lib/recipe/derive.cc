#include "recipe/derive.h"

#include <algorithm>

namespace trainctl::recipe {

int64_t StepsForTokens(const Recipe& recipe, int64_t tokens) {
  const int64_t step_tokens = recipe.train.batch_sequences * recipe.data.seq_len;
  return tokens / step_tokens + (tokens % step_tokens != 0 ? 1 : 0);
}

void DeriveHoldout(Recipe& recipe) {
  double holdout = 0;
  for (const DataSource& source : recipe.data.eval) holdout = std::max(holdout, source.holdout);
  for (DataSource& source : recipe.data.train) source.holdout = holdout;
}

void ResolveCheckpoint(Recipe& recipe) {
  CheckpointConfig& checkpoint = recipe.checkpoint;
  if (checkpoint.every_steps.has_value() || checkpoint.every.has_value()) return;
  const int64_t tenth = std::max<int64_t>(1, recipe.train.steps / 10);
  checkpoint.every_steps = std::min<int64_t>(1000, tenth);
}

}  // namespace trainctl::recipe
