// Collects what is wrong with a recipe, so that all of it is reported at once. Not thread safe.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainctl::recipe {

class Issues {
 public:
  // `where` may be empty.
  void Add(absl::string_view where, absl::string_view message);
  // A file that the recipe names is damaged, which is not a mistake in the recipe.
  void AddBadData(absl::string_view where, absl::string_view message);
  // A message that already says where.
  void Add(const absl::Status& status) { Add("", status.message()); }
  // The field at `path` was given but is unusable: checks that need it are skipped.
  void MarkBad(absl::string_view path) { bad_.insert(std::string(path)); }
  bool IsBad(absl::string_view path) const { return bad_.count(path) > 0; }
  // Any field at or below `path`.
  bool IsBadBelow(absl::string_view path) const;

  bool empty() const { return messages_.empty(); }
  const std::vector<std::string>& messages() const { return messages_; }
  // OK when empty; else one UsageError, a line for each. BadDataError if only AddBadData was called.
  absl::Status ToStatus(absl::string_view what) const;

 private:
  std::vector<std::string> messages_;
  bool is_only_bad_data_ = true;
  std::set<std::string, std::less<>> bad_;
};

}  // namespace trainctl::recipe
