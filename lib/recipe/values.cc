#include "recipe/values.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "base/units.h"

namespace trainctl::recipe {
namespace {

constexpr double kBeyondInt64 = 9223372036854775808.0;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A number as a person would write it: 1e12 and not 1000000000000.
std::string Bound(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e7) return absl::StrCat(static_cast<int64_t>(value));
  const std::string text = FormatDouble(value);
  return std::string(absl::StripSuffix(text, ".0"));
}

std::string RangeText(const Field& field) {
  if (field.min_value == field.max_value) return absl::StrCat(" equal to ", Bound(field.min_value));
  const bool low = field.min_value > -kInfinity;
  const bool high = field.max_value < kInfinity;
  const std::string unit = field.kind == Kind::kDuration ? " s" : "";
  std::string text;
  const char* const least = field.above_min            ? " above "
                            : high && !field.below_max ? " from "
                                                       : " of at least ";
  if (low) absl::StrAppend(&text, least, Bound(field.min_value), unit);
  if (low && high) absl::StrAppend(&text, field.above_min || field.below_max ? " and" : "");
  if (high) {
    const char* word = field.below_max ? " below " : low && !field.above_min ? " to " : " at most ";
    absl::StrAppend(&text, word, Bound(field.max_value), unit);
  }
  return text;
}

constexpr size_t kLongestHint = 60;  // bytes of a text that is repeated in another form

std::string Shown(const RawValue& raw) {
  switch (raw.type) {
    case RawValue::Type::kBool:
      return raw.bool_value ? "true" : "false";
    case RawValue::Type::kInt:
      return absl::StrCat(raw.int_value);
    case RawValue::Type::kDouble:
      return FormatDouble(raw.double_value);
    case RawValue::Type::kString:
      return raw.string_value.size() <= 60 ? QuoteToml(raw.string_value)
                                           : absl::StrCat("a string of ", raw.string_value.size(), " bytes");
    default:
      return TypeName(raw.type);
  }
}

absl::StatusOr<int64_t> ParseBandwidth(absl::string_view text) {
  const absl::Status wrong =
      UsageError(absl::StrCat(QuoteToml(text.substr(0, 60)),
                              " is not a bandwidth such as \"3.35TB/s\" (bytes) or \"400Gb/s\" (bits)"));
  absl::string_view amount = text;
  if (!absl::ConsumeSuffix(&amount, "/s") || amount.size() < 2) return wrong;
  const bool is_bits = amount.back() == 'b';
  std::string bytes(amount);
  bytes.back() = 'B';
  const absl::StatusOr<int64_t> parsed = ParseBytes(bytes);
  if (!parsed.ok() || (amount.back() != 'b' && amount.back() != 'B')) return wrong;
  return is_bits ? *parsed / 8 : *parsed;
}

// One conversion; its members name the field in every message.
class Conversion {
 public:
  Conversion(const Field& field, absl::string_view path, Spelling spelling)
      : field_(field), path_(path), spelling_(spelling) {}

  absl::StatusOr<Value> Run(const RawValue& raw) const {
    if (raw.type == RawValue::Type::kString && raw.string_value == "auto" && !HasWord("auto")) {
      if (field_.allow_auto) return Value(Auto{});
      if (field_.kind != Kind::kString && field_.kind != Kind::kPath) {
        return UsageError(absl::StrCat(path_, ": \"auto\" is not allowed here; expected ", Describe(field_)));
      }
    }
    return Typed(raw);
  }

 private:
  bool HasWord(absl::string_view word) const {
    return std::count(field_.choices.begin(), field_.choices.end(), word) > 0;
  }

  absl::Status Expected(const RawValue& raw) const {
    return UsageError(
        absl::StrCat(path_, ": expected ", Describe(field_), ", got ", Shown(raw), HintOfList(raw)));
  }

