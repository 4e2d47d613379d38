#include "recipe/toml_reader.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

// toml++ 3.3 checks some properties of its input with assertions: "[ = 1" ends the process, or is
// undefined behaviour where NDEBUG turns assertions into assumptions. Here a failed one is an
// exception that ends in ParseTable. No other file includes toml++.
namespace trainctl::recipe {
struct TomlAssertion {};
[[gnu::noinline]] static void FailTomlAssertion() { throw TomlAssertion(); }
}  // namespace trainctl::recipe
#undef NDEBUG
#define TOML_ASSERT(expression) ((expression) ? (void)0 : ::trainctl::recipe::FailTomlAssertion())
#include <toml++/toml.h>

namespace trainctl::recipe {
namespace {

std::string At(absl::string_view what, size_t line, size_t column) {
  return absl::StrCat(what, ":", line, ":", column);
}

// Walks the text once, without recursion, and refuses what the parser cannot bear: deep nesting and
// headers without a name. Its view of strings and comments
// is that of TOML up to the first error, where the parser stops as well. Keeps a count of brackets
// and, since each part of a dotted key is a level too, of the dots since the last separator.
class TextCheck {
 public:
  TextCheck(absl::string_view text, absl::string_view what, bool is_value)
      : text_(text), what_(what), is_value_(is_value) {}

  absl::Status Run() {
    for (; pos_ < text_.size(); ++pos_) {
      const char c = text_[pos_];
      if (c == '[' && brackets_ == 0 && is_line_start_ && !HeaderHasName()) {
        return Error("not valid TOML: expected the name of a table after [");
      }
      if (c != ' ' && c != '\t') is_line_start_ = false;
      if (c == '"' || c == '\'') {
        SkipString(c);
      } else if (c == '#') {
        while (pos_ + 1 < text_.size() && text_[pos_ + 1] != '\n') ++pos_;
      } else if (c == '[' || c == '{') {
        ++brackets_;
        dots_ = 0;
      } else if (c == ']' || c == '}') {
        if (brackets_ > 0) --brackets_;
        dots_ = 0;
      } else if (c == '.') {
        ++dots_;
      } else if (c == '=' || c == ',' || c == '\n') {
        dots_ = 0;
      }
      if (brackets_ > kMaxNesting || dots_ >= kMaxNesting) {
        return Error(absl::StrCat("nested deeper than ", kMaxNesting, " levels"));
      }
      if (c == '\n') {
        line_start_ = pos_ + 1;
        ++line_;
        is_line_start_ = true;
      }
    }
    return absl::OkStatus();
  }

 private:
  void SkipString(char quote) {
    const std::string triple(3, quote);
    const bool multi_line = text_.substr(pos_, 3) == triple;
    pos_ += multi_line ? 3 : 1;
    for (; pos_ < text_.size(); ++pos_) {
      const char c = text_[pos_];
      if (c == '\\' && quote == '"' && text_.substr(pos_ + 1, 1) != "\n") {
        ++pos_;
      } else if (c == '\n') {
        if (!multi_line) {
          --pos_;  // an error for the parser; the line break is counted by Run
          return;
        }
        line_start_ = pos_ + 1, ++line_;
      } else if (c == quote && (!multi_line || text_.substr(pos_, 3) == triple)) {
        if (!multi_line) return;
        pos_ += 2;
        // Up to two quotes may stand before the closing three.
        for (int i = 0; i < 2 && pos_ + 1 < text_.size() && text_[pos_ + 1] == quote; ++i) ++pos_;
        return;
      }
    }
  }

  // Whether the "[" or "[[" at pos_ is followed by a key (or by its end, which the parser refuses).
  bool HeaderHasName() const {
    size_t next = pos_ + 1;
    const auto skip_blanks = [&] {
      while (next < text_.size() && (text_[next] == ' ' || text_[next] == '\t')) ++next;
    };
    skip_blanks();
    if (next < text_.size() && text_[next] == '[') ++next;
    skip_blanks();
    if (next == text_.size()) return true;
    const char c = text_[next];
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '"' ||
           c == '\'' || c == ']';
  }

  absl::Status Error(absl::string_view message) const {
    const std::string place = is_value_ ? std::string(what_) : At(what_, line_, pos_ - line_start_ + 1);
    return UsageError(absl::StrCat(place, ": ", message));
  }

  absl::string_view text_;
  absl::string_view what_;
  bool is_value_;
  size_t pos_ = 0;
  size_t line_ = 1;
  size_t line_start_ = 0;
  bool is_line_start_ = true;
  int brackets_ = 0;
  int dots_ = 0;
};

class Converter {
 public:
  // With `where` set every node is placed there, else at its line and column of `file`.
  Converter(absl::string_view file, absl::string_view where) : file_(file), where_(where) {}

