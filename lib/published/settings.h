// The column `settings` of a table of measured runs: `key=value;key=value`, the switches of a run that no
// other column has. One table (settings_table.cc) defines every key: the parser, its messages and
// docs/reference/score-settings.md are made from it. Pure; thread safe.
//
//   std::vector<std::string> errors;
//   std::vector<SettingValue> values = ParseSettings("loss_chunks=8; compiled=yes", errors);
//   for (const SettingValue& value : values) value.Apply(target);
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cluster/catalogue.h"
#include "frameworks/workload.h"
#include "published/runs.h"

namespace trainctl::published {

enum class SettingKind : uint8_t {
  kSwitch,    // yes or no
  kCount,     // whole, 0 for none
  kPositive,  // whole, at least 1
  kAmount,    // a number, 0 for none
  kSize,      // a number above 0
  kChoice,    // one of `choices`
  kList,      // whole numbers joined by "+"
  kNode,      // of the catalogue
  kText,      // any
};

// What settings change, in the order in which a row is read: the framework's switches, the figures and the
// machine, the job. A null part is not changed.
struct SettingTarget {
  frameworks::FrameworkProfile* framework = nullptr;
  struct Figures {
    std::optional<frameworks::MemoryMetric> metric;
    std::optional<bool> decimal_units;
    std::optional<RunOutcome> outcome;
    const cluster::Node* node = nullptr;
  }* figures = nullptr;
  frameworks::Workload* workload = nullptr;
};

struct SettingValue;

enum class SettingScope : uint8_t { kFramework, kFigures, kWorkload };

struct Setting {
  const char* section = "";
  const char* name = "";
  SettingKind kind = SettingKind::kSwitch;
  SettingScope scope = SettingScope::kWorkload;
  absl::Span<const char* const> choices;
  const char* choices_elsewhere = "";  // what the page says instead, where another one lists them
  const char* meaning = "";
  void (*apply)(const SettingValue& value, SettingTarget& target) = nullptr;
  // What it is where a row does not state it: of every framework, or the same for all.
  std::string (*of_framework)(const frameworks::FrameworkProfile& framework) = nullptr;
  const char* otherwise = "no";
  const char* needs = "";  // a setting without which this one says nothing
  // As the job has it; "" where that is what it would be unstated. Null: prose says nothing of it.
  std::string (*of_workload)(const frameworks::Workload& workload) = nullptr;
};

struct SettingValue {
  const Setting* setting = nullptr;
  double number = 0;  // of a switch 0 or 1, of a choice its place
  std::vector<int64_t> list;
  const cluster::Node* node = nullptr;
  std::string text;  // as it was written

  // Does nothing where `target` lacks the part that the setting changes.
  void Apply(SettingTarget& target) const;
};

absl::Span<const Setting> Settings();

// Appends a message for each mistake: a key that is not known (with the nearest), a value that is not
// possible (with those that are), a key that is stated twice or without the one that it needs.
std::vector<SettingValue> ParseSettings(absl::string_view text, std::vector<std::string>& errors);

// docs/reference/score-settings.md.
std::string SettingsPage();

}  // namespace trainctl::published
