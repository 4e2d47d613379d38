// Fuzzes the recipe parser, the merge of layers, --set, the checks, and the stored JSON, in memory.
// The input is a recipe, then after each NUL: a base file, then --set texts. What loads must survive
// being stored and shown.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "recipe/load.h"
#include "recipe/recipe_json.h"
#include "recipe/resume.h"
#include "recipe/show.h"

namespace trainctl::recipe {
namespace {

Access MemoryAccess(const std::string& base) {
  Access access;
  access.working_dir = "/work";
  access.environment = [](const std::string& name) -> std::optional<std::string> {
    return name.empty() ? std::nullopt : std::optional<std::string>("/" + name);
  };
  access.read_file = [base](const std::string& path) -> absl::StatusOr<std::string> {
    if (absl::EndsWith(path, "base.toml")) return base;
    if (absl::EndsWith(path, "config.json")) return base;
    return UsageError("there is no file " + path);
  };
  access.expand_glob = [](const std::string& pattern) -> absl::StatusOr<std::vector<std::string>> {
    if (pattern.size() % 7 == 3) return UsageError("no file matches " + pattern);
    return std::vector<std::string>{pattern};
  };
  access.is_folder = [](const std::string& path) { return path.size() % 5 != 2; };
  return access;
}

void FuzzOne(const std::string& input) {
  std::vector<std::string> parts = absl::StrSplit(input, '\0');
  const std::string text = parts[0];
  const Access access = MemoryAccess(parts.size() > 1 ? parts[1] : "");
  const std::vector<std::string> sets(
      parts.begin() + static_cast<ptrdiff_t>(std::min<size_t>(2, parts.size())), parts.end());
  (void)RecipeFromJson(text, "fuzz.json");
  const absl::StatusOr<LoadedRecipe> loaded = LoadRecipeText(text, "fuzz.toml", sets, access);
  if (!loaded.ok()) {
    TRAINCTL_CHECK(ExitCodeFor(loaded.status()) == ExitCode::kUsage && !loaded.status().message().empty());
    return;
  }
  const std::string json = ToJson(loaded->recipe);
  const absl::StatusOr<Recipe> stored = RecipeFromJson(json, "stored");
  TRAINCTL_CHECK_MSG(stored.ok(), stored.status().ToString(), "\n", json);
  TRAINCTL_CHECK(ToJson(*stored) == json);
  (void)ApplyResumeSets(*stored, sets, access);
  const absl::StatusOr<LoadedRecipe> shown = LoadRecipeText(ToToml(*loaded), "shown.toml", {}, access);
  // A "${" in a file's name is expanded when it is read again.
  TRAINCTL_CHECK_MSG(absl::StrContains(json, "${") || (shown.ok() && ToJson(shown->recipe) == json),
                     shown.status().ToString(), "\n", ToToml(*loaded));
}

}  // namespace
}  // namespace trainctl::recipe

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  trainctl::recipe::FuzzOne(std::string(reinterpret_cast<const char*>(data), size_bytes));
  return 0;
}