  // "; write [\"a\", \"b\"]" for the text a,b in place of a list. Spaces may separate the words of a command.
  std::string HintOfList(const RawValue& raw) const {
    const bool is_list = field_.kind == Kind::kStringList || field_.kind == Kind::kGlobList;
    const std::string& text = raw.string_value;
    if (!is_list || field_.is_command || raw.type != RawValue::Type::kString || text.size() > kLongestHint ||
        !absl::StrContains(text, ',')) {
      return "";
    }
    const std::vector<std::string> items = absl::StrSplit(text, ',', absl::SkipWhitespace());
    return absl::StrCat("; write [",
                        absl::StrJoin(items, ", ",
                                      [](std::string* out, absl::string_view item) {
                                        absl::StrAppend(out, QuoteToml(absl::StripAsciiWhitespace(item)));
                                      }),
                        "]");
  }

  absl::StatusOr<Value> Typed(const RawValue& raw) const {
    switch (field_.kind) {
      case Kind::kBool:
        if (raw.type != RawValue::Type::kBool) return Expected(raw);
        return Value(raw.bool_value);
      case Kind::kInt:
      case Kind::kCount:
        return Wrap(Integer(raw));
      case Kind::kBytes:
        return Wrap(Bytes(raw, ParseBytes));
      case Kind::kBandwidth:
        return Wrap(Bytes(raw, ParseBandwidth));
      case Kind::kDuration:
        return Wrap(Duration(raw));
      case Kind::kDouble:
        return Wrap(Double(raw));
      case Kind::kString:
      case Kind::kPath:
        return Wrap(String(raw));
      case Kind::kIntList:
        return List<int64_t>(raw, &Conversion::Integer);
      case Kind::kDoubleList:
        return List<double>(raw, &Conversion::Double);
      case Kind::kStringList:
      case Kind::kGlobList:
        return List<std::string>(raw, &Conversion::String);
      case Kind::kStringMap:
        return Map(raw);
    }
    return Expected(raw);
  }

  template <typename T>
  static absl::StatusOr<Value> Wrap(absl::StatusOr<T> result) {
    if (!result.ok()) return result.status();
    return Value(*std::move(result));
  }

  absl::Status CheckRange(double value, const RawValue& raw) const {
    const bool low_ok = field_.above_min ? value > field_.min_value : value >= field_.min_value;
    const bool high_ok = field_.below_max ? value < field_.max_value : value <= field_.max_value;
    if (low_ok && high_ok) return absl::OkStatus();
    return UsageError(absl::StrCat(path_, ": ", Shown(raw), " is out of range; expected ", Describe(field_)));
  }

  absl::StatusOr<int64_t> Integer(const RawValue& raw) const {
    int64_t value = raw.int_value;
    if (raw.type == RawValue::Type::kString && field_.kind == Kind::kCount) {
      const absl::StatusOr<int64_t> count = ParseCount(raw.string_value);
      if (!count.ok()) {
        return UsageError(
            absl::StrCat(path_, ": ", count.status().message(), "; expected ", Describe(field_)));
      }
      value = *count;
    } else if (raw.type != RawValue::Type::kInt) {
      if (raw.type == RawValue::Type::kDouble && std::floor(raw.double_value) == raw.double_value &&
          std::abs(raw.double_value) < kBeyondInt64) {
        TRAINCTL_RETURN_IF_ERROR(CheckRange(raw.double_value, raw));
        return UsageError(absl::StrCat(path_, ": ", Shown(raw), " has a fractional part; write ",
                                       static_cast<int64_t>(raw.double_value)));
      }
      return Expected(raw);
    }
    TRAINCTL_RETURN_IF_ERROR(CheckRange(static_cast<double>(value), raw));
    return value;
  }

