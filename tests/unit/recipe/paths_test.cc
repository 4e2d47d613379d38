#include "recipe/paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/files.h"
#include "base/folder_paths.h"
#include "base/status.h"
#include "recipe/load.h"
#include "tests/unit/recipe/recipe_test_util.h"

namespace trainctl::recipe {
namespace {

using ::testing::ElementsAre;

TEST(Paths, VariablesAreExpandedAndMustBeDefined) {
  const Environment environment = [](const std::string& name) -> std::optional<std::string> {
    if (name == "A") return "/data";
    if (name == "EMPTY") return "";
    return std::nullopt;
  };
  EXPECT_EQ(*ExpandVariables("${A}/x${EMPTY}/${A}", environment), "/data/x//data");
  EXPECT_EQ(*ExpandVariables("$A $ }{ {", environment), "$A $ }{ {");
  EXPECT_EQ(ExpandVariables("x/${B}", environment).status().message(),
            "the environment variable ${B} is not set");
  EXPECT_EQ(ExpandVariables("x/${}", environment).status().message(),
            "the environment variable ${} is not set");
  EXPECT_EQ(ExpandVariables("x/${A", environment).status().message(),
            "\"x/${A\" contains a ${ without a closing }");
}

TEST(Paths, AbsolutePathsAreNormal) {
  EXPECT_EQ(AbsolutePath("b", "/a"), "/a/b");
  EXPECT_EQ(AbsolutePath("./b/../c/", "/a"), "/a/c");
  EXPECT_EQ(AbsolutePath("../x", "/a/b"), "/a/x");
  EXPECT_EQ(AbsolutePath("/x/./y", "/a"), "/x/y");
  EXPECT_EQ(AbsolutePath("/", "/a"), "/");
}

class Glob : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = absl::StrCat(::testing::TempDir(), "glob_test_XXXXXX");
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    dir_ = std::filesystem::canonical(pattern).string();
    for (const char* name : {"b.bin", "a.bin", "B.bin", "a10.bin", "a9.bin", "x.txt", ".hidden.bin",
                             "sub/c.bin", "sub/deep/d.bin", "sub/.git/e.bin", "star*.bin", "\xc3\xa9.bin"}) {
      const std::string path = absl::StrCat(dir_, "/", name);
      ASSERT_TRUE(MakeDirs(std::filesystem::path(path).parent_path().string()).ok());
      ASSERT_TRUE(AppendFile(path, "x").ok());
    }
    ASSERT_TRUE(MakeDirs(absl::StrCat(dir_, "/folder.bin")).ok());
    // A link to its own parent: "**" must not follow it for ever.
    std::filesystem::create_directory_symlink(dir_, absl::StrCat(dir_, "/sub/loop"));
    std::filesystem::create_symlink(absl::StrCat(dir_, "/x.txt"), absl::StrCat(dir_, "/sub/link.bin"));
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::vector<std::string> Names(absl::string_view pattern) const {
    const absl::StatusOr<std::vector<std::string>> files = ExpandGlob(absl::StrCat(dir_, "/", pattern));
    if (!files.ok()) return {absl::StrReplaceAll(files.status().message(), {{dir_, "DIR"}})};
    std::vector<std::string> names;
    for (const std::string& file : *files) names.push_back(file.substr(dir_.size() + 1));
    return names;
  }

