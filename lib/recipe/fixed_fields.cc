#include "recipe/fixed_fields.h"

#include "recipe/show.h"

namespace trainctl::recipe {

FixedFields::FixedFields(const LoadedRecipe& loaded, int64_t micro_batch, absl::string_view precision)
    : fixed_(loaded), written_(loaded.stated) {
  // Inputs that are turned into others at load.
  if (written_.erase("train.tokens") > 0) Decided({"train.steps"});
  if (written_.contains("train.epochs") && loaded.recipe.train.steps > 0) {
    written_.erase("train.epochs");
    Decided({"train.steps"});
  }
  written_.erase("train.batch_tokens");
  if (written_.erase("parallel.schedule_file") > 0) written_.insert("parallel.passes");
  Decided({"recipe_version", "data.seq_len", "train.batch_sequences"});

  recipe().train.micro_batch = micro_batch;
  if (recipe().train.precision == "auto") fixed_.origin["train.precision"] = "planned";
  recipe().train.precision = std::string(precision);
  Decided({"train.micro_batch", "train.precision"});
}

void FixedFields::Decided(std::initializer_list<const char*> paths) {
  for (const char* path : paths) {
    if (written_.insert(path).second) fixed_.origin[path] = "planned";
  }
}

std::string FixedFields::ToToml() const { return recipe::ToToml(fixed_, written_); }

}  // namespace trainctl::recipe
