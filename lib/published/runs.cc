#include "published/runs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/csv.h"
#include "base/status.h"
#include "published/read_row.h"
#include "published/row_columns.h"

namespace trainctl::published {
namespace {

constexpr size_t kErrorsShown = 10;
constexpr double kMostOfAnything = 1e15;
constexpr double kMostToCount = 1e9;

// What may stand in a cell that is not empty.
enum class CellKind : uint8_t {
  kNumber,
  kCount,     // whole, 0 for none
  kPositive,  // whole, and 0 makes no sense
};

const std::vector<std::pair<std::string, CellKind>>& NumberColumns() {
  using enum CellKind;
  static const auto* const columns =
      new std::vector<std::pair<std::string, CellKind>>{{"n_params_b", kNumber},
                                                        {"layers", kPositive},
                                                        {"hidden", kPositive},
                                                        {"ffn", kCount},
                                                        {"heads", kPositive},
                                                        {"kv_heads", kCount},
                                                        {"vocab", kPositive},
                                                        {"seq_len", kPositive},
                                                        {"n_gpus", kPositive},
                                                        {"tp", kPositive},
                                                        {"pp", kPositive},
                                                        {"vpp", kCount},
                                                        {"cp", kCount},
                                                        {"ep", kCount},
                                                        {"micro_batch", kPositive},
                                                        {"global_batch_seqs", kPositive},
                                                        {"peak_mem_gib", kNumber},
                                                        {"tokens_per_sec_per_gpu", kNumber}};
  return *columns;
}

// What a cell has wrong; empty if nothing.
std::string NumberProblem(const std::string& cell, CellKind kind) {
  if (cell.empty()) return "";
  double value = 0;
  if (!absl::SimpleAtod(cell, &value) || !std::isfinite(value)) return "not a number";
  if (value < 0) return "which cannot be negative";
  if (value >= kMostOfAnything) return "more than anyone has";
  if (kind == CellKind::kNumber) return "";
  if (value > kMostToCount) return "more than anyone has";
  if (value == 0 && kind == CellKind::kPositive)
    return "which is at least 1; what is not stated is left empty";
  return value == std::floor(value) ? "" : "which is a whole number";
}

}  // namespace

const std::vector<std::string>& PublishedColumns() {
  static const auto* const columns = new std::vector<std::string>{"id",
                                                                  "source",
                                                                  "framework",
                                                                  "model",
                                                                  "n_params_b",
                                                                  "layers",
                                                                  "hidden",
                                                                  "ffn",
                                                                  "heads",
                                                                  "kv_heads",
                                                                  "vocab",
                                                                  "seq_len",
                                                                  "gpu_type",
                                                                  "n_gpus",
                                                                  "tp",
                                                                  "pp",
                                                                  "vpp",
                                                                  "cp",
                                                                  "ep",
                                                                  "dp_replicate",
                                                                  "dp_shard",
                                                                  "micro_batch",
                                                                  "global_batch_seqs",
                                                                  "precision",
                                                                  "activation_recompute",
                                                                  "optimizer",
                                                                  "peak_mem_gib",
                                                                  "tokens_per_sec_per_gpu",
                                                                  "notes"};
  return *columns;
}

const std::vector<std::string>& DescribingColumns() {
  static const auto* const columns = new std::vector<std::string>{"model_config", "settings"};
  return *columns;
}

absl::StatusOr<std::vector<PublishedRun>> ReadPublishedRuns(absl::string_view csv_text,
                                                            absl::string_view what,
                                                            const FileReader& read_file) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<CsvRecord> records, ParseCsv(csv_text, what));
  if (records.empty())
    return BadDataError(absl::StrCat(what, ": is empty; the first line names the columns"));
  const std::vector<std::string>& header = records[0].cells;
  std::vector<std::string> missing;
  for (const std::string& column : PublishedColumns()) {
    if (std::find(header.begin(), header.end(), column) == header.end()) missing.push_back(column);
  }
  if (!missing.empty()) {
    return BadDataError(absl::StrCat(what, ":", records[0].line,
                                     ": missing columns: ", absl::StrJoin(missing, ", "),
                                     "; a cell may be empty, a column must be there"));
  }
  std::vector<std::string> errors;
  std::vector<PublishedRun> runs;
  ColumnReader column_reader(read_file);
  for (size_t r = 1; r < records.size(); ++r) {
    const CsvRecord& record = records[r];
    if (record.cells.size() != header.size()) {
      errors.push_back(absl::StrCat(what, ":", record.line, ": ", record.cells.size(), " cells, but ",
                                    header.size(), " columns"));
      continue;
    }
    RowCells cells;
    for (size_t c = 0; c < header.size(); ++c) {
      cells[header[c]] = std::string(absl::StripAsciiWhitespace(record.cells[c]));
    }
    const size_t errors_before = errors.size();
    for (const auto& [column, kind] : NumberColumns()) {
      const std::string problem = NumberProblem(cells[column], kind);
      if (!problem.empty())
        errors.push_back(absl::StrCat(what, ":", record.line, ": ", column, " is '",
                                      cells[column].substr(0, 40), "', ", problem));
    }
    std::vector<std::string> mistakes;
    const RowColumns columns = column_reader.Read(cells, mistakes);
    for (const std::string& mistake : mistakes) {
      errors.push_back(absl::StrCat(what, ":", record.line, ": ", mistake));
    }
    if (errors.size() == errors_before) runs.push_back(ReadRow(cells, columns));
  }
  if (errors.empty()) return runs;
  const size_t all = errors.size();
  if (all > kErrorsShown) {
    errors.resize(kErrorsShown);
    errors.push_back(absl::StrCat("and ", all - kErrorsShown, " more"));
  }
  return BadDataError(absl::StrJoin(errors, "\n"));
}

}  // namespace trainctl::published
