#include "recipe/access.h"

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "model/presets.h"

namespace trainctl::recipe {
namespace {

constexpr int64_t kMaxConfigBytes = 16 << 20;

// A name that is wrong is the caller's mistake; a file that cannot be read is the machine's.
absl::StatusOr<std::string> ReadNamedFile(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    const std::string with_extension = path + ".toml";
    const bool has_extension = std::filesystem::is_regular_file(with_extension, error);
    std::string hint;
    if (has_extension) {
      hint = absl::StrCat("; did you mean ", with_extension, "?");
    } else if (model::Preset(path).ok()) {
      hint = absl::StrCat("; ", path,
                          " is a preset: name it in a recipe (trainctl new writes one), or add "
                          "--set model.preset=",
                          path, " to a command with a recipe");
    }
    return UsageError(absl::StrCat("there is no file ", path, hint));
  }
  if (std::filesystem::is_directory(status)) {
    const bool has_model = std::filesystem::exists(path + "/config.json", error);
    return UsageError(
        absl::StrCat(path, " is a folder, not a file",
                     has_model ? absl::StrCat("; to fine-tune the model in it, run: trainctl new --from ",
                                              path, " --data FILE.jsonl")
                               : ""));
  }
  absl::StatusOr<std::string> text = ReadFile(path, kMaxConfigBytes);
  if (ExitCodeFor(text.status()) == ExitCode::kBadData) return UsageError(text.status().message());
  return text;
}

}  // namespace

Access RealAccess() {
  Access access;
  std::error_code error;
  access.working_dir = std::filesystem::current_path(error).string();
  access.environment = [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  access.read_file = ReadNamedFile;
  access.expand_glob = ExpandGlob;
  access.is_folder = [](const std::string& path) {
    std::error_code ignored;
    return std::filesystem::is_directory(path, ignored);
  };
  access.is_file = [](const std::string& path) {
    std::error_code ignored;
    return std::filesystem::is_regular_file(path, ignored);
  };
  return access;
}

}  // namespace trainctl::recipe
