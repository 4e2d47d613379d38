#include "data/parquet_plugin.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/files.h"
#include "base/folder_entries.h"
#include "base/plugin_path.h"
#include "base/status.h"

namespace trainctl::data {
namespace {

// cmake/parquet.cmake defines the versions, from third_party/pyarrow.sh.
constexpr absl::string_view kPyarrow = "pyarrow==" TRAINCTL_PYARROW_VERSION;
constexpr absl::string_view kPluginName = "libtrainctl_parquet.so";
constexpr const char* kFolderVariable = "TRAINCTL_PYARROW";

// The second library needs the first.
constexpr const char* kArrowLibraries[] = {"libarrow.so." TRAINCTL_ARROW_SO_VERSION,
                                           "libparquet.so." TRAINCTL_ARROW_SO_VERSION};

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string LoaderError() {
  const char* const why = ::dlerror();
  return why == nullptr ? "unknown error" : why;
}

// The package folders under a Python's prefix: PREFIX/lib/python3.11/site-packages.
void AddPackageFolders(const std::filesystem::path& prefix, std::vector<std::string>& folders) {
  const std::filesystem::path lib = prefix / "lib";
  for (const std::string& entry : FolderEntries(lib.string())) {
    if (!absl::StartsWith(entry, "python3")) continue;
    for (const char* packages : {"site-packages", "dist-packages"}) {
      const std::string folder = lib / entry / packages / "pyarrow";
      if (PathExists(folder)) folders.push_back(folder);
    }
  }
}

// Once these libraries are loaded, the loader uses them for the names that the plugin needs.
absl::Status LoadArrowFrom(const std::string& folder) {
  for (const char* name : kArrowLibraries) {
    const std::string path = absl::StrCat(folder, "/", name);
    if (::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) return EnvironmentError(LoaderError());
  }
  return absl::OkStatus();
}

absl::Status MissingError(const std::string& file, absl::string_view why) {
  return EnvironmentError(absl::StrCat("reading ", file, " requires the Python package ", kPyarrow,
                                       ": pip install ", kPyarrow, ", or set its folder in ", kFolderVariable,
                                       "; or ", ConvertParquetHint(file), " (", why, ")"));
}

absl::StatusOr<void*> OpenPlugin(const std::string& plugin, const std::string& file) {
  if (const std::string folder = Variable(kFolderVariable); !folder.empty()) {
    if (const absl::Status status = LoadArrowFrom(folder); !status.ok()) {
      return MissingError(file, absl::StrCat(kFolderVariable, "=", folder, ": ", status.message()));
    }
  }
  void* handle = ::dlopen(plugin.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return handle;
  const std::string why = LoaderError();
  for (const std::string& folder : PyarrowFolders()) {
    if (LoadArrowFrom(folder).ok()) break;
  }
  handle = ::dlopen(plugin.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return handle;
  return MissingError(file, why);
}

absl::StatusOr<const ParquetApi*> Load(const std::string& file) {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return ErrnoError("read", "/proc/self/exe", error.value());
  const std::string plugin = PluginPath(program.string(), kPluginName);
  if (!PathExists(plugin)) {
    return EnvironmentError(absl::StrCat("reading ", file, " requires the plugin ", kPluginName, " next to ",
                                         program.string(), ", which ./dev build builds if it can get ",
                                         kPyarrow, "; or ", ConvertParquetHint(file)));
  }
  TRAINCTL_ASSIGN_OR_RETURN(void* const handle, OpenPlugin(plugin, file));
  const auto function = reinterpret_cast<ParquetApiFunction>(::dlsym(handle, kParquetApiSymbol));
  if (function == nullptr) {
    return EnvironmentError(
        absl::StrCat(plugin, " is not a trainctl plugin: it does not export ", kParquetApiSymbol));
  }
  const ParquetApi* const api = function();
  if (api->abi != kParquetAbi || api->table_bytes != sizeof(ParquetApi)) {
    return EnvironmentError(absl::StrCat(plugin, " does not match ", program.string(),
                                         ": its table is version ", api->abi, ", but the program's is ",
                                         kParquetAbi, ". Install both from the same build"));
  }
  return api;
}

}  // namespace

std::vector<std::string> PyarrowFolders() {
  std::vector<std::string> folders;
  if (const std::string environment = Variable("VIRTUAL_ENV"); !environment.empty()) {
    AddPackageFolders(environment, folders);
  }
  const std::vector<std::string> on_path = absl::StrSplit(Variable("PATH"), ':', absl::SkipEmpty());
  for (const std::string& folder : on_path) {
    if (!PathExists(absl::StrCat(folder, "/python3"))) continue;
    const std::filesystem::path prefix = std::filesystem::path(folder).parent_path();
    AddPackageFolders(prefix, folders);
    if (prefix == "/usr") AddPackageFolders("/usr/local", folders);
  }
  if (const std::string home = Variable("HOME"); !home.empty()) {
    AddPackageFolders(std::filesystem::path(home) / ".local", folders);
  }
  return folders;
}

absl::StatusOr<const ParquetApi*> LoadParquetApi(const std::string& file) {
  static std::mutex mutex;
  static const ParquetApi* loaded = nullptr;
  const std::lock_guard<std::mutex> lock(mutex);
  if (loaded == nullptr) {
    TRAINCTL_ASSIGN_OR_RETURN(loaded, Load(file));
  }
  return loaded;
}

std::string ConvertParquetHint(const std::string& file) {
  // The command shows FILE in place of a name that a shell would split or expand.
  const bool plain_name =
      file.find_first_of("'\"\\$`!\n") == std::string::npos && absl::EndsWithIgnoreCase(file, ".parquet");
  const std::string from = plain_name ? file : "FILE.parquet";
  const std::string to = from.substr(0, from.size() - absl::string_view(".parquet").size()) + ".jsonl";
  return absl::StrCat(
      "convert it to JSONL: pip install duckdb && python3 -c \"import duckdb; duckdb.sql('''COPY (FROM '",
      from, "') TO '", to, "' (FORMAT json)''')\"");
}

}  // namespace trainctl::data