  absl::StatusOr<int64_t> Bytes(const RawValue& raw,
                                absl::StatusOr<int64_t> (*parse)(absl::string_view)) const {
    if (raw.type == RawValue::Type::kInt && spelling_ == Spelling::kStored) {
      TRAINCTL_RETURN_IF_ERROR(CheckRange(static_cast<double>(raw.int_value), raw));
      return raw.int_value;
    }
    if (raw.type != RawValue::Type::kString) return Expected(raw);
    const absl::StatusOr<int64_t> bytes = parse(raw.string_value);
    if (!bytes.ok()) return UsageError(absl::StrCat(path_, ": ", bytes.status().message()));
    TRAINCTL_RETURN_IF_ERROR(CheckRange(static_cast<double>(*bytes), raw));
    return *bytes;
  }

  absl::StatusOr<absl::Duration> Duration(const RawValue& raw) const {
    if (raw.type != RawValue::Type::kString) return Expected(raw);
    const absl::StatusOr<absl::Duration> duration = ParseDuration(raw.string_value);
    if (!duration.ok()) return UsageError(absl::StrCat(path_, ": ", duration.status().message()));
    TRAINCTL_RETURN_IF_ERROR(CheckRange(absl::ToDoubleSeconds(*duration), raw));
    // Whole microseconds, so that the stored text reads back to the same value.
    return absl::Microseconds(std::llround(absl::ToDoubleMicroseconds(*duration)));
  }

  absl::StatusOr<double> Double(const RawValue& raw) const {
    double value = raw.double_value;
    if (raw.type == RawValue::Type::kInt) {
      value = static_cast<double>(raw.int_value);
    } else if (raw.type != RawValue::Type::kDouble) {
      return Expected(raw);
    }
    if (!std::isfinite(value)) return Expected(raw);
    TRAINCTL_RETURN_IF_ERROR(CheckRange(value, raw));
    return value;
  }

  absl::StatusOr<std::string> String(const RawValue& raw) const {
    if (raw.type != RawValue::Type::kString) return Expected(raw);
    const std::string& text = raw.string_value;
    if (!IsValidUtf8(text)) return UsageError(absl::StrCat(path_, ": the value is not UTF-8 text"));
    const auto is_control = [](unsigned char c) { return absl::ascii_iscntrl(c); };
    if (std::any_of(text.begin(), text.end(), is_control)) {
      return UsageError(absl::StrCat(path_, ": ", Shown(raw), " contains a control character"));
    }
    if (!field_.choices.empty() && !HasWord(text)) return Expected(raw);
    const bool may_be_empty = spelling_ == Spelling::kStored || field_.kind == Kind::kStringMap;
    if (text.empty() && !may_be_empty) return UsageError(absl::StrCat(path_, ": must not be empty"));
    return text;
  }

  template <typename T>
  absl::StatusOr<Value> List(const RawValue& raw,
                             absl::StatusOr<T> (Conversion::*convert)(const RawValue&) const) const {
    if (field_.takes_one && raw.type != RawValue::Type::kList) {
      if (raw.type == RawValue::Type::kTable) return Expected(raw);
      TRAINCTL_ASSIGN_OR_RETURN(T value, (this->*convert)(raw));
      return absl::StatusOr<Value>(absl::in_place, std::vector<T>{std::move(value)});
    }
    if (raw.type != RawValue::Type::kList) return Expected(raw);
    if (field_.never_empty && raw.items.empty()) {
      return UsageError(absl::StrCat(path_, ": expected ", Describe(field_), ", got an empty list"));
    }
    if (field_.list_length > 0 && raw.items.size() != static_cast<size_t>(field_.list_length)) {
      return UsageError(
          absl::StrCat(path_, ": expected ", Describe(field_), ", got a list of ", raw.items.size()));
    }
    std::vector<T> list;
    list.reserve(raw.items.size());
    for (const RawValue& item : raw.items) {
      TRAINCTL_ASSIGN_OR_RETURN(T value, (this->*convert)(item));
      list.push_back(std::move(value));
    }
    return absl::StatusOr<Value>(absl::in_place, std::move(list));
  }

