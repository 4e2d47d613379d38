// Declares the type of JSON values. Headers include this file; sources that use values include base/json.h.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace trainctl {

// Keeps the order of an object's keys. Searches for a key linearly, as do insertions, so an object with
// thousands of keys should be parsed and iterated only.
using Json = nlohmann::ordered_json;

}  // namespace trainctl
