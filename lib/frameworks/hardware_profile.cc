#include "frameworks/hardware_profile.h"

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "base/status.h"

namespace trainctl::frameworks {
namespace {

constexpr absl::string_view kSchemaPrefix = "trainctl.profile.v";
constexpr int kSchemaVersion = 1;

absl::Status CheckSchema(const Json& json, absl::string_view what) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string schema, JsonString(json, "schema", what));
  int version = 0;
  if (!absl::StartsWith(schema, kSchemaPrefix) ||
      !absl::SimpleAtoi(absl::string_view(schema).substr(kSchemaPrefix.size()), &version) || version < 1) {
    return BadDataError(absl::StrCat(what, ": schema is '", schema.substr(0, 60), "', not '", kSchemaPrefix,
                                     kSchemaVersion, "': it is not a hardware profile"));
  }
  if (version > kSchemaVersion) {
    return BadDataError(absl::StrCat(what, ": is version ", version, " of the profile; this program reads ",
                                     kSchemaVersion, ": use a newer trainctl"));
  }
  return absl::OkStatus();
}

// Numbers of one object by a table of names; every other field is an error.
template <typename Values, typename Table>
absl::Status ReadNumbers(const Json& object, const std::string& what, const Table& table, double least,
                         double most, Values& values) {
  if (!object.is_object()) return BadDataError(absl::StrCat(what, ": must be an object"));
  for (const auto& [key, value] : object.items()) {
    double Values::*member = nullptr;
    for (const auto& [name, place] : table) {
      if (key == name) member = place;
    }
    if (member == nullptr)
      return BadDataError(absl::StrCat(what, ": '", key.substr(0, 60), "' is not a field"));
    TRAINCTL_ASSIGN_OR_RETURN(const double number, JsonDouble(object, key, what));
    if (!(number >= least && number <= most)) {
      return BadDataError(
          absl::StrCat(what, ": ", key, " is ", number, "; it is between ", least, " and ", most));
    }
    values.*member = number;
  }
  return absl::OkStatus();
}

absl::Status ReadDevices(const Json& devices, const std::string& what, HardwareProfile& profile) {
  if (!devices.is_array()) return BadDataError(absl::StrCat(what, ": devices must be a list of names"));
  for (const Json& device : devices) {
    if (!device.is_string()) return BadDataError(absl::StrCat(what, ": devices must be a list of names"));
    profile.devices.push_back(device.get<std::string>());
  }
  return absl::OkStatus();
}

}  // namespace

std::string ProfileToJson(const HardwareProfile& profile) {
  Json tuning = Json::object();
  for (const auto& [name, member] : TuningConstants()) tuning[name] = profile.tuning.*member;
  const Json json = {{"schema", absl::StrCat(kSchemaPrefix, kSchemaVersion)},
                     {"made_by", profile.made_by},
                     {"rows", profile.rows},
                     {"devices", profile.devices},
                     {"tuning", std::move(tuning)}};
  return FormatJson(json, 2) + "\n";
}

absl::StatusOr<HardwareProfile> ParseProfile(absl::string_view text, absl::string_view what_view) {
  const std::string what(what_view);
  TRAINCTL_ASSIGN_OR_RETURN(const Json json, ParseJson(text, what, /*max_depth=*/8));
  TRAINCTL_RETURN_IF_ERROR(CheckSchema(json, what));
  HardwareProfile profile;
  for (const auto& [key, value] : json.items()) {
    if (key == "schema") continue;
    if (key == "made_by") {
      TRAINCTL_ASSIGN_OR_RETURN(profile.made_by, JsonString(json, key, what));
    } else if (key == "rows") {
      TRAINCTL_ASSIGN_OR_RETURN(profile.rows, JsonInt(json, key, what));
      if (profile.rows < 0) return BadDataError(absl::StrCat(what, ": rows is ", profile.rows));
    } else if (key == "devices") {
      TRAINCTL_RETURN_IF_ERROR(ReadDevices(value, what, profile));
    } else if (key == "tuning") {
      TRAINCTL_RETURN_IF_ERROR(ReadNumbers(value, absl::StrCat(what, ": tuning"), TuningConstants(),
                                           kLeastMultiplier, kMostMultiplier, profile.tuning));
    } else {
      return BadDataError(absl::StrCat(what, ": '", key.substr(0, 60), "' is not a field of a profile"));
    }
  }
  return profile;
}

}  // namespace trainctl::frameworks
