// The columns that say more of a job than numbers: `framework`, `model_config`, `settings`.
// Internal to the reader of tables (runs.h). Thread compatible.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "frameworks/framework.h"
#include "published/model_config.h"
#include "published/runs.h"
#include "published/settings.h"

namespace trainctl::published {

using RowCells = std::map<std::string, std::string>;  // by column, stripped of white space

struct RowColumns {
  std::shared_ptr<const frameworks::FrameworkProfile> framework;  // nullptr if the row names none
  ModelConfig model_config;
  std::vector<SettingValue> settings;
  SettingTarget::Figures figures;
};

// Reads them row by row. Rows with the same switches share one profile, so that they are the same job.
class ColumnReader {
 public:
  explicit ColumnReader(FileReader read_file) : read_file_(std::move(read_file)) {}

  // Appends a message that begins with the column's name for each mistake.
  RowColumns Read(const RowCells& cells, std::vector<std::string>& errors);

 private:
  std::shared_ptr<const frameworks::FrameworkProfile> Shared(const frameworks::FrameworkProfile& profile);
  ModelConfig ReadModelConfig(const RowCells& cells, std::vector<std::string>& errors) const;

  FileReader read_file_;
  std::vector<std::shared_ptr<const frameworks::FrameworkProfile>> profiles_;
};

}  // namespace trainctl::published
