#include "recipe/schema.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "base/files.h"
#include "model/presets.h"
#include "recipe/recipe_json.h"
#include "recipe/show.h"
#include "recipe/values.h"
#include "recipe_test_util.h"

namespace trainctl::recipe {
namespace {

TEST(Schema, EveryRowIsComplete) {
  for (const Field& field : GetSchema().fields()) {
    EXPECT_FALSE(field.doc.empty()) << field.name;
    EXPECT_EQ(field.get == nullptr, field.set == nullptr) << field.name;
    EXPECT_EQ(GetSchema().Find(field.name), &field);
    if (!field.group.empty()) {
      const auto fields = GetSchema().fields();
      EXPECT_TRUE(std::any_of(fields.begin(), fields.end(), [&](const Field& other) {
        return other.group == field.group && other.alternative != field.alternative;
      })) << field.name;
    }
  }
}

// A default that its own row refuses would make every recipe invalid, or the row a lie.
TEST(Schema, EveryDefaultIsLegal) {
  Recipe recipe;
  Schema::ResizeList(recipe, "data.train", 1);
  Schema::ResizeList(recipe, "data.eval", 1);
  recipe.model.spec = *model::Preset("llama3.1-8b");
  recipe.train.steps = recipe.train.batch_sequences = 1;
  for (const Field& field : GetSchema().fields()) {
    if (!field.get || field.kind == Kind::kStringMap) continue;
    const std::optional<Value> value = field.get(recipe, 0);
    if (!value.has_value() || *value == Value(std::string())) continue;
    if (std::holds_alternative<Auto>(*value)) {
      EXPECT_TRUE(field.allow_auto) << field.name;
      continue;
    }
    const std::string set = absl::StrCat(field.PathAt(0), "=", ToTomlText(field, *value));
    const std::string error = ErrorOf(kMinimal, {set});
    EXPECT_FALSE(absl::StrContains(error, "out of range") || absl::StrContains(error, "expected")) << error;
  }
}

TEST(Schema, UnknownNamesFindTheirNeighbours) {
  EXPECT_EQ(NearestName("train.step"), "train.steps");
  EXPECT_EQ(NearestName("optimiser"), "optimizer");
  EXPECT_EQ(NearestName("train.weight_decay"), "optimizer.weight_decay");
  EXPECT_EQ(NearestName("data.train[].file"), "data.train[].files");
  EXPECT_EQ(NearestName("nothing.like.that"), "");
  EXPECT_EQ(NearestName(std::string(100000, 'x')), "");
}

TEST(Values, NumbersAreWrittenShortAndReadBackExactly) {
  EXPECT_EQ(FormatDouble(3e-4), "3e-4");
  EXPECT_EQ(FormatDouble(1e20), "1e20");
  EXPECT_EQ(FormatDouble(1e-10), "1e-10");
  EXPECT_EQ(FormatDouble(1), "1.0");
  EXPECT_EQ(FormatDouble(0.1), "0.1");
  EXPECT_EQ(FormatDouble(-2.5e-300), "-2.5e-300");
  EXPECT_EQ(DurationText(absl::Minutes(90)), "90m");
  EXPECT_EQ(DurationText(absl::Hours(2)), "2h");
  EXPECT_EQ(DurationText(absl::Milliseconds(1500)), "1500ms");
  EXPECT_EQ(DurationText(absl::Microseconds(1001)), "1.001ms");
  EXPECT_EQ(DurationText(absl::ZeroDuration()), "0s");
}

TEST(Values, Utf8IsCheckedStrictly) {
  EXPECT_TRUE(IsValidUtf8("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"));
  for (const char* text : {"\xff", "\x80", "\xc3", "\xc0\xaf", "\xe0\x80\x80", "\xed\xa0\x80",
                           "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe2\x82"}) {
    EXPECT_FALSE(IsValidUtf8(text));
  }
}

TEST(Reference, TheFileInTheTreeIsTheOutput) {
  const absl::StatusOr<std::string> page = ReadFile(TRAINCTL_SOURCE_DIR "/docs/reference/recipe.md");
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_TRUE(*page == ReferencePage()) << "run: trainctl recipe reference > docs/reference/recipe.md";
}

TEST(Reference, NamesEveryField) {
  const std::string page = ReferencePage();
  for (const Field& field : GetSchema().fields()) {
    EXPECT_TRUE(
        absl::StrContains(page, absl::StrCat("| `", field.name.substr(field.name.rfind('.') + 1), "` |")))
        << field.name;
  }
}

// Every recipe that is shipped, but the bases that others extend.
TEST(Recipes, AllAreValid) {
  Access access = RealAccess();
  access.environment = [](const std::string& name) -> std::optional<std::string> {
    if (name != "TRAINCTL_QUICKSTART_DATA") return std::nullopt;
    return TRAINCTL_SOURCE_DIR "/recipes";
  };
  const Access real = RealAccess();
  access.expand_glob = [&](const std::string& pattern) -> absl::StatusOr<std::vector<std::string>> {
    // The quick start's text is made when it runs.
    if (absl::EndsWith(pattern, "recipes/**/*.txt")) return std::vector<std::string>{pattern};
    return real.expand_glob(pattern);
  };
  int num_recipes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TRAINCTL_SOURCE_DIR "/recipes")) {
    if (entry.path().extension() != ".toml") continue;
    ++num_recipes;
    const absl::StatusOr<LoadedRecipe> loaded = LoadRecipe(entry.path().string(), {}, access);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_TRUE(loaded->notes.empty()) << loaded->notes[0];
    const absl::StatusOr<Recipe> stored = RecipeFromJson(ToJson(loaded->recipe), "stored");
    ASSERT_TRUE(stored.ok()) << stored.status();
    EXPECT_EQ(ToJson(*stored), ToJson(loaded->recipe));
  }
  EXPECT_GE(num_recipes, 3);
}

}  // namespace
}  // namespace trainctl::recipe
