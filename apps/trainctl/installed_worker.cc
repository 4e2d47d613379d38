#include "apps/trainctl/installed_worker.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/files.h"
#include "base/run_program.h"
#include "base/status.h"

namespace trainctl::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kLauncherPackage[] = "trainctl";
constexpr char kWorkerPackage[] = "trainctl_worker";
constexpr char kLibTorch[] = "libtorch_cpu.so";
constexpr char kSearchPath[] = "LD_LIBRARY_PATH";
// Finds torch without importing it, which would take seconds, and ignores a folder named torch in the
// working folder.
constexpr char kFindTorch[] = R"(import sys
sys.path = [folder for folder in sys.path if folder]
import importlib.util
found = importlib.util.find_spec("torch")
print(next(iter(found.submodule_search_locations or []), "") if found else ""))";

std::vector<fs::path> EntriesOf(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> entries;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    entries.push_back(entry->path());
  }
  absl::c_sort(entries);
  return entries;
}

// Folders that may hold an environment's packages. ENVIRONMENT itself is for `pip install --target`.
std::vector<fs::path> PackageFolders(const fs::path& environment) {
  std::vector<fs::path> folders = {environment};
  for (const char* lib : {"lib", "lib64"}) {
    for (const fs::path& python : EntriesOf(environment / lib)) {
      if (!absl::StartsWith(python.filename().string(), "python3")) continue;
      folders.push_back(python / "site-packages");
      folders.push_back(python / "dist-packages");
    }
  }
  return folders;
}

// The version of `package` in a folder of packages; empty if it is not there.
std::string InstalledVersion(const fs::path& folder, const std::string& package) {
  for (const fs::path& entry : EntriesOf(folder)) {
    const std::string name = entry.filename().string();
    absl::string_view version = name;
    if (absl::ConsumePrefix(&version, package + "-") && absl::ConsumeSuffix(&version, ".dist-info")) {
      return std::string(version);
    }
  }
  return "";
}

bool HasLibTorch(const fs::path& folder) {
  return PathExists((folder / "torch" / "lib" / kLibTorch).string());
}

// The Python interpreter that owns the packages in `folder`.
std::vector<std::string> PythonOf(const fs::path& program, const fs::path& folder) {
  const std::string beside = (program.parent_path() / "python3").string();
  if (access(beside.c_str(), X_OK) == 0) return {beside};
  const std::string version = folder.parent_path().filename().string();
  return {"/usr/bin/env", absl::StartsWith(version, "python3.") ? version : "python3"};
}

// The folder of LibTorch's libraries in the PyTorch that `python` would import; empty if there is none.
std::string AskForLibTorch(std::vector<std::string> python) {
  python.insert(python.end(), {"-c", kFindTorch});
  const absl::StatusOr<ProgramEnd> end = RunProgram(python, absl::Seconds(20));
  if (!end.ok() || !end->exit.Success()) return "";
  const std::string folder = absl::StrCat(end->output, "/lib");
  return PathExists(absl::StrCat(folder, "/", kLibTorch)) ? folder : "";
}

// The PyTorch that the worker in `folder` was built with, as a pip requirement: "torch==2.11.*".
std::string NeededTorch(const fs::path& folder, const std::string& version) {
  const fs::path info = folder / absl::StrCat(kWorkerPackage, "-", version, ".dist-info") / "METADATA";
  const std::string metadata = ReadFile(info.string()).value_or("");
  for (absl::string_view line : absl::StrSplit(metadata, '\n')) {
    if (absl::ConsumePrefix(&line, "Requires-Dist: ") && absl::StartsWith(line, "torch"))
      return std::string(line);
  }
  return "torch";
}

absl::Status MakeLibTorchFound(const fs::path& program, const fs::path& folder, const std::string& version) {
  if (HasLibTorch(folder)) return absl::OkStatus();
  const char* value = std::getenv(kSearchPath);
  const std::string searched = value == nullptr ? "" : value;
  for (absl::string_view place : absl::StrSplit(searched, ':', absl::SkipEmpty())) {
    if (PathExists(absl::StrCat(place, "/", kLibTorch))) return absl::OkStatus();
  }
  const std::vector<std::string> python = PythonOf(program, folder);
  const std::string found = AskForLibTorch(python);
  if (found.empty()) {
    return EnvironmentError(absl::StrCat(
        "trainctl-worker needs PyTorch, which was not found in ", folder.string(), " or by ", python.back(),
        "; run `pip install '", NeededTorch(folder, version),
        "'` in that environment, or add the lib folder of an existing installation to ", kSearchPath));
  }
  setenv(kSearchPath, (searched.empty() ? found : absl::StrCat(found, ":", searched)).c_str(), 1);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> FindInstalledWorker(const std::string& program) {
  fs::path chosen;
  std::string version;
  absl::Status problem = absl::NotFoundError(absl::StrCat("pip did not install ", program));
  for (const fs::path& folder : PackageFolders(fs::path(program).parent_path().parent_path())) {
    const std::string own = InstalledVersion(folder, kLauncherPackage);
    if (own.empty()) continue;
    const std::string worker = InstalledVersion(folder, kWorkerPackage);
    if (worker != own) {
      if (!absl::IsNotFound(problem)) continue;  // lib64 may be lib
      problem = EnvironmentError(absl::StrCat("training needs trainctl-worker ", own, ", but ",
                                              folder.string(), " contains ", worker.empty() ? "none" : worker,
                                              ". Install the matching wheel there with pip: ", kWorkerPackage,
                                              "-", own, "-*.whl, built together with trainctl's wheel"));
      continue;
    }
    // ~/.local may have packages of several Pythons.
    if (!chosen.empty() && (HasLibTorch(chosen) || !HasLibTorch(folder))) continue;
    chosen = folder;
    version = own;
  }
  if (chosen.empty()) return problem;
  TRAINCTL_RETURN_IF_ERROR(MakeLibTorchFound(program, chosen, version));
  return (chosen / kWorkerPackage / "bin" / "trainctl-worker").string();
}

}  // namespace trainctl::cli
