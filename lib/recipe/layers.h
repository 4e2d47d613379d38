// Reads the layers of a recipe (the extends chain, the file, the --set) and merges them into one
// value per field, each with its origin. Tables merge, lists replace; of an either-or group the later
// layer wins. Types and ranges are checked here, relations between fields are not. Reads files only
// through `Access`.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "recipe/issues.h"
#include "recipe/paths.h"
#include "recipe/raw_value.h"
#include "recipe/schema.h"

namespace trainctl::recipe {

// What cluster.device = "auto" is on this machine.
struct FoundDevice {
  std::string device = "cpu";    // as a recipe names it
  int64_t devices_per_node = 0;  // 0: nothing is known
  int64_t memory_bytes = 0;      // of one device; 0: as the catalogue has it
  std::string words;             // what was found, for people
  std::string hidden;            // what the environment hides of the devices that are here; empty: nothing
};

// How the outside world is reached, so that tests and the fuzzer can stand in for it.
struct Access {
  std::string working_dir;  // absolute
  Environment environment;
  std::function<absl::StatusOr<std::string>(const std::string& path)> read_file;
  std::function<absl::StatusOr<std::vector<std::string>>(const std::string& pattern)> expand_glob;
  std::function<bool(const std::string& path)> is_folder;
  std::function<bool(const std::string& path)> is_file;  // may be empty: then nothing is one
  // May be empty: then "auto" is "cpu".
  std::function<absl::StatusOr<FoundDevice>()> find_device;
};

// The value of one field, or of one variable of launch.env.
struct Entry {
  const Field* field = nullptr;
  size_t index = 0;  // of the entry of a list
  std::string key;   // of a string map
  Value value;
  std::string origin;  // "base/llama.toml:12:1", "--set"
};

// Merged layers.
class Draft {
 public:
  Draft(const Access& access, Issues& issues) : access_(access), issues_(issues) {}

  // Adds the file and, before it, what it extends. A failure to read or to parse is an issue.
  void AddFile(const std::string& path, absl::string_view text);
  // "train.steps=100", in the order given; the last one wins.
  void AddSets(absl::Span<const std::string> sets);

  // Entries by path: "train.steps", "data.train[0].files", "launch.env.NAME".
  const std::map<std::string, Entry>& entries() const { return entries_; }
  const Entry* Find(absl::string_view path) const;
  size_t ListSize(absl::string_view list) const;
  // Where an entry of the list "data.train" was stated. Requires index < ListSize(list).
  std::string EntryOrigin(absl::string_view list, size_t index) const;
  // Once all layers are added: a cluster.device that is "auto" becomes what access.find_device tells, with
  // its number and memory where nothing else is stated.
  void ResolveDevice();
  const std::optional<FoundDevice>& found_device() const { return found_device_; }
  // Keys that a --set has returned to their default and none has stated since.
  const std::set<std::string>& taken_back() const { return taken_back_; }
  // A file of the chain could not be read, parsed or understood; the issue says why.
  // No file had a key.
  bool is_empty() const { return num_keys_ == 0; }
  bool has_unread_file() const { return has_unread_file_; }
  // Starts from an existing list of `num_entries` (a stored recipe).
  void SeedList(absl::string_view list, size_t num_entries, absl::string_view origin);

 private:
  struct List {
    std::vector<std::string> where;  // of each entry
  };

  void AddParsedFile(const std::string& path, const RawValue& table);
  bool CheckVersion(const RawValue& table);
  void AddExtends(const std::string& path, const RawValue& table);
  void WalkTable(const RawValue& table, const std::string& name, const std::string& path, size_t index);
  void WalkItem(const RawValue& item, const std::string& name, const std::string& path, size_t index);
  void WalkList(const RawValue& list, const std::string& name);
  void WalkMap(const Field& field, const RawValue& item);
  void Unknown(const RawValue& item, const std::string& name, const std::string& path);
  void AddSet(const std::string& text);
  void Assign(const Field& field, const std::string& path, size_t index, const std::string& key,
              const RawValue& raw);
  // Removes what `field` excludes; an issue when this very layer has stated it.
  void ClearExcluded(const Field& field, size_t index, const std::string& path, const std::string& where);
  void Erase(absl::string_view prefix);
  absl::StatusOr<Value> ResolvePaths(const Field& field, Value value) const;

  const Access& access_;
  Issues& issues_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, List, std::less<>> lists_;
  std::map<std::string, std::string> this_layer_;  // path -> where, of the layer being read
  std::set<std::string> taken_back_;
  std::vector<std::string> reading_;  // the chain of extends, outermost first
  int num_files_ = 0;
  size_t num_keys_ = 0;
  std::string base_dir_;
  std::optional<FoundDevice> found_device_;
  bool is_set_ = false;
  bool has_unread_file_ = false;
};

}  // namespace trainctl::recipe
