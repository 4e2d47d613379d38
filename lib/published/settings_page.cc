// Generates docs/reference/score-settings.md from the table of settings.

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "published/model_config.h"
#include "published/settings.h"

namespace trainctl::published {
namespace {

constexpr char kHead[] = R"(# Settings of measured runs

`trainctl score --settings` prints this page; a test keeps the two identical.

In a row of [measured runs](other-trainers.md#the-csv-of-measured-runs), three columns describe everything that an
estimate needs besides sizes and parallel degrees:

| column | contents |
|---|---|
| `framework` | One of the trainers below |
| `model_config` | A `config.json`: its path relative to the CSV's folder, its text, or a JSON object with only the fields that differ from the model in `model`, for example `{"first_k_dense_replace": 1}` |
| `settings` | Differences from the trainer's defaults, as `key=value;key=value` |

`source` only groups rows in the results, and `notes` is for human readers. Rows without a `framework` are skipped.

)";

std::string ValuesOf(const Setting& setting) {
  switch (setting.kind) {
    case SettingKind::kSwitch:
      return "`yes`, `no`";
    case SettingKind::kCount:
      return "integer";
    case SettingKind::kPositive:
      return "integer, at least 1";
    case SettingKind::kAmount:
      return "number";
    case SettingKind::kSize:
      return "number above 0";
    case SettingKind::kChoice:
      if (*setting.choices_elsewhere != '\0') return setting.choices_elsewhere;
      return absl::StrCat("`", absl::StrJoin(setting.choices, "`, `"), "`");
    case SettingKind::kList:
      return "integers joined by `+`";
    case SettingKind::kNode:
      return "name of a node";
    case SettingKind::kText:
      return "any text";
  }
  return "";
}

// Formats the default as "12; 6: internevo, torchtune", starting with the most common value.
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
  absl::StrAppend(&page,
                  "\n## `model_config`\n\nA complete `config.json` contains a `model_type`. An object may ",
                  "override these fields: `", absl::StrJoin(ModelConfigFields(), "`, `"), "`.\n");
  absl::string_view section;
  for (const Setting& setting : Settings()) {
    if (section != setting.section) {
      section = setting.section;
      absl::StrAppend(&page, "\n## `settings`: ", section,
                      "\n\n| key | values | default | meaning |\n|---|---|---|---|\n");
    }
    absl::StrAppend(&page, "| `", setting.name, "` | ", ValuesOf(setting), " | ", DefaultOf(setting), " | ",
                    setting.meaning, " |\n");
  }
  return page;
}

}  // namespace trainctl::published
