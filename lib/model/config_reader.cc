#include "model/config_reader.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "model/neutral_fields.h"

namespace trainctl::model {
namespace {

constexpr int64_t kMostPositions = int64_t{1} << 31;

// A whole number, also if it is written as 512.0.
std::optional<int64_t> WholeNumber(const Json& value) {
  constexpr double kMost = double{int64_t{1} << 53};  // every whole number below has a double of its own
  if (value.is_number_unsigned() && value > INT64_MAX) return std::nullopt;
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number()) return std::nullopt;
  const double number = value.get<double>();
  if (!(number >= -kMost && number <= kMost) || std::trunc(number) != number) return std::nullopt;
  return static_cast<int64_t>(number);
}

}  // namespace

const Json* ConfigReader::Find(std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const auto it = object_.find(key);
    if (it != object_.end()) seen_.insert(key);
    if (it != object_.end() && !it->is_null()) return &*it;
    if (!all_spellings_) break;
  }
  return nullptr;
}

const Json* ConfigReader::FindWithNull(const char* key) {
  const auto it = object_.find(key);
  if (it == object_.end()) return nullptr;
  seen_.insert(key);
  return &*it;
}

int64_t ConfigReader::Int(std::initializer_list<const char*> keys, int64_t fallback) {
  const Json* value = Find(keys);
  if (value == nullptr) return fallback;
  const std::optional<int64_t> number = WholeNumber(*value);
  if (number.has_value() && *number >= 0 && *number <= (int64_t{1} << 40)) return *number;
  Fail(NameOf(keys), "a whole number");
  return fallback;
}

int64_t ConfigReader::Required(std::initializer_list<const char*> keys) {
  const int64_t value = Int(keys, 0);
  if (value < 1) Fail(NameOf(keys), "a whole number of at least 1");
  return value;
}

bool ConfigReader::Bool(const char* key, bool fallback) {
  const Json* value = Find({key});
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) Fail(key, "true or false");
  return value->is_boolean() ? value->get<bool>() : fallback;
}

void ConfigReader::Fail(absl::string_view key, absl::string_view must) {
  if (status_.ok()) status_ = BadDataError(absl::StrCat(what_, ": ", Wrong(key, must)));
}

double ConfigReader::Number(std::initializer_list<const char*> keys, double fallback) {
  const Json* value = Find(keys);
  if (value == nullptr) return fallback;
  if (!value->is_number()) Refuse(NameOf(keys), "a number");
  return value->is_number() ? value->get<double>() : fallback;
}

double ConfigReader::Positive(std::initializer_list<const char*> keys, double fallback) {
  const double value = Number(keys, fallback);
  if (value > 0) return value;
  Refuse(NameOf(keys), "a positive number");
  return fallback;
}

int64_t ConfigReader::Position(std::initializer_list<const char*> keys, int64_t fallback) {
  const Json* value = Find(keys);
  if (value == nullptr) return fallback;
  const std::optional<int64_t> number = WholeNumber(*value);
  if (number.has_value() && *number >= 1 && *number <= kMostPositions) return *number;
  Refuse(NameOf(keys), absl::StrCat("a whole number from 1 to ", kMostPositions));
  return fallback;
}

void ConfigReader::Only(const char* key, const Json& allowed) {
  const Json* value = Find({key});
  if (value != nullptr && *value != allowed) {
    Refuse(key, absl::StrCat(FormatJson(allowed), " (nothing else is implemented)"));
  }
}

void ConfigReader::RefuseTheRest(bool (*is_neutral)(const std::string& key, const Json& value)) {
  for (const auto& [key, value] : object_.items()) {
    if (seen_.contains(key) || is_neutral(key, value)) continue;
    if (const std::string values = NeutralValuesOf(key); !values.empty()) {
      Refuse(key, absl::StrCat(values, " (nothing else is implemented)"));
      continue;
    }
    Refuse(absl::StrCat("field '", key,
                        "' is not known and may change what the model computes; remove it if it does not"));
  }
}

std::string ConfigReader::Wrong(absl::string_view key, absl::string_view must) const {
  const auto it = object_.find(std::string(key));
  const std::string value = it == object_.end() ? "absent" : FormatJson(*it).substr(0, 80);
  return absl::StrCat("field '", key, "' is ", value, " but must be ", must);
}

std::string ConfigReader::NameOf(std::initializer_list<const char*> keys) const {
  for (const char* key : keys) {
    if (seen_.contains(key)) return key;
  }
  return *keys.begin();
}

}  // namespace trainctl::model
