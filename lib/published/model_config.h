// The column `model_config` of a table of measured runs: a whole config.json, or the fields in which a model
// differs from the one that the row names. Pure; thread safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "model/architecture.h"

namespace trainctl::published {

struct ModelConfig {
  std::optional<model::Architecture> whole;
  std::vector<std::pair<std::string, int64_t>> fields;  // else; true is 1

  // `whole`, or `spec` with the fields.
  void Apply(model::Architecture& spec) const;
  // What it says of a size that a column of the table has too ("layers", "hidden"); empty: nothing.
  std::optional<int64_t> SizeOf(absl::string_view column) const;
  bool StatesHeadDim() const;
};

// BadDataError, in words that follow "model_config: ": no JSON object, a field that is not known (with the
// nearest), a value that it cannot have.
absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view json_text);

// Fields of config.json that an object of differences may have, in order.
std::vector<std::string> ModelConfigFields();

}  // namespace trainctl::published
