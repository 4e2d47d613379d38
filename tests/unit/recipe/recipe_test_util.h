// A recipe on an imaginary file system, so that tests say what they read.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/folder_paths.h"
#include "base/status.h"
#include "recipe/load.h"

namespace trainctl::recipe {

// A valid recipe of one source and one worker.
inline constexpr char kMinimal[] = R"(recipe_version = 1
[model]
preset = "toy-1m"
[data]
seq_len = 128
[[data.train]]
files = ["a.txt"]
[train]
steps = 100
batch_sequences = 12
)";

struct FakeWorld {
  std::map<std::string, std::string> files;
  std::map<std::string, std::string> variables;

  Access access() const {
    Access access;
    access.working_dir = "/cwd";
    access.environment = [this](const std::string& name) -> std::optional<std::string> {
      const auto it = variables.find(name);
      return it == variables.end() ? std::nullopt : std::optional<std::string>(it->second);
    };
    access.read_file = [this](const std::string& path) -> absl::StatusOr<std::string> {
      const auto it = files.find(AbsolutePath(path, "/cwd"));
      if (it == files.end()) return EnvironmentError(absl::StrCat("cannot open ", path, ": not there"));
      return it->second;
    };
    // "*" stands for two files; a name without it for itself.
    access.expand_glob = [](const std::string& pattern) -> absl::StatusOr<std::vector<std::string>> {
      if (absl::StrContains(pattern, "missing")) return UsageError(absl::StrCat("no file matches ", pattern));
      const size_t star = pattern.find('*');
      if (star == std::string::npos) return std::vector<std::string>{pattern};
      const std::string head = pattern.substr(0, star);
      const std::string tail = pattern.substr(star + 1);
      return std::vector<std::string>{head + "0" + tail, head + "1" + tail};
    };
    access.is_file = [this](const std::string& path) { return files.contains(path); };
    access.is_folder = [](const std::string& path) { return !absl::StrContains(path, "missing"); };
    return access;
  }

  absl::StatusOr<LoadedRecipe> Load(const std::string& text,
                                    const std::vector<std::string>& sets = {}) const {
    return LoadRecipeText(text, "r.toml", sets, access());
  }
};

inline std::string ErrorOf(const std::string& text, const std::vector<std::string>& sets = {}) {
  const absl::StatusOr<LoadedRecipe> loaded = FakeWorld().Load(text, sets);
  if (loaded.ok()) return "OK";
  EXPECT_EQ(ExitCodeFor(loaded.status()), ExitCode::kUsage) << loaded.status();
  return std::string(loaded.status().message());
}

}  // namespace trainctl::recipe
