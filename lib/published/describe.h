// Turns rows that are described in prose into rows in columns that are priced the same, so that people can
// check what their words were taken to mean, and keep that. Pure but for files that rows name.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "published/runs.h"

namespace trainctl::published {

// The table with `framework`, `model_config` and `settings` filled in, and with the cells that a default or a
// source's own rule stands for ("global_batch_seqs", "gpu_type"). Rows in columns, and those that cannot be
// priced, stay as they are. Errors as ReadPublishedRuns.
absl::StatusOr<std::string> DescribeInColumns(absl::string_view csv_text, absl::string_view what,
                                              const FileReader& read_file = {});

}  // namespace trainctl::published
