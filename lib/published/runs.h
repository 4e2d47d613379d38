// Runs that others measured and published, one per row of a CSV: what each trained, on what, and how much
// memory and time it took. Only columns are read; notes are for people. An empty cell is filled in if the
// framework or the model says what it must have been, and the reason says so. A row that does not say enough
// has a reason instead of a workload. Pure but for files that rows name.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "frameworks/workload.h"

namespace trainctl::published {

// Whether it fitted the device, as far as its source says.
enum class RunOutcome : uint8_t {
  kUnknown,      // nothing was measured, or the settings say so
  kRan,          // a rate or a memory figure was measured
  kOutOfMemory,  // the settings say so
};

struct PublishedRun {
  std::string id;
  std::string source;
  // `workload` points to it, so copies of the run share it. nullptr if the row names none.
  std::shared_ptr<const frameworks::FrameworkProfile> framework;
  std::optional<frameworks::Workload> workload;  // empty: not enough is known to price it
  std::string reason;  // why it is empty, or which cells were filled in and with what
  frameworks::MemoryMetric metric = frameworks::MemoryMetric::kReserved;
  double measured_memory_gib = 0;    // 0: not published
  double measured_step_seconds = 0;  // 0: not published, or not known for want of the batch
  bool has_time = false;             // its source gives a rate, whether or not the rest can be priced
  RunOutcome outcome = RunOutcome::kUnknown;
  // All that decides the price, for finding repeats of one configuration.
  std::string configuration;
};

// The columns that a file must have, in any order; others are ignored.
const std::vector<std::string>& PublishedColumns();
// Columns that a file may have as well: docs/reference/score-settings.md.
const std::vector<std::string>& DescribingColumns();

// The text of a file that a row names.
using FileReader = std::function<absl::StatusOr<std::string>(const std::string& path)>;

// BadDataError with every missing column, or with line and column name of each cell that should be a number
// and is not, or describes no job (at most ten are listed). Without `read_file` no row may name a file.
absl::StatusOr<std::vector<PublishedRun>> ReadPublishedRuns(absl::string_view csv_text,
                                                            absl::string_view what,
                                                            const FileReader& read_file = {});

}  // namespace trainctl::published
