// What the report page shows of a run, from its folder. Only reads; needs no lock, so a run that trains can
// be read too.
#pragma once

#include "absl/status/statusor.h"
#include "report/run_page.h"
#include "run/run_folder.h"

namespace trainctl::cli {

// A file that does not exist leaves its fields empty. BadDataError names the line or file that is damaged.
absl::StatusOr<report::LoggedRun> ReadLoggedRun(const run::RunFolder& run);

}  // namespace trainctl::cli
