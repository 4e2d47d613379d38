// Collects the mistakes in a recipe so that they can all be reported at once. Not thread-safe.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainctl::recipe {

class Issues {
 public:
  // Adds a mistake. `where` is its location and may be empty.
  void Add(absl::string_view where, absl::string_view message);
  // Reports a damaged file that the recipe refers to, as opposed to a mistake in the recipe itself.
  void AddBadData(absl::string_view where, absl::string_view message);
  // Adds a message that already includes its location.
  void Add(const absl::Status& status) { Add("", status.message()); }
  // Marks the field at `path` as set but unusable, so that checks that depend on it are skipped.
  void MarkBad(absl::string_view path) { bad_.insert(std::string(path)); }
  bool IsBad(absl::string_view path) const { return bad_.count(path) > 0; }
  // Whether the field at `path`, or any field nested in it, is bad.
  bool IsBadBelow(absl::string_view path) const;

  bool empty() const { return messages_.empty(); }
  const std::vector<std::string>& messages() const { return messages_; }
  // Returns OK if there are no issues. Otherwise returns a UsageError with one line per message, or a
  // BadDataError if every message was added with AddBadData.
  absl::Status ToStatus(absl::string_view what) const;

 private:
  std::vector<std::string> messages_;
  bool is_only_bad_data_ = true;
  std::set<std::string, std::less<>> bad_;
};

}  // namespace trainctl::recipe
