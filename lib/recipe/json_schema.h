// Generates the recipe's JSON Schema (draft 2020-12) from schema_fields.cc, for editors and other tools.
// Pure; thread-safe.
//
// The schema lists every key that a recipe file may contain, with its type, range, default, and meaning; it
// rejects all other keys. It does not cover rules that depend on the machine or on a second file. For
// example, fields that may be set in an extended file are not marked as required. The ranges of sizes and
// durations are given only in words.
#pragma once

#include <string>

namespace trainctl::recipe {

std::string JsonSchema();

}  // namespace trainctl::recipe
