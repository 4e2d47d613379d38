// Holds a value from a TOML file, a --set, or a stored JSON recipe, along with its location, before the
// schema assigns it a type. Only toml_reader.cc depends on TOML, and only recipe_json.cc on JSON. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainctl::recipe {

struct RawValue {
  enum class Type : uint8_t { kBool, kInt, kDouble, kString, kList, kTable, kDate, kNull };

  Type type = Type::kTable;
  bool bool_value = false;
  int64_t int_value = 0;
  double double_value = 0;
  std::string string_value;
  std::vector<std::string> keys;  // keys of a table in the order written, parallel to `items`
  std::vector<RawValue> items;    // elements of a table or list
  std::string where;              // location, such as "recipes/a.toml:3:1" or "--set train.steps=x"
};

// Returns the type's name for messages, such as "a string" or "a table".
const char* TypeName(RawValue::Type type);

}  // namespace trainctl::recipe
