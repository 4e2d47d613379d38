// A what-if: the plan of another trainer's run on accelerators. What a recipe leaves open is searched
// (explore.h) over the prices, for any model that a config.json describes, any device of the
// catalogue and any framework that has a profile. Our own runs are planned elsewhere, from the step that they
// execute (planner/make_plan.h). Pure; thread safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(auto loaded, recipe::LoadRecipe(path, sets, access, recipe::Purpose::kWhatIf));
//   if (loaded.purpose == recipe::Purpose::kWhatIf) {
//     TRAINCTL_ASSIGN_OR_RETURN(ClusterPlan plan, MakeClusterPlan(loaded));
//     Use(plan.chosen.workload);
//   }
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "frameworks/cluster_inputs.h"
#include "frameworks/explore.h"
#include "frameworks/hardware_profile.h"
#include "recipe/load.h"
#include "recipe/machine.h"

namespace trainctl::frameworks {

inline constexpr char kClusterPlanSchema[] = "trainctl.cluster-plan.v1";

struct ClusterPlan {
  std::string run_name;
  PlannedModel model;
  std::shared_ptr<const cluster::Machine> machine;  // the workloads point into it
  // With a profile of `trainctl calibrate`: the machine as they point into it instead.
  std::shared_ptr<const TunedMachine> tuned;
  SearchSpace space;
  Goal goal;
  double memory_limit_bytes = 0;  // per device
  int64_t run_tokens = 0;         // 0: the recipe has no length
  Choice chosen;
  std::vector<Choice> alternatives;  // the next best
  std::vector<Choice> pareto;        // fastest first; empty unless asked for
  SearchCounts counts;
  std::vector<std::string> notes;
};

struct ClusterPlanOptions {
  int keep = 5;  // the chosen one and its alternatives
  bool pareto = false;
  std::optional<HardwareProfile> profile;  // rates fitted to a user's own runs
};

// UsageError: unknown names (with the nearest), degrees that contradict each other or the model, a batch
// that nothing divides. InfeasibleError: nothing fits, or nothing meets the deadline; says by how much and
// the nearest change that helps.
absl::StatusOr<ClusterPlan> MakeClusterPlan(const recipe::LoadedRecipe& loaded,
                                            const ClusterPlanOptions& options = {});

// What follows from a choice.
struct Figures {
  double tokens_per_second_per_gpu = 0;
  double model_flops_per_token = 0;  // forward and backward, matrix products, causal attention at half
  double mfu = 0;                    // of the device's data sheet at the precision that is computed in
  double bubble_share = 0;           // of the step: pipeline fill, drain and exposed transfers
  double gpu_hours_per_billion_tokens = 0;
  double dollars_per_billion_tokens = 0;  // 0 without a price
  double run_seconds = 0;                 // 0 without a length
  double run_dollars = 0;
  double effective_share = 1;     // of the time, under failures
  double save_every_seconds = 0;  // with failures: as the recipe says, or best
};
Figures FiguresOf(const ClusterPlan& plan, const Choice& choice);

// "tp 8, pp 16 (interleaved-1f1b, 2 stages a rank), dp 128 (ZeRO-1 over 64), micro-batch 1, recompute full".
std::string DescribeLayout(const Workload& workload);

absl::string_view RecomputeName(RecomputeKind kind);
absl::string_view ContextName(ContextKind kind);
absl::string_view PrecisionName(Precision precision);

// Terms of the prices with their names, in the order in which they are shown.
using TimeTerm = std::pair<const char*, double TimePrice::*>;
inline constexpr int kNumTimeTerms = 9;
const std::array<TimeTerm, kNumTimeTerms>& TimeTerms();
absl::string_view MemoryPartName(MemoryPart part);

// The recipe with everything fixed as `choice` has it: TOML that plans to the same choice.
std::string FixedRecipe(const recipe::LoadedRecipe& loaded, const ClusterPlan& plan, const Choice& choice);

}  // namespace trainctl::frameworks
