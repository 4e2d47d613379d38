// What a page shows of a priced job before anybody adds to it. Pure; thread safe.
#pragma once

#include <vector>

#include "absl/strings/string_view.h"
#include "frameworks/workload.h"
#include "report/page.h"

namespace trainctl::frameworks {

// All that follows from the workload itself: pareto and notes are the caller's. Of long steps as much is
// drawn as a page can hold. `workload` is valid (Validate); 0: the device's own memory is the limit.
report::PageInput PageOf(const Workload& workload, absl::string_view model_name,
                         double memory_limit_bytes = 0);

// The device's and its links' constants with their sources; those that do not exist are left out.
std::vector<report::PageConstant> ConstantsOf(const Workload& workload);

}  // namespace trainctl::frameworks
