// The recipe's schema for editors and other tools: JSON Schema, draft 2020-12, derived from the table of
// schema_fields.cc alone. Pure; thread safe.
//
// It has every key of one recipe file with its type, range, default and meaning, and no others. What needs a
// second file or a look at the machine is not in it: a file that extends another one may leave out what that
// one has, and the ranges of sizes and durations are told in words.
#pragma once

#include <string>

namespace trainctl::recipe {

std::string JsonSchema();

}  // namespace trainctl::recipe
