// Which parallel ways each framework has, so that a plan "as" one proposes what it can run. What a recipe
// states is priced whether or not it is in here. Immutable; thread safe.
#pragma once

#include <vector>

#include "absl/strings/string_view.h"
#include "frameworks/workload.h"
#include "schedule/pipeline.h"

namespace trainctl::frameworks {

struct FrameworkWays {
  std::vector<absl::string_view> names;  // of FrameworkProfile
  const char* source = "";
  bool tensor = true;
  bool context = true;
  bool expert = true;
  std::vector<schedule::PipelineKind> schedules;  // empty: no pipeline parallelism
  std::vector<ContextKind> contexts;
  std::vector<int> zero_stages;
};

// Null: nothing is known to be missing, as of our own trainer, whose schedules are all built and checked.
const FrameworkWays* FindWays(absl::string_view framework);

// Whether the workload's framework has all ways that it uses.
bool HasWaysOf(const Workload& workload);

}  // namespace trainctl::frameworks
