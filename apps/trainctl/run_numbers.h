// The final numbers in a run's logs, for scripts.
#pragma once

#include "base/json_fwd.h"
#include "run/run_folder.h"

namespace trainctl::cli {

// "step", "loss", "eval" (the last loss of each evaluation set), "tokens_per_second" of the last step, and
// "peak_bytes" (tensors of the worker that had most). null if the logs lack it or cannot be read.
Json NumbersOf(const run::RunFolder& run);

}  // namespace trainctl::cli
