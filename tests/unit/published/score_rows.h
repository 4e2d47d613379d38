// Rows of a table of measured runs for tests: Llama 3 8B on 64 H100 under FSDP2, with changed cells.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/csv.h"
#include "published/runs.h"

namespace trainctl::published {

inline std::vector<std::string> AllColumns() {
  std::vector<std::string> columns = PublishedColumns();
  columns.insert(columns.end(), DescribingColumns().begin(), DescribingColumns().end());
  return columns;
}
inline std::string Header() { return CsvLine(AllColumns()); }

inline std::string Row(const std::map<std::string, std::string>& changes = {}) {
  std::map<std::string, std::string> cells = {{"id", "row-1"},
                                              {"source", "pytorch/torchtitan@1:x.md"},
                                              {"framework", "torchtitan"},
                                              {"model", "Llama 3 8B"},
                                              {"layers", "32"},
                                              {"hidden", "4096"},
                                              {"ffn", "14336"},
                                              {"heads", "32"},
                                              {"kv_heads", "8"},
                                              {"vocab", "128256"},
                                              {"seq_len", "8192"},
                                              {"gpu_type", "H100"},
                                              {"n_gpus", "64"},
                                              {"tp", "1"},
                                              {"pp", "1"},
                                              {"dp_shard", "fsdp2(64)"},
                                              {"micro_batch", "1"},
                                              {"global_batch_seqs", "64"},
                                              {"precision", "bf16"},
                                              {"activation_recompute", "full"},
                                              {"tokens_per_sec_per_gpu", "5000"},
                                              {"notes", ""}};
  for (const auto& [column, cell] : changes) cells[column] = cell;
  std::vector<std::string> row;
  for (const std::string& column : AllColumns()) row.push_back(cells[column]);
  return CsvLine(row);
}

}  // namespace trainctl::published
