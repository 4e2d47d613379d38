// JSON of files that others may have written: refuses what the ordinary parser takes silently
// (a key given twice) and turns every parser exception into a BadDataError. For .cc files only.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "base/status.h"

namespace trainctl::checkpoint {

// JsonType: nlohmann::json (large flat objects: its objects are sorted maps) or ordered_json.
template <typename JsonType>
absl::StatusOr<JsonType> ParseStrictJson(absl::string_view text, absl::string_view what, int max_depth = 64) {
  using Event = nlohmann::detail::parse_event_t;
  bool too_deep = false;
  std::string repeated_key;
  bool has_repeated_key = false;
  std::vector<absl::flat_hash_set<std::string>> keys_of_open_objects;
  const auto watch = [&](int depth, Event event, JsonType& parsed) {
    if (depth > max_depth) too_deep = true;
    if (too_deep || has_repeated_key) return false;
    if (event == Event::object_start) keys_of_open_objects.emplace_back();
    if (event == Event::object_end) keys_of_open_objects.pop_back();
    if (event == Event::key) {
      const std::string& key = parsed.template get_ref<const std::string&>();
      has_repeated_key = !keys_of_open_objects.back().insert(key).second;
      if (has_repeated_key) repeated_key = key;
    }
    return true;
  };
  try {
    JsonType value = JsonType::parse(text.begin(), text.end(), watch);
    if (too_deep) return BadDataError(absl::StrCat(what, ": nested deeper than ", max_depth, " levels"));
    if (has_repeated_key)
      return BadDataError(absl::StrCat(what, ": key '", repeated_key, "' is given twice"));
    return value;
  } catch (const typename JsonType::parse_error& error) {
    return BadDataError(absl::StrCat(what, ": not valid JSON at byte ", error.byte));
  } catch (const typename JsonType::exception&) {
    return BadDataError(absl::StrCat(what, ": JSON with a number that is out of range"));
  }
}

}  // namespace trainctl::checkpoint
