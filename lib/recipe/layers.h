// Reads a recipe's layers (the chain of extended files, the file itself, and each --set) and merges them into
// one value per field, along with its origin. Tables are merged and lists are replaced; within a group of
// alternatives, the later layer wins. Types and ranges are checked here, but relations between fields are
// not. Reads files only through `Access`.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "recipe/access.h"
#include "recipe/issues.h"
#include "recipe/raw_value.h"
#include "recipe/schema.h"

namespace trainctl::recipe {

// The value of one field, or of one variable of launch.env.
struct Entry {
  const Field* field = nullptr;
  size_t index = 0;  // position in the list, for a field of a list entry
  std::string key;   // name of the variable, for launch.env
  Value value;
  std::string origin;  // location such as "base/llama.toml:12:1" or "--set"
};

// The merged layers of a recipe.
class Draft {
 public:
  Draft(const Access& access, Issues& issues) : access_(access), issues_(issues) {}

  // Adds a file, preceded by the files that it extends. A file that cannot be read or parsed is recorded as
  // an issue.
  void AddFile(const std::string& path, absl::string_view text);
  // Adds assignments such as "train.steps=100" in the given order; the last one wins.
  void AddSets(absl::Span<const std::string> sets);

  // Maps each path, such as "train.steps", "data.train[0].files", or "launch.env.NAME", to its entry.
  const std::map<std::string, Entry>& entries() const { return entries_; }
  // Returns the entry at `path`, or null if no layer set it.
  const Entry* Find(absl::string_view path) const;
  // Returns where the field at `path` was set, or `otherwise` if no layer set it.
  std::string OriginOf(absl::string_view path, absl::string_view otherwise) const;
  size_t ListSize(absl::string_view list) const;
  // Returns the location where an entry of a list such as "data.train" was set. Requires index <
  // ListSize(list).
  std::string EntryOrigin(absl::string_view list, size_t index) const;
  // Replaces cluster.device = "auto" with the device returned by access.find_device. Also sets the number of
  // devices and their memory if no layer has set them. Call this after all layers have been added.
  void ResolveDevice();
  const std::optional<FoundDevice>& found_device() const { return found_device_; }
  // Keys that a --set reset to their defaults and that no later layer has set.
  const std::set<std::string>& taken_back() const { return taken_back_; }
  // Whether none of the files contained a key.
  bool is_empty() const { return num_keys_ == 0; }
  bool has_unread_file() const { return has_unread_file_; }
  // Seeds a list with `num_entries` existing entries, taken from a stored recipe.
  void SeedList(absl::string_view list, size_t num_entries, absl::string_view origin);

 private:
  struct List {
    std::vector<std::string> where;  // location of each entry in its file
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
  // Forgets what the layers so far say of `path`, for "key=default".
  void TakeBack(const std::string& path);
  void Assign(const Field& field, const std::string& path, size_t index, const std::string& key,
              const RawValue& raw);
  // Removes the fields that `field` excludes. Adds an issue if the current layer has also set one of them.
  void ClearExcluded(const Field& field, size_t index, const std::string& path, const std::string& where);
  void Erase(absl::string_view prefix);
  absl::StatusOr<Value> ResolvePaths(const Field& field, Value value) const;

  const Access& access_;
  Issues& issues_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, List, std::less<>> lists_;
  std::map<std::string, std::string> this_layer_;  // maps each path set by the current layer to its location
  std::set<std::string> taken_back_;
  std::vector<std::string> reading_;  // chain of files being extended, outermost first
  int num_files_ = 0;
  size_t num_keys_ = 0;
  std::string base_dir_;
  std::optional<FoundDevice> found_device_;
  bool is_set_ = false;
  bool has_unread_file_ = false;
};

}  // namespace trainctl::recipe