  absl::StatusOr<Value> Map(const RawValue& raw) const {
    if (raw.type != RawValue::Type::kTable) return Expected(raw);
    StringMap map;
    for (size_t i = 0; i < raw.keys.size(); ++i) {
      if (raw.items[i].type != RawValue::Type::kString) {
        return UsageError(
            absl::StrCat(path_, ".", raw.keys[i], ": expected a string, got ", Shown(raw.items[i])));
      }
      TRAINCTL_ASSIGN_OR_RETURN(map[raw.keys[i]], String(raw.items[i]));
    }
    return absl::StatusOr<Value>(absl::in_place, std::move(map));
  }

  const Field& field_;
  absl::string_view path_;
  Spelling spelling_;
};

std::string FormatExactBytes(int64_t bytes) {
  constexpr std::pair<const char*, int64_t> kUnits[] = {{"TiB", int64_t{1} << 40},
                                                        {"GiB", int64_t{1} << 30},
                                                        {"MiB", int64_t{1} << 20},
                                                        {"TB", 1'000'000'000'000},
                                                        {"GB", 1'000'000'000},
                                                        {"MB", 1'000'000},
                                                        {"KiB", 1024},
                                                        {"KB", 1000}};
  for (const auto& [name, factor] : kUnits) {
    if (bytes % factor == 0) return absl::StrCat(bytes / factor, name);
  }
  return absl::StrFormat("%d.%03dKB", bytes / 1000, bytes % 1000);
}

template <typename T, typename Format>
std::string FormatList(const std::vector<T>& list, Format format) {
  return absl::StrCat(
      "[", absl::StrJoin(list, ", ", [&](std::string* out, const T& item) { out->append(format(item)); }),
      "]");
}

}  // namespace

absl::StatusOr<Value> ConvertValue(const Field& field, absl::string_view path, const RawValue& raw,
                                   Spelling spelling) {
  return Conversion(field, path, spelling).Run(raw);
}

bool IsValidUtf8(absl::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80   ? 1
                          : lead < 0xC2 ? 0
                          : lead < 0xE0 ? 2
                          : lead < 0xF0 ? 3
                          : lead < 0xF5 ? 4
                                        : 0;
    if (length == 0 || i + length > text.size()) return false;
    uint32_t code = length == 1 ? lead : lead & (0x7Fu >> length);
    for (size_t j = 1; j < length; ++j) {
      const auto byte = static_cast<unsigned char>(text[i + j]);
      if ((byte & 0xC0) != 0x80) return false;
      code = code << 6 | (byte & 0x3Fu);
    }
    constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
    const bool is_surrogate = code >= 0xD800 && code < 0xE000;
    if (code < kSmallest[length] || code > 0x10FFFF || is_surrogate) return false;
    i += length;
  }
  return true;
}

