// Which parallel ways each framework has, so that a plan "as" one proposes what it can run. What a recipe
// states is priced whether or not it is in here. Immutable; thread safe.
#pragma once

#include <cstdint>
#include <string>
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
  // Tensor parallelism over more ranks than there are heads of keys and values gives each rank a copy.
  bool copies_kv_heads = true;
  bool pads_vocab = true;  // to a multiple of tp
};

// Null: nothing is known to be missing, as of our own trainer, whose schedules are all built and checked.
const FrameworkWays* FindWays(absl::string_view framework);

// Why the framework cannot cut `model` over `tp` ranks: "tp 4 does not divide the 2 key-value heads,
// which torchtitan requires"; empty if it can.
std::string TensorObstacle(absl::string_view framework, const model::Architecture& model, int64_t tp);

// Whether the workload's framework has all ways that it uses.
bool HasWaysOf(const Workload& workload);

}  // namespace trainctl::frameworks
