// SIGINT and SIGTERM as a flag, once: work that looks at it ends in good order. The second signal ends the
// process as it does everywhere.
#pragma once

#include <atomic>

namespace trainctl::cli {

// The flag, from now on set by the signals. For the whole process.
const std::atomic<bool>& StopOnSignals();

}  // namespace trainctl::cli
