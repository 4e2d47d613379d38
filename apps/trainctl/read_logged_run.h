// Reads what the report page shows about a run from its folder. It takes no lock, so the run may still be
// training.
#pragma once

#include "absl/status/statusor.h"
#include "report/run_page.h"
#include "run/run_folder.h"

namespace trainctl::cli {

// A file that does not exist leaves its fields empty. BadDataError names the line or file that is damaged.
absl::StatusOr<report::LoggedRun> ReadLoggedRun(const run::RunFolder& run);

}  // namespace trainctl::cli
