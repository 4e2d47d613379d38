// docs/reference/score-settings.md, from the table of settings alone.

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "published/model_config.h"
#include "published/settings.h"

namespace trainctl::published {
namespace {

constexpr char kHead[] = R"(# Runs in columns

Printed by `trainctl score --settings`; a test compares the two.

A row of [measured runs](other-trainers.md#the-csv-of-measured-runs) says in three columns what a price needs
beyond sizes and degrees:

| column | holds |
|---|---|
| `framework` | a trainer by its name below |
| `model_config` | a `config.json`: its path (from the folder of the table), its text, or a JSON object of the fields that differ from the model that `model` names, such as `{"first_k_dense_replace": 1}` |
| `settings` | `key=value;key=value`: what differs from that trainer's defaults |

`source` and `notes` are for people: nothing is read from them. A row without a `framework` is skipped.

)";

std::string ValuesOf(const Setting& setting) {
  switch (setting.kind) {
    case SettingKind::kSwitch:
      return "`yes`, `no`";
    case SettingKind::kCount:
      return "whole";
    case SettingKind::kPositive:
      return "whole, at least 1";
    case SettingKind::kAmount:
      return "number";
    case SettingKind::kSize:
      return "number above 0";
    case SettingKind::kChoice:
      if (*setting.choices_elsewhere != '\0') return setting.choices_elsewhere;
      return absl::StrCat("`", absl::StrJoin(setting.choices, "`, `"), "`");
    case SettingKind::kList:
      return "whole, joined by `+`";
    case SettingKind::kNode:
      return "a node's name";
    case SettingKind::kText:
      return "any text";
  }
  return "";
}

// "12; 6: internevo, torchtune": what most frameworks have comes first.
std::string DefaultOf(const Setting& setting) {
  if (setting.of_framework == nullptr) return setting.otherwise;
  std::map<std::string, std::vector<std::string>> by_value;
  for (const frameworks::FrameworkProfile& framework : frameworks::Frameworks()) {
    by_value[setting.of_framework(framework)].emplace_back(framework.name);
  }
  const auto most = std::max_element(by_value.begin(), by_value.end(), [](const auto& a, const auto& b) {
    return a.second.size() < b.second.size();
  });
  std::string text = most->first;
  for (const auto& [value, names] : by_value) {
    if (value != most->first) absl::StrAppend(&text, "; ", value, ": ", absl::StrJoin(names, ", "));
  }
  return text;
}

}  // namespace

std::string SettingsPage() {
  std::string page = kHead;
  absl::StrAppend(&page, "## `framework`\n\n| name | trainer |\n|---|---|\n");
  for (const frameworks::FrameworkProfile& framework : frameworks::Frameworks()) {
    absl::StrAppend(&page, "| `", framework.name, "` | ", framework.label, " |\n");
  }
  absl::StrAppend(&page, "\n## `model_config`\n\nA whole `config.json` has a `model_type`. Fields that may ",
                  "differ: `", absl::StrJoin(ModelConfigFields(), "`, `"), "`.\n");
  absl::string_view section;
  for (const Setting& setting : Settings()) {
    if (section != setting.section) {
      section = setting.section;
      absl::StrAppend(&page, "\n## `settings`: ", section,
                      "\n\n| key | values | unless stated | meaning |\n|---|---|---|---|\n");
    }
    absl::StrAppend(&page, "| `", setting.name, "` | ", ValuesOf(setting), " | ", DefaultOf(setting), " | ",
                    setting.meaning, " |\n");
  }
  return page;
}

}  // namespace trainctl::published
