#include "recipe/derive.h"

#include <algorithm>
#include <cmath>

namespace trainctl::recipe {

int64_t StepsForTokens(const Recipe& recipe, int64_t tokens) {
  const int64_t step_tokens = recipe.train.batch_sequences * recipe.data.seq_len;
  return tokens / step_tokens + (tokens % step_tokens != 0 ? 1 : 0);
}

int64_t StepsForEpochs(const Recipe& recipe, double epochs, int64_t epoch_tokens) {
  // 0.07 has no exact binary form, and 0.07 epochs of 100 tokens are 7 tokens, not a little more.
  constexpr double kRoundingError = 1e-15;
  constexpr double kMostTokens = 9e18;  // fits int64_t; CheckRecipe refuses so long a run
  const double tokens = epochs * static_cast<double>(epoch_tokens);
  const double whole_tokens = std::ceil(tokens - tokens * kRoundingError);
  return StepsForTokens(recipe, static_cast<int64_t>(std::min(whole_tokens, kMostTokens)));
}

void DeriveHoldout(Recipe& recipe) {
  double holdout = 0;
  for (const DataSource& source : recipe.data.eval) holdout = std::max(holdout, source.holdout);
  for (DataSource& source : recipe.data.train) source.holdout = holdout;
}

void ApplyOptimizerDefaults(Recipe& recipe, const std::function<bool(absl::string_view)>& is_stated) {
  OptimizerConfig& config = recipe.optimizer;
  const optim::Optimizer* optimizer = optim::Find(config.name);
  if (optimizer == nullptr) return;
  const optim::Defaults& defaults = optimizer->defaults;
  if (!is_stated("optimizer.lr")) config.lr = defaults.lr;
  if (!is_stated("optimizer.weight_decay")) config.weight_decay = defaults.weight_decay;
  if (!is_stated("optimizer.betas")) {
    config.beta1 = defaults.beta1;
    config.beta2 = defaults.beta2;
  }
  if (!is_stated("optimizer.eps")) config.eps = defaults.eps;
  if (!is_stated("optimizer.momentum")) config.momentum = defaults.momentum;
}

DType MasterType(const TrainConfig& train) {
  return train.master_dtype == "bf16" ? DType::kBF16 : DType::kF32;
}

optim::LrSchedule LearningRates(const Recipe& recipe) {
  const OptimizerConfig& o = recipe.optimizer;
  return {o.lr_schedule,   o.lr, o.min_lr, o.warmup_steps, o.decay_steps.value_or(recipe.train.steps),
          o.decay_fraction};
}

int64_t DefaultSaveInterval(const Recipe& recipe) {
  return std::clamp<int64_t>(recipe.train.steps / 10, 10, 1000);
}

void ResolveCheckpoint(Recipe& recipe) {
  CheckpointConfig& checkpoint = recipe.checkpoint;
  if (checkpoint.every_steps.has_value() || checkpoint.every.has_value()) return;
  checkpoint.every_steps = DefaultSaveInterval(recipe);
}

}  // namespace trainctl::recipe