  std::string dir_;
};

TEST_F(Glob, MatchesAreSortedByBytesAndAreFiles) {
  EXPECT_THAT(Names("*.bin"),
              ElementsAre("B.bin", "a.bin", "a10.bin", "a9.bin", "b.bin", "star*.bin", "\xc3\xa9.bin"));
  EXPECT_THAT(Names("a?.bin"), ElementsAre("a9.bin"));
  EXPECT_THAT(Names("[ab].bin"), ElementsAre("a.bin", "b.bin"));
  EXPECT_THAT(Names(".*.bin"), ElementsAre(".hidden.bin"));
  EXPECT_THAT(Names("s*b/*.bin"), ElementsAre("sub/c.bin", "sub/link.bin"));
}

TEST_F(Glob, TwoStarsMatchAnyNumberOfFolders) {
  EXPECT_THAT(Names("**/[cdx].*"), ElementsAre("sub/c.bin", "sub/deep/d.bin", "x.txt"));
  EXPECT_THAT(Names("sub/**"), ElementsAre("sub/c.bin", "sub/deep/d.bin", "sub/link.bin"));
  EXPECT_THAT(Names("**/**/**/d.bin"), ElementsAre("sub/deep/d.bin"));
  EXPECT_THAT(Names("**/deep/d.bin"), ElementsAre("sub/deep/d.bin"));
}

// Six of them reach a folder 40 deep in nine million ways.
TEST_F(Glob, EachFolderIsVisitedOnceHoweverManyStarsLeadThere) {
  std::string deep = dir_;
  for (int i = 0; i < 40; ++i) deep += "/d";
  ASSERT_TRUE(MakeDirs(deep).ok());
  EXPECT_THAT(Names("**/**/**/**/**/**/*.none"), ElementsAre(::testing::HasSubstr("no file matches")));
  EXPECT_THAT(Names("**/d/**/d/**/d/**/d/**/d/**/*.none"),
              ElementsAre(::testing::HasSubstr("no file matches")));
}

TEST_F(Glob, APlainPathIsItself) {
  EXPECT_THAT(Names("a.bin"), ElementsAre("a.bin"));
  EXPECT_THAT(Names(".hidden.bin"), ElementsAre(".hidden.bin"));
  // The name of a file that looks like a pattern is that file.
  EXPECT_THAT(Names("star*.bin"), ElementsAre("star*.bin"));
}

// A sibling whose name the folder's own would match as a pattern is another folder.
TEST_F(Glob, TheFolderOfARecipeIsLiteral) {
  for (const char* name : {"exp[1]/t.txt", "exp1/t.txt", "a*b/t.txt", "a\\b/t.txt", "ab/t.txt"}) {
    const std::string path = absl::StrCat(dir_, "/", name);
    ASSERT_TRUE(MakeDirs(std::filesystem::path(path).parent_path().string()).ok());
    ASSERT_TRUE(AppendFile(path, name).ok());
  }
  for (const char* folder : {"exp[1]", "exp1", "a*b", "a\\b", "ab"}) {
    const std::string of_recipe = absl::StrCat(dir_, "/", folder);
    for (const char* pattern : {"*.txt", "t.txt", "./[t].txt"}) {
      const auto files = ExpandGlob(AbsolutePattern(pattern, of_recipe));
      ASSERT_TRUE(files.ok()) << folder << " " << pattern << ": " << files.status();
      EXPECT_THAT(*files, ElementsAre(of_recipe + "/t.txt")) << pattern;
    }
    const auto none = ExpandGlob(AbsolutePattern("none*", of_recipe));
    EXPECT_THAT(std::string(none.status().message()),
                ::testing::HasSubstr(absl::StrCat("no file matches ", of_recipe, "/none* (searched ")));
  }
}

// The folder of the recipe for its own patterns, the working folder for those of --set.
TEST_F(Glob, ARecipeInAFolderThatLooksLikeAPatternReadsItsOwnFiles) {
  const std::string own = dir_ + "/exp[1]";
  const std::string sibling = dir_ + "/exp1";
  for (const std::string& folder : {own, sibling}) {
    ASSERT_TRUE(MakeDirs(folder + "/sub").ok());
    for (const char* name : {"/t.txt", "/sub/s.md"}) ASSERT_TRUE(AppendFile(folder + name, "x").ok());
  }
  ASSERT_TRUE(AppendFile(own + "/r.toml", absl::StrReplaceAll(kMinimal, {{"a.txt", "*.txt"}})).ok());
  Access access = RealAccess();
  access.working_dir = own;
  const auto files = [&](const std::vector<std::string>& sets) {
    const absl::StatusOr<LoadedRecipe> loaded = LoadRecipe(own + "/r.toml", sets, access);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return loaded.ok() ? loaded->recipe.data.train[0].files : std::vector<std::string>();
  };
  EXPECT_THAT(files({}), ElementsAre(own + "/t.txt"));
  EXPECT_THAT(files({"data.train[0].files=['**/*.md']"}), ElementsAre(own + "/sub/s.md"));
  EXPECT_THAT(files({"data.train[0].files=['../exp1/*.txt']"}), ElementsAre(sibling + "/t.txt"));
  EXPECT_THAT(files({"data.train[0].files=['../exp[1]/*.txt']"}), ElementsAre(sibling + "/t.txt"))
      << "what the user wrote is a pattern";
}

// A variable often holds the path of a folder that the recipe's author does not choose.
TEST_F(Glob, TheValueOfAVariableIsLiteral) {
  for (const char* name :
       {"exp[1]/t.txt", "exp1/t.txt", "a*b/t.txt", "a\\b/t.txt", "ab/t.txt", "r/x[1].txt", "r/x1.txt"}) {
    const std::string path = absl::StrCat(dir_, "/", name);
    ASSERT_TRUE(MakeDirs(std::filesystem::path(path).parent_path().string()).ok());
    ASSERT_TRUE(AppendFile(path, name).ok());
  }
  std::string value;
  Access access = RealAccess();
  access.environment = [&](const std::string&) { return std::optional<std::string>(value); };
  const auto files = [&](const std::string& pattern) {
    const absl::StatusOr<LoadedRecipe> loaded =
        LoadRecipeText(absl::StrReplaceAll(kMinimal, {{"a.txt", pattern}}), dir_ + "/r/r.toml", {}, access);
    if (!loaded.ok()) return std::vector<std::string>{std::string(loaded.status().message())};
    return loaded->recipe.data.train[0].files;
  };
  for (const char* folder : {"exp[1]", "exp1", "a*b", "a\\b", "ab"}) {
    value = absl::StrCat(dir_, "/", folder);
    EXPECT_THAT(files("${DATA}/*.txt"), ElementsAre(value + "/t.txt"));
    EXPECT_THAT(files("${DATA}/[t].txt"), ElementsAre(value + "/t.txt"));
    value = folder;
    EXPECT_THAT(files("../${DATA}/t.txt"), ElementsAre(absl::StrCat(dir_, "/", folder, "/t.txt")));
  }
  value = "x[1]";
  EXPECT_THAT(files("${DATA}.txt"), ElementsAre(dir_ + "/r/x[1].txt"));
  value = "x*";
  EXPECT_THAT(files("${DATA}.txt"),
              ElementsAre(::testing::HasSubstr("there is no file " + dir_ + "/r/x*.txt")));
  EXPECT_THAT(files("x[1].txt"), ElementsAre(dir_ + "/r/x[1].txt")) << "the name of a file, as before";
  EXPECT_THAT(files("x[12].txt"), ElementsAre(dir_ + "/r/x1.txt")) << "what the recipe says is a pattern";
}

TEST_F(Glob, NothingIsAnErrorThatSaysWhereItLooked) {
  EXPECT_THAT(Names("*.nope"), ElementsAre("no file matches DIR/*.nope (searched DIR)"));
  EXPECT_THAT(Names("sub/*/z*"), ElementsAre("no file matches DIR/sub/*/z* (searched DIR/sub/loop)"));
  EXPECT_THAT(Names("nope/*.bin"), ElementsAre("no file matches DIR/nope/*.bin (searched DIR)"));
  EXPECT_THAT(Names("nope.bin"), ElementsAre("there is no file DIR/nope.bin"));
  EXPECT_THAT(Names("sub"),
              ElementsAre("DIR/sub is not a regular file; did you mean its files (DIR/sub/*)?"));
  EXPECT_THAT(Names("sub/"),
              ElementsAre("DIR/sub/ is not a regular file; did you mean its files (DIR/sub/*)?"));
  EXPECT_THAT(Names("folder*"), ElementsAre("no file matches DIR/folder* (searched DIR)"));
}

}  // namespace
}  // namespace trainctl::recipe