  RawValue Convert(const toml::node& node, const toml::source_region& source) const {
    RawValue raw;
    raw.where = Place(source);
    if (const auto* table = node.as_table()) {
      raw.type = RawValue::Type::kTable;
      ConvertTable(*table, raw);
    } else if (const auto* array = node.as_array()) {
      raw.type = RawValue::Type::kList;
      raw.items.reserve(array->size());
      for (const toml::node& item : *array) raw.items.push_back(Convert(item, item.source()));
    } else if (const auto* string = node.as_string()) {
      raw.type = RawValue::Type::kString;
      raw.string_value = string->get();
    } else if (const auto* integer = node.as_integer()) {
      raw.type = RawValue::Type::kInt;
      raw.int_value = integer->get();
    } else if (const auto* number = node.as_floating_point()) {
      raw.type = RawValue::Type::kDouble;
      raw.double_value = number->get();
    } else if (const auto* boolean = node.as_boolean()) {
      raw.type = RawValue::Type::kBool;
      raw.bool_value = boolean->get();
    } else {
      raw.type = RawValue::Type::kDate;
    }
    return raw;
  }

 private:
  std::string Place(const toml::source_region& source) const {
    return where_.empty() ? At(file_, source.begin.line, source.begin.column) : std::string(where_);
  }

  void ConvertTable(const toml::table& table, RawValue& raw) const {
    struct Item {
      const toml::key* key;
      const toml::node* node;
      toml::source_position begin;
    };
    std::vector<Item> order;
    order.reserve(table.size());
    for (auto&& [key, node] : table) order.push_back({&key, &node, key.source().begin});
    std::stable_sort(order.begin(), order.end(),
                     [](const Item& a, const Item& b) { return a.begin < b.begin; });
    for (const Item& item : order) {
      raw.keys.emplace_back(item.key->str());
      raw.items.push_back(Convert(*item.node, item.key->source()));
    }
  }

  absl::string_view file_;
  absl::string_view where_;
};

// Errors have a line and a column unless `is_value`.
absl::StatusOr<toml::table> ParseTable(absl::string_view text, absl::string_view what, bool is_value) {
  if (static_cast<int64_t>(text.size()) > kMaxRecipeBytes) {
    return UsageError(
        absl::StrCat(what, ": ", text.size(), " bytes; a recipe has at most ", kMaxRecipeBytes));
  }
  TRAINCTL_RETURN_IF_ERROR(TextCheck(text, what, is_value).Run());
  toml::parse_result result;
  try {
    result = toml::parse(std::string_view(text.data(), text.size()));
  } catch (const TomlAssertion&) {
    return UsageError(absl::StrCat(what, ": not valid TOML, in a way that has no further explanation"));
  }
  if (!result) {
    const toml::parse_error& error = result.error();
    const toml::source_position begin = error.source().begin;
    std::string_view reason = error.description();
    if (reason.substr(0, 6) == "Error ") reason.remove_prefix(6);
    return UsageError(absl::StrCat(is_value ? std::string(what) : At(what, begin.line, begin.column),
                                   ": not valid TOML: ", absl::string_view(reason.data(), reason.size())));
  }
  return std::move(result).table();
}

}  // namespace

const char* TypeName(RawValue::Type type) {
  switch (type) {
    case RawValue::Type::kBool:
      return "true or false";
    case RawValue::Type::kInt:
      return "a whole number";
    case RawValue::Type::kDouble:
      return "a number with a fraction";
    case RawValue::Type::kString:
      return "a string";
    case RawValue::Type::kList:
      return "a list";
    case RawValue::Type::kTable:
      return "a table";
    case RawValue::Type::kDate:
      return "a date";
    case RawValue::Type::kNull:
      return "null";
  }
  return "a value";
}

absl::StatusOr<RawValue> ParseToml(absl::string_view text, absl::string_view what) {
  TRAINCTL_ASSIGN_OR_RETURN(const toml::table table, ParseTable(text, what, false));
  return Converter(what, "").Convert(table, table.source());
}

absl::StatusOr<RawValue> ParseTomlValue(absl::string_view text, absl::string_view where) {
  const std::string assignment = absl::StrCat("value = ", text);
  TRAINCTL_ASSIGN_OR_RETURN(const toml::table table, ParseTable(assignment, where, true));
  // A line break in the text could have started another key.
  if (table.size() != 1) return UsageError(absl::StrCat(where, ": expected one value"));
  return Converter(where, where).Convert(table, table.source()).items[0];
}

}  // namespace trainctl::recipe
