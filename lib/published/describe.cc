#include "published/describe.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/csv.h"
#include "base/status.h"
#include "published/recipes.h"
#include "published/settings.h"

namespace trainctl::published {
namespace {

using frameworks::Workload;

const char* PrecisionName(frameworks::Precision precision) {
  static constexpr const char* kNames[] = {"fp32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4"};
  return kNames[static_cast<size_t>(precision)];
}

std::string RecomputeCell(const Workload& w) {
  switch (w.recompute) {
    case frameworks::RecomputeKind::kNone:
      return "none";
    case frameworks::RecomputeKind::kFull:
      return "full";
    case frameworks::RecomputeKind::kSelective:
      break;
  }
  if (w.recompute_modules == frameworks::kCoreAttention) return "selective";
  return absl::StrCat("selective:", RecomputeModulesText(w.recompute_modules));
}

std::string SettingsCell(const PublishedRun& run) {
  const Workload& w = *run.workload;
  std::vector<std::string> parts;
  const auto add = [&parts](absl::string_view name, absl::string_view value) {
    parts.push_back(absl::StrCat(name, "=", value));
  };
  if (run.metric != w.framework->metric) {
    static constexpr const char* kNames[] = {"allocated", "reserved", "device", "first-step"};
    add("memory_figure", kNames[static_cast<size_t>(run.metric)]);
  }
  const bool has_figure = run.has_time || run.measured_memory_gib > 0;
  if (run.outcome == RunOutcome::kOutOfMemory) add("outcome", "out-of-memory");
  if (run.outcome == RunOutcome::kUnknown && has_figure) add("outcome", "unknown");
  if (w.node != &cluster::DefaultNodeFor(*w.device)) add("node", w.node->name);
  for (const Setting& setting : Settings()) {
    if (setting.of_workload == nullptr) continue;
    const std::string value = setting.of_workload(w);
    if (!value.empty()) add(setting.name, value);
  }
  return absl::StrJoin(parts, "; ");
}

std::map<std::string, std::string> CellsOf(const PublishedRun& run) {
  const Workload& w = *run.workload;
  return {{"seq_len", absl::StrCat(w.seq_len)},
          {"gpu_type", w.device->name},
          {"vpp", absl::StrCat(w.virtual_stages)},
          {"dp_shard", absl::StrCat("zero", w.zero_stage, "(", w.mesh.dp_shard, ")")},
          {"global_batch_seqs", absl::StrCat(w.global_batch)},
          {"precision", PrecisionName(w.precision)},
          {"activation_recompute", RecomputeCell(w)},
          {"framework", w.framework->name},
          {"settings", SettingsCell(run)}};
}

// The rows of `records`, header first, with what `runs` were taken for.
using Rows = std::vector<std::vector<std::string>>;

std::string ToText(const Rows& rows) {
  std::string text;
  for (const std::vector<std::string>& row : rows) text += CsvLine(row);
  return text;
}

bool IsDescribed(const PublishedRun& run) { return run.from_prose && run.workload.has_value(); }

Rows Described(const std::vector<CsvRecord>& records, const std::vector<PublishedRun>& runs) {
  std::vector<std::string> header = records[0].cells;
  for (const std::string& column : DescribingColumns()) {
    if (std::find(header.begin(), header.end(), column) == header.end()) header.push_back(column);
  }
  Rows rows = {header};
  // A table without errors has a run for each record.
  for (size_t r = 0; r < runs.size(); ++r) {
    std::vector<std::string>& row = rows.emplace_back(records[r + 1].cells);
    row.resize(header.size());
    if (!IsDescribed(runs[r])) continue;
    const std::map<std::string, std::string> cells = CellsOf(runs[r]);
    for (size_t c = 0; c < header.size(); ++c) {
      const auto cell = cells.find(header[c]);
      if (cell != cells.end()) row[c] = cell->second;
    }
  }
  return rows;
}

// Rows that words told apart, and columns do not, get a variant: they are no repeats of each other.
void AddVariants(const std::vector<PublishedRun>& in_prose, const std::vector<PublishedRun>& in_columns,
                 Rows& rows) {
  const size_t settings =
      static_cast<size_t>(std::find(rows[0].begin(), rows[0].end(), "settings") - rows[0].begin());
  std::map<std::string, std::map<std::string, size_t>> variants;  // by both configurations
  for (size_t r = 0; r < in_prose.size(); ++r) {
    if (!IsDescribed(in_prose[r])) continue;
    auto& of_columns = variants[in_columns[r].configuration];
    const size_t variant = of_columns.emplace(in_prose[r].configuration, of_columns.size() + 1).first->second;
    if (variant == 1) continue;
    std::string& cell = rows[r + 1][settings];
    absl::StrAppend(&cell, cell.empty() ? "" : "; ", "variant=", variant);
  }
}

}  // namespace

absl::StatusOr<std::string> DescribeInColumns(absl::string_view csv_text, absl::string_view what,
                                              const FileReader& read_file) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<PublishedRun> in_prose,
                            ReadPublishedRuns(csv_text, what, read_file));
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<CsvRecord> records, ParseCsv(csv_text, what));
  Rows rows = Described(records, in_prose);
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<PublishedRun> in_columns,
                            ReadPublishedRuns(ToText(rows), what, read_file));
  AddVariants(in_prose, in_columns, rows);
  return ToText(rows);
}

}  // namespace trainctl::published
