#include "published/row_columns.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/names.h"

namespace trainctl::published {
namespace {

constexpr size_t kLongestName = 64;

std::string Cell(const RowCells& cells, const char* column) {
  const auto it = cells.find(column);
  return it == cells.end() ? "" : it->second;
}

// A size that the table and the model's description both state is the same in both.
void CompareSizes(const RowCells& cells, const ModelConfig& config, std::vector<std::string>& errors) {
  for (const char* const column : {"layers", "hidden", "ffn", "heads", "kv_heads", "vocab"}) {
    const std::optional<int64_t> size = config.SizeOf(column);
    double stated = 0;
    if (!size.has_value() || !absl::SimpleAtod(Cell(cells, column), &stated)) continue;
    if (stated == static_cast<double>(*size)) continue;
    errors.push_back(absl::StrCat("model_config: says ", *size, " where the column ", column, " says ",
                                  Cell(cells, column), "; leave one of them out"));
  }
}

}  // namespace

std::shared_ptr<const frameworks::FrameworkProfile> ColumnReader::Shared(
    const frameworks::FrameworkProfile& profile) {
  for (const auto& known : profiles_) {
    if (*known == profile) return known;
  }
  // A trainer as it is by default lives for ever.
  const frameworks::FrameworkProfile* const usual = frameworks::FindFramework(profile.name);
  if (*usual == profile) {
    profiles_.emplace_back(usual, [](const frameworks::FrameworkProfile*) {});
  } else {
    profiles_.push_back(std::make_shared<const frameworks::FrameworkProfile>(profile));
  }
  return profiles_.back();
}

ModelConfig ColumnReader::ReadModelConfig(const RowCells& cells, std::vector<std::string>& errors) const {
  std::string text = Cell(cells, "model_config");
  if (text.empty()) return {};
  std::string what = "model_config: ";
  if (!absl::StartsWith(text, "{")) {
    absl::StatusOr<std::string> file =
        read_file_ ? read_file_(text) : absl::UnavailableError("is a path, and files are not read here");
    if (!file.ok()) {
      errors.push_back(absl::StrCat(what, file.status().message()));
      return {};
    }
    absl::StrAppend(&what, QuotedName(text), ": ");
    text = *std::move(file);
  }
  absl::StatusOr<ModelConfig> config = ParseModelConfig(text);
  if (!config.ok()) {
    errors.push_back(absl::StrCat(what, config.status().message()));
    return {};
  }
  CompareSizes(cells, *config, errors);
  return *std::move(config);
}

RowColumns ColumnReader::Read(const RowCells& cells, std::vector<std::string>& errors) {
  RowColumns columns;
  columns.model_config = ReadModelConfig(cells, errors);
  std::vector<std::string> mistakes;
  columns.settings = ParseSettings(Cell(cells, "settings"), mistakes);
  for (const std::string& mistake : mistakes) errors.push_back(absl::StrCat("settings: ", mistake));
  const std::string name = Cell(cells, "framework");
  if (name.empty()) {
    if (!columns.settings.empty()) {
      errors.push_back("settings: need a framework, whose defaults they change; name it in that column");
    }
    return columns;
  }
  const frameworks::FrameworkProfile* const framework = frameworks::FindFramework(name);
  if (framework == nullptr) {
    std::vector<std::string> names;
    for (const frameworks::FrameworkProfile& known : frameworks::Frameworks()) names.emplace_back(known.name);
    errors.push_back(absl::StrCat("framework: ", QuotedName(name), " is not known; nearest: ",
                                  NearestNames(absl::string_view(name).substr(0, kLongestName), names)));
    return columns;
  }
  frameworks::FrameworkProfile own = *framework;
  SettingTarget target{.framework = &own, .figures = &columns.figures};
  for (const SettingValue& value : columns.settings) value.Apply(target);
  columns.framework = Shared(own);
  return columns;
}

}  // namespace trainctl::published
