#include "recipe/paths.h"

#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/folder_paths.h"
#include "base/status.h"

namespace trainctl::recipe {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMaxFiles = 1'000'000;

// Walks the components of one pattern and collects the files that match.
class GlobWalk {
 public:
  explicit GlobWalk(const std::string& pattern) : parts_(absl::StrSplit(pattern, '/', absl::SkipEmpty())) {}

  absl::Status Run() {
    Visit("/", 0);
    if (files_.size() > kMaxFiles) return UsageError(absl::StrCat("more than ", kMaxFiles, " files match"));
    std::sort(files_.begin(), files_.end());
    files_.erase(std::unique(files_.begin(), files_.end()), files_.end());
    return absl::OkStatus();
  }

  std::vector<std::string>& files() { return files_; }
  // The deepest folder that the walk has entered, and why it could not be read (if so).
  const std::string& deepest() const { return deepest_; }
  const std::string& reason() const { return reason_; }

 private:
  static std::string Join(const std::string& folder, absl::string_view name) {
    return folder == "/" ? absl::StrCat("/", name) : absl::StrCat(folder, "/", name);
  }

  void Visit(const std::string& folder, size_t part) {
    if (files_.size() > kMaxFiles) return;
    if (!visited_.emplace(part, folder).second) return;  // several "**" lead to a folder in many ways
    if (part >= deepest_part_) {
      deepest_part_ = part;
      deepest_ = folder;
    }
    const std::string& name = parts_[part];
    const bool is_last = part + 1 == parts_.size();
    if (name == "**") {
      if (!is_last) Visit(folder, part + 1);
      Scan(folder, [&](const fs::directory_entry& entry, const std::string& path) {
        std::error_code error;
        const bool is_folder = entry.is_directory(error) && !entry.is_symlink(error);
        if (is_folder) Visit(path, part);
        if (is_last && !is_folder) AddIfFile(path);
      });
    } else if (!HasWildcard(name)) {
      Step(Join(folder, TextOfPattern(name)), part);
    } else {
      Scan(folder, [&](const fs::directory_entry&, const std::string& path) {
        const std::string leaf = path.substr(path.rfind('/') + 1);
        if (fnmatch(name.c_str(), leaf.c_str(), FNM_PERIOD) == 0) Step(path, part);
      });
    }
  }

  void Step(const std::string& path, size_t part) {
    if (part + 1 == parts_.size()) {
      AddIfFile(path);
    } else {
      std::error_code error;
      if (fs::is_directory(path, error)) Visit(path, part + 1);
    }
  }

  void AddIfFile(const std::string& path) {
    std::error_code error;
    // A link that leads nowhere was meant to be a file: it is kept, and opening it says so.
    const bool dangling = fs::is_symlink(path, error) && !fs::exists(path, error);
    if (dangling || fs::is_regular_file(path, error)) files_.push_back(path);
  }

  template <typename Visitor>
  void Scan(const std::string& folder, Visitor visit) {
    std::error_code error;
    fs::directory_iterator it(folder, error);
    for (; !error && it != fs::directory_iterator(); it.increment(error)) {
      const std::string name = it->path().filename().string();
      if (absl::StartsWith(name, ".")) {
        // A hidden name is matched by a pattern that starts with a dot only, which fnmatch decides.
        std::error_code type_error;
        if (it->is_directory(type_error)) continue;
      }
      visit(*it, Join(folder, name));
    }
    if (error) reason_ = error.message();
  }

  std::vector<std::string> parts_;
  std::set<std::pair<size_t, std::string>> visited_;  // what is left of the pattern, and where
  std::vector<std::string> files_;
  std::string deepest_ = "/";
  std::string reason_;
  size_t deepest_part_ = 0;
};

}  // namespace

absl::StatusOr<std::string> ExpandVariables(absl::string_view text, const Environment& environment) {
  std::string result;
  while (true) {
    const size_t start = text.find("${");
    if (start == absl::string_view::npos) break;
    const size_t end = text.find('}', start);
    if (end == absl::string_view::npos) {
      return UsageError(absl::StrCat("\"", text, "\" contains a ${ without a closing }"));
    }
    const std::string name(text.substr(start + 2, end - start - 2));
    const std::optional<std::string> value = environment(name);
    if (!value.has_value()) {
      return UsageError(absl::StrCat("the environment variable ${", name, "} is not set"));
    }
    absl::StrAppend(&result, text.substr(0, start), *value);
    text.remove_prefix(end + 1);
  }
  absl::StrAppend(&result, text);
  return result;
}

std::string AbsolutePattern(absl::string_view pattern, absl::string_view folder) {
  return AbsolutePath(pattern, LiteralPattern(folder));
}

std::string LiteralPattern(absl::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (absl::string_view("*?[\\").find(c) != absl::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

std::string TextOfPattern(absl::string_view pattern) {
  std::string text;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\' && i + 1 < pattern.size()) ++i;
    text += pattern[i];
  }
  return text;
}

bool HasWildcard(absl::string_view pattern) {
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\') {
      ++i;
    } else if (absl::string_view("*?[").find(pattern[i]) != absl::string_view::npos) {
      return true;
    }
  }
  return false;
}

absl::StatusOr<std::vector<std::string>> ExpandGlob(const std::string& pattern) {
  std::error_code error;
  if (fs::is_regular_file(pattern, error)) return std::vector<std::string>{pattern};
  const std::string literal = TextOfPattern(pattern);
  if (!HasWildcard(pattern) || fs::is_regular_file(literal, error)) {
    const fs::file_status status = fs::status(literal, error);
    if (!fs::exists(status)) return UsageError(absl::StrCat("there is no file ", literal));
    if (!fs::is_regular_file(status)) {
      const absl::string_view folder = absl::StripSuffix(literal, "/");
      return UsageError(absl::StrCat(
          literal, " is not a regular file",
          fs::is_directory(status) ? absl::StrCat("; did you mean its files (", folder, "/*)?") : ""));
    }
    return std::vector<std::string>{literal};
  }
  GlobWalk walk(pattern);
  TRAINCTL_RETURN_IF_ERROR(walk.Run());
  if (walk.files().empty()) {
    return UsageError(absl::StrCat("no file matches ", literal, " (searched ", walk.deepest(),
                                   walk.reason().empty() ? "" : ": ", walk.reason(), ")"));
  }
  return std::move(walk.files());
}

}  // namespace trainctl::recipe
