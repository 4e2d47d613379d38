// What a TOML file, a --set or a stored JSON recipe holds before the schema gives it a type, with the
// place it was read from. Only toml_reader.cc knows TOML and only recipe_json.cc knows JSON. Plain
// data.
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
  std::vector<std::string> keys;  // of a table, in the order written; one for each item
  std::vector<RawValue> items;    // of a table or a list
  std::string where;              // "recipes/a.toml:3:1", "--set train.steps=x"
};

// "a string", "a table": for messages.
const char* TypeName(RawValue::Type type);

}  // namespace trainctl::recipe
