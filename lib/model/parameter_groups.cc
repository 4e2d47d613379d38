#include "model/parameter_groups.h"

#include "absl/strings/match.h"
#include "base/wildcard.h"

namespace trainctl::model {

bool IsSelected(absl::string_view selector, const Parameter& parameter) {
  const bool is_vector = parameter.shape.size() == 1;
  const bool is_bias = is_vector && absl::EndsWith(parameter.name, ".bias");
  if (selector == "norms") return is_vector && !is_bias;
  if (selector == "biases") return is_bias;
  if (selector == "embeddings") return !is_vector && parameter.block == EmbeddingBlock();
  return MatchesWildcard(selector, parameter.name);
}

}  // namespace trainctl::model
