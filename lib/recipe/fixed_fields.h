// A recipe in which a plan's decisions are written next to what its author stated: it plans to the same.
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
  FixedFields(const LoadedRecipe& loaded, int64_t micro_batch, absl::string_view precision);

  Recipe& recipe() { return fixed_.recipe; }

  // Fields that are written although the author left them open.
  void Decided(std::initializer_list<const char*> paths);

  std::string ToToml() const;

 private:
  LoadedRecipe fixed_;
  std::set<std::string> written_;
};

}  // namespace trainctl::recipe
