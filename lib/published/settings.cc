#include "published/settings.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/names.h"

namespace trainctl::published {
namespace {

constexpr double kMostOfAnything = 1e15;
constexpr double kMostToCount = 1e9;
constexpr size_t kLongestName = 64;

const Setting* FindSetting(absl::string_view name) {
  for (const Setting& setting : Settings()) {
    if (name == setting.name) return &setting;
  }
  return nullptr;
}

std::vector<std::string> SettingNames() {
  std::vector<std::string> names;
  for (const Setting& setting : Settings()) names.emplace_back(setting.name);
  return names;
}

bool ReadNumber(absl::string_view text, SettingKind kind, double& number) {
  if (!absl::SimpleAtod(text, &number) || !std::isfinite(number)) return false;
  if (kind == SettingKind::kAmount) return number >= 0 && number < kMostOfAnything;
  if (kind == SettingKind::kSize) return number > 0 && number < kMostOfAnything;
  const double least = kind == SettingKind::kCount ? 0 : 1;
  return number >= least && number <= kMostToCount && number == std::floor(number);
}

// What a value must be, where `text` is none.
std::string Read(absl::string_view text, SettingValue& value) {
  const Setting& setting = *value.setting;
  switch (setting.kind) {
    case SettingKind::kSwitch:
      value.number = text == "yes" ? 1 : 0;
      return text == "yes" || text == "no" ? "" : "yes or no";
    case SettingKind::kCount:
      return ReadNumber(text, setting.kind, value.number) ? "" : "a whole number, 0 for none";
    case SettingKind::kPositive:
      return ReadNumber(text, setting.kind, value.number) ? "" : "a whole number of at least 1";
    case SettingKind::kAmount:
      return ReadNumber(text, setting.kind, value.number) ? "" : "a number, 0 for none";
    case SettingKind::kSize:
      return ReadNumber(text, setting.kind, value.number) ? "" : "a number above 0";
    case SettingKind::kChoice: {
      const auto choice = std::find(setting.choices.begin(), setting.choices.end(), text);
      value.number = static_cast<double>(choice - setting.choices.begin());
      return choice != setting.choices.end() ? ""
                                             : absl::StrCat("one of ", absl::StrJoin(setting.choices, ", "));
    }
    case SettingKind::kList:
      for (const absl::string_view part : absl::StrSplit(text, '+')) {
        double number = 0;
        if (!ReadNumber(absl::StripAsciiWhitespace(part), SettingKind::kCount, number)) {
          return "whole numbers joined by +, such as 8+8+7+9";
        }
        value.list.push_back(static_cast<int64_t>(number));
      }
      return "";
    case SettingKind::kNode: {
      const absl::StatusOr<const cluster::Node*> node = cluster::FindNode(text);
      if (!node.ok()) return absl::StrCat("a node of the catalogue: ", node.status().message());
      value.node = *node;
      return "";
    }
    case SettingKind::kText:
      return text.empty() ? "some text" : "";
  }
  return "";
}

}  // namespace

void SettingValue::Apply(SettingTarget& target) const {
  const bool has_target = setting->scope == SettingScope::kFramework ? target.framework != nullptr
                          : setting->scope == SettingScope::kFigures ? target.figures != nullptr
                                                                     : target.workload != nullptr;
  if (has_target) setting->apply(*this, target);
}

std::vector<SettingValue> ParseSettings(absl::string_view text, std::vector<std::string>& errors) {
  std::vector<SettingValue> values;
  for (absl::string_view part : absl::StrSplit(text, ';')) {
    part = absl::StripAsciiWhitespace(part);
    if (part.empty()) continue;
    const size_t equals = part.find('=');
    if (equals == absl::string_view::npos) {
      errors.push_back(absl::StrCat(QuotedName(part), " must be key=value"));
      continue;
    }
    const absl::string_view name = absl::StripAsciiWhitespace(part.substr(0, equals));
    const absl::string_view cell = absl::StripAsciiWhitespace(part.substr(equals + 1));
    SettingValue value;
    value.setting = FindSetting(name);
    if (value.setting == nullptr) {
      errors.push_back(absl::StrCat(QuotedName(name), " is not a setting; nearest: ",
                                    NearestNames(name.substr(0, kLongestName), SettingNames())));
      continue;
    }
    const bool is_repeated = std::any_of(values.begin(), values.end(), [&](const SettingValue& other) {
      return other.setting == value.setting;
    });
    if (is_repeated) {
      errors.push_back(absl::StrCat(name, " is stated twice"));
      continue;
    }
    const std::string problem = Read(cell, value);
    if (!problem.empty()) {
      errors.push_back(absl::StrCat(name, " is ", QuotedName(cell), " but must be ", problem));
      continue;
    }
    value.text = std::string(cell);
    values.push_back(std::move(value));
  }
  for (const SettingValue& value : values) {
    const absl::string_view needed = value.setting->needs;
    const bool is_there = std::any_of(values.begin(), values.end(), [&](const SettingValue& other) {
      return needed == other.setting->name;
    });
    if (!needed.empty() && !is_there) {
      errors.push_back(absl::StrCat(value.setting->name, " says nothing without ", needed));
    }
  }
  return values;
}

}  // namespace trainctl::published