std::string QuoteToml(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) {
      absl::StrAppend(&quoted, absl::StrFormat("\\u%04X", static_cast<unsigned char>(c)));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string FormatDouble(double value) {
  char buffer[64];
  const std::to_chars_result end = std::to_chars(buffer, buffer + sizeof(buffer), value);
  std::string text(buffer, end.ptr);
  // 1e-5 and 1e12, not 1e-05 and 1e+12.
  if (const size_t exponent = text.find('e'); exponent != std::string::npos) {
    size_t digits = exponent + 1;
    if (text[digits] == '+') text.erase(digits, 1);
    if (text[digits] == '-') ++digits;
    while (text[digits] == '0' && digits + 1 < text.size()) text.erase(digits, 1);
  }
  if (std::isfinite(value) && text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string DurationText(absl::Duration duration) {
  constexpr std::pair<const char*, int64_t> kUnits[] = {
      {"h", 3'600'000'000}, {"m", 60'000'000}, {"s", 1'000'000}, {"ms", 1000}};
  const int64_t microseconds = absl::ToInt64Microseconds(duration);
  if (microseconds == 0) return "0s";
  for (const auto& [name, factor] : kUnits) {
    if (microseconds % factor == 0) return absl::StrCat(microseconds / factor, name);
  }
  return absl::StrFormat("%d.%03dms", microseconds / 1000, microseconds % 1000);
}

std::string ToTomlText(const Field& field, const Value& value) {
  struct Visitor {
    const Field& field;
    std::string operator()(const Auto&) const { return "\"auto\""; }
    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
    std::string operator()(int64_t number) const {
      if (field.kind == Kind::kBytes) return QuoteToml(FormatExactBytes(number));
      if (field.kind == Kind::kBandwidth) return QuoteToml(absl::StrCat(FormatExactBytes(number), "/s"));
      return absl::StrCat(number);
    }
    std::string operator()(double number) const { return FormatDouble(number); }
    std::string operator()(const std::string& text) const { return QuoteToml(text); }
    std::string operator()(absl::Duration duration) const { return QuoteToml(DurationText(duration)); }
    std::string operator()(const std::vector<int64_t>& list) const {
      if (field.takes_one && list.size() == 1) return absl::StrCat(list[0]);
      return FormatList(list, [](int64_t number) { return absl::StrCat(number); });
    }
    std::string operator()(const std::vector<double>& list) const { return FormatList(list, FormatDouble); }
    std::string operator()(const std::vector<std::string>& list) const {
      return FormatList(list, [](const std::string& text) { return QuoteToml(text); });
    }
    std::string operator()(const StringMap& map) const {
      std::vector<std::string> items;
      for (const auto& [key, text] : map)
        items.push_back(absl::StrCat(QuoteToml(key), " = ", QuoteToml(text)));
      return absl::StrCat("{", absl::StrJoin(items, ", "), "}");
    }
  };
  return std::visit(Visitor{field}, value);
}

std::string Describe(const Field& field) {
  std::string text;
  switch (field.kind) {
    case Kind::kBool:
      text = "true or false";
      break;
    case Kind::kInt:
      text = absl::StrCat("a whole number", RangeText(field));
      break;
    case Kind::kCount:
      text = absl::StrCat("a whole number", RangeText(field), ", such as 10_000 or \"10K\"");
      break;
    case Kind::kBytes:
      text = "a size with a unit, such as \"80GB\" or \"512MiB\"";
      break;
    case Kind::kBandwidth:
      text = "a bandwidth, such as \"3.35TB/s\" (bytes) or \"400Gb/s\" (bits)";
      break;
    case Kind::kDuration:
      text = absl::StrCat("a duration with a unit (ms, s, m or h)", RangeText(field), ", such as \"30m\"");
      break;
    case Kind::kDouble:
      text = absl::StrCat("a number", RangeText(field));
      break;
    case Kind::kString:
      text = "a string";
      if (!field.choices.empty()) {
        text = absl::StrCat("\"", absl::StrJoin(field.choices, "\", \""), "\"");
        const size_t comma = text.rfind(", ");
        if (comma != std::string::npos) text.replace(comma, 1, " or");
      }
      break;
    case Kind::kPath:
      text = "a path";
      if (!field.path_suffix.empty()) {
        absl::StrAppend(&text, " that ends with ", field.path_suffix, ", or another string");
      }
      for (auto word = field.keywords.rbegin(); word != field.keywords.rend(); ++word) {
        text = absl::StrCat("\"", *word, "\"", word == field.keywords.rbegin() ? " or " : ", ", text);
      }
      break;
    case Kind::kIntList:
      text = absl::StrCat(field.takes_one ? "a whole number or a list of them," : "a list of whole numbers",
                          RangeText(field));
      break;
    case Kind::kDoubleList:
      text = absl::StrCat("a list of ", field.list_length > 0 ? absl::StrCat(field.list_length, " ") : "",
                          "numbers", RangeText(field));
      break;
    case Kind::kStringList:
      text = "a list of strings";
      break;
    case Kind::kGlobList:
      text = "a list of paths or patterns";
      break;
    case Kind::kStringMap:
      text = "a table of strings";
      break;
  }
  if (field.allow_auto) absl::StrAppend(&text, ", or \"auto\"");
  return text;
}

}  // namespace trainctl::recipe
