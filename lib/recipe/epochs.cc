#include "recipe/epochs.h"

#include "base/status.h"
#include "recipe/derive.h"

namespace trainctl::recipe {

absl::Status ResolveEpochs(const Access& access, Recipe& recipe) {
  TrainConfig& train = recipe.train;
  if (!train.epochs.has_value()) return absl::OkStatus();
  if (!access.count_epoch_tokens) {
    return UsageError(
        "train.epochs: this command does not count the data; set train.steps or train.tokens instead");
  }
  const absl::StatusOr<int64_t> epoch_tokens = access.count_epoch_tokens(recipe);
  TRAINCTL_RETURN_IF_ERROR(
      Annotate(epoch_tokens.status(), "train.epochs: cannot count the tokens of an epoch"));
  train.steps = StepsForEpochs(recipe, *train.epochs, *epoch_tokens);
  train.epochs.reset();
  return absl::OkStatus();
}

}  // namespace trainctl::recipe
