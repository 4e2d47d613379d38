// Where the fields of a recipe were set. Pure; thread-safe.
#pragma once

#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace trainctl::recipe {

// Maps each field to where its value was set: "train.steps" -> "base/llama.toml:12:1", "default", or "--set".
using Origins = std::map<std::string, std::string>;

// Whether the recipe gives the field at `path`, rather than leaving it at its default.
inline bool IsGiven(const Origins& origins, absl::string_view path) {
  const auto it = origins.find(std::string(path));
  return it != origins.end() && it->second != "default";
}

}  // namespace trainctl::recipe
