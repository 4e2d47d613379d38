#include "published/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"

namespace trainctl::published {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> ErrorsOf(absl::string_view text) {
  std::vector<std::string> errors;
  ParseSettings(text, errors);
  return errors;
}

// A value that is possible and, where there is a choice, is not the first.
std::string AValueOf(const Setting& setting) {
  switch (setting.kind) {
    case SettingKind::kSwitch:
      return "yes";
    case SettingKind::kChoice:
      return setting.choices.back();
    case SettingKind::kList:
      return "3+4";
    case SettingKind::kNode:
      return "jean-zay-a100";
    case SettingKind::kText:
      return "x";
    case SettingKind::kCount:
    case SettingKind::kPositive:
    case SettingKind::kAmount:
    case SettingKind::kSize:
      break;
  }
  return "7";
}

TEST(Settings, EveryOneHasANameAMeaningAndADefault) {
  std::set<std::string> names;
  for (const Setting& setting : Settings()) {
    EXPECT_TRUE(names.insert(setting.name).second) << setting.name;
    EXPECT_FALSE(absl::string_view(setting.meaning).empty()) << setting.name;
    EXPECT_NE(setting.apply, nullptr) << setting.name;
    EXPECT_EQ(setting.kind == SettingKind::kChoice, !setting.choices.empty()) << setting.name;
  }
}

// None is read and then forgotten: each changes the job, its framework, or what its figures mean.
TEST(Settings, EveryOneChangesWhatItNames) {
  for (const Setting& setting : Settings()) {
    if (setting.kind == SettingKind::kText) continue;
    for (const std::string& value : {AValueOf(setting), std::string("no")}) {
      if (value == "no" && setting.kind != SettingKind::kSwitch) continue;
      std::string text = absl::StrCat(setting.name, "=", value);
      if (!absl::string_view(setting.needs).empty()) {
        const bool is_switch = absl::StartsWith(setting.needs, "weights");
        absl::StrAppend(&text, ";", setting.needs, is_switch ? "=yes" : "=3");
      }
      std::vector<std::string> errors;
      const std::vector<SettingValue> values = ParseSettings(text, errors);
      ASSERT_THAT(errors, IsEmpty()) << text;
      // Of frameworks that differ from each other in every switch one shows the change.
      bool changed = false;
      for (const frameworks::FrameworkProfile& usual : frameworks::Frameworks()) {
        frameworks::FrameworkProfile framework = usual;
        frameworks::Workload workload;
        SettingTarget::Figures figures;
        workload.model.dropout = value == "no";
        frameworks::Workload before = workload;
        SettingTarget target{.framework = &framework, .figures = &figures, .workload = &workload};
        values[0].Apply(target);
        changed |= !(framework == usual) || !(workload == before) || figures.metric.has_value() ||
                   figures.decimal_units.has_value() || figures.outcome.has_value() ||
                   figures.node != nullptr;
      }
      // What is no unless stated does not change when it is stated to be no.
      if (value == "yes" || setting.kind != SettingKind::kSwitch) {
        EXPECT_TRUE(changed) << text;
      }
    }
  }
}

TEST(Settings, AreReadWithWhiteSpaceAndEmptyParts) {
  std::vector<std::string> errors;
  const std::vector<SettingValue> values =
      ParseSettings(" loss_chunks = 8 ;; compiled=yes; stage_layers=3+ 4; ", errors);
  EXPECT_THAT(errors, IsEmpty());
  ASSERT_EQ(values.size(), 3U);
  EXPECT_STREQ(values[0].setting->name, "loss_chunks");
  EXPECT_EQ(values[0].number, 8);
  EXPECT_THAT(values[2].list, ElementsAre(3, 4));
}

TEST(Settings, AMistakeNamesWhatIsPossible) {
  EXPECT_THAT(ErrorsOf("atention=flash2"),
              ElementsAre(HasSubstr("'atention' is not a setting; nearest: attention")));
  EXPECT_THAT(ErrorsOf("attention=flash9"),
              ElementsAre("attention is 'flash9' but must be one of scores, flash1, flash2, vendor"));
  EXPECT_THAT(ErrorsOf("compiled=true"), ElementsAre("compiled is 'true' but must be yes or no"));
  EXPECT_THAT(ErrorsOf("compiled"), ElementsAre("'compiled' must be key=value"));
  EXPECT_THAT(ErrorsOf("loss_chunks=0"), ElementsAre(HasSubstr("a whole number of at least 1")));
  EXPECT_THAT(ErrorsOf("loss_chunks=1.5"), ElementsAre(HasSubstr("a whole number of at least 1")));
  EXPECT_THAT(ErrorsOf("optimizer_bytes=0"), ElementsAre(HasSubstr("a number above 0")));
  EXPECT_THAT(ErrorsOf("step_bytes=-1"), ElementsAre(HasSubstr("a number, 0 for none")));
  EXPECT_THAT(ErrorsOf("step_bytes=nan"), ElementsAre(HasSubstr("a number, 0 for none")));
  EXPECT_THAT(ErrorsOf("stage_layers=8,8"), ElementsAre(HasSubstr("joined by +")));
  EXPECT_THAT(ErrorsOf("node=my-cluster"), ElementsAre(HasSubstr("a node of the catalogue")));
  EXPECT_THAT(ErrorsOf("compiled=yes;compiled=no"), ElementsAre("compiled is stated twice"));
  EXPECT_THAT(ErrorsOf("transposed_weights=yes"),
              ElementsAre("transposed_weights says nothing without weights_in_fp8"));
  EXPECT_THAT(ErrorsOf("transposed_weights=yes;weights_in_fp8=yes"), IsEmpty());
  // All of them at once.
  EXPECT_EQ(ErrorsOf("a=1;b=2;compiled=3").size(), 3U);
}

TEST(SettingsPage, TheFileInTheTreeIsTheOutput) {
  const absl::StatusOr<std::string> page = ReadFile(TRAINCTL_SOURCE_DIR "/docs/reference/score-settings.md");
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_TRUE(*page == SettingsPage()) << "run: trainctl score --settings > docs/reference/score-settings.md";
}

TEST(SettingsPage, NamesEverySettingAndTheFrameworksThatDiffer) {
  const std::string page = SettingsPage();
  for (const Setting& setting : Settings()) {
    EXPECT_THAT(page, HasSubstr(absl::StrCat("| `", setting.name, "` |")));
  }
  EXPECT_THAT(page, HasSubstr("scores: megatron-deepspeed"));
}

}  // namespace
}  // namespace trainctl::published
