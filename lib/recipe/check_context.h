// What the checks of a recipe share: the recipe, where its fields were set, and the mistakes found so far.
// Not thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "recipe/issues.h"
#include "recipe/origins.h"
#include "recipe/recipe.h"

namespace trainctl::recipe {

// Fields whose values do not fit together.
struct Conflict {
  std::vector<absl::string_view> fields;  // the one to blame first
  bool is_found = false;
  std::string message;
};

class CheckContext {
 public:
  using Paths = absl::Span<const absl::string_view>;

  // Keeps references to all arguments.
  CheckContext(const Recipe& recipe, const Origins& origins, Issues& issues, Issues& missing)
      : recipe_(recipe), origins_(origins), issues_(issues), missing_(missing) {}

  const Recipe& recipe() const { return recipe_; }
  const Origins& origins() const { return origins_; }

  // Whether none of the fields is marked as bad. Otherwise, a check of their values would only confuse.
  bool IsUsable(Paths paths) const;
  // Whether the field at `path`, or any field nested in it, is marked as bad.
  bool IsBadBelow(absl::string_view path) const { return issues_.IsBadBelow(path); }
  void MarkBad(absl::string_view path) { issues_.MarkBad(path); }

  // Whether the recipe gives the field.
  bool IsGiven(absl::string_view path) const { return recipe::IsGiven(origins_, path); }

  // Adds a mistake, placed where the first of the given fields among `paths` was set.
  void Fail(Paths paths, absl::string_view message) { issues_.Add(PlaceOf(paths), message); }
  // Adds a mistake, placed at `where`.
  void FailAt(absl::string_view where, absl::string_view message) { issues_.Add(where, message); }
  // Adds the conflicts that are found, but skips those with a field that is marked as bad.
  void FailEach(const std::vector<Conflict>& conflicts);
  // Like Fail, but for settings that a run requires and a plan does not.
  void Lack(Paths paths, absl::string_view message) { missing_.Add(PlaceOf(paths), message); }

 private:
  std::string PlaceOf(Paths paths) const;

  const Recipe& recipe_;
  const Origins& origins_;
  Issues& issues_;
  Issues& missing_;
};

}  // namespace trainctl::recipe
