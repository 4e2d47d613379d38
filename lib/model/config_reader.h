// Internal to lib/model: reads the fields of config.json, or of one of its tables.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/json.h"

namespace trainctl::model {

// Keeps the first error in the model's description as the status. Collects separately the errors that matter
// only for training, and the names of the fields that were read.
class ConfigReader {
 public:
  // `all_spellings` is whether to accept every name of a field instead of only the first. `object` must
  // outlive the reader.
  ConfigReader(const Json& object, absl::string_view what, bool all_spellings)
      : object_(object), what_(what), all_spellings_(all_spellings) {}

  // Returns the first of `keys` that is there and not null (transformers takes null as the default).
  const Json* Find(std::initializer_list<const char*> keys);
  // Like Find, but also returns null, where transformers does not take it as the default.
  const Json* FindWithNull(const char* key);
  // Whether the field is there, null or not.
  bool Has(const char* key) const { return object_.contains(key); }

  // Return `fallback` if the field is absent. Fail if it has another type. Required also fails if it is
  // absent or 0.
  int64_t Int(std::initializer_list<const char*> keys, int64_t fallback);
  int64_t Required(std::initializer_list<const char*> keys);
  bool Bool(const char* key, bool fallback);
  void Fail(absl::string_view key, absl::string_view must);

  // The functions below report errors that matter only for training.
  double Number(std::initializer_list<const char*> keys, double fallback);
  double Positive(std::initializer_list<const char*> keys, double fallback);
  int64_t Position(std::initializer_list<const char*> keys, int64_t fallback);
  // An optional field with one value that the trainer computes.
  void Only(const char* key, const Json& allowed);
  void Refuse(absl::string_view key, absl::string_view must) { unknown_fields_.push_back(Wrong(key, must)); }
  void Refuse(std::string reason) { unknown_fields_.push_back(std::move(reason)); }
  // Refuses the fields that were not read. `is_neutral` says whether a field changes nothing with its value.
  void RefuseTheRest(bool (*is_neutral)(const std::string& key, const Json& value));

  const absl::Status& status() const { return status_; }
  const std::vector<std::string>& unknown_fields() const { return unknown_fields_; }

 private:
  std::string Wrong(absl::string_view key, absl::string_view must) const;
  // Returns the spelling that the file uses, or the first.
  std::string NameOf(std::initializer_list<const char*> keys) const;

  const Json& object_;
  std::string what_;
  bool all_spellings_;
  absl::Status status_;
  std::vector<std::string> unknown_fields_;
  std::set<std::string> seen_;
};

}  // namespace trainctl::model
