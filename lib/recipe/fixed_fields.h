// Writes a recipe that spells out a plan's decisions, so that planning it again yields the same plan.
//
//   FixedFields fixed(loaded, /*micro_batch=*/2, "bf16");
//   fixed.recipe().parallel.zero_stage = 3;
//   fixed.Decided({"parallel.zero_stage"});
//   Write(fixed.ToToml());
#pragma once

#include <cstdint>
#include <initializer_list>
#include <set>
#include <string>

#include "absl/strings/string_view.h"
#include "recipe/load.h"

namespace trainctl::recipe {

class FixedFields {
 public:
  // Starts from the fields that `loaded` states, with the planned micro-batch and precision.
  FixedFields(const LoadedRecipe& loaded, int64_t micro_batch, absl::string_view precision);

  // The recipe to write. Set decided values here.
  Recipe& recipe() { return fixed_.recipe; }

  // Marks fields to be written even though the recipe's author left them open.
  void Decided(std::initializer_list<const char*> paths);

  // Returns the stated and the decided fields as TOML.
  std::string ToToml() const;

 private:
  LoadedRecipe fixed_;
  std::set<std::string> written_;
};

}  // namespace trainctl::recipe
