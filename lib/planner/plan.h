// The plan: a recipe with every "auto" resolved, the memory it will need, and the layouts that were
// weighed. Written to the run folder before the run; the workers run what it says. No LibTorch.
//
//   TRAINCTL_ASSIGN_OR_RETURN(planner::Plan plan, planner::MakePlan(recipe, host));
//   planner::PlannedStep step = planner::PlannedSchedule(plan, recipe.model.spec);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/dtype.h"
#include "cluster/host.h"
#include "model/model_spec.h"
#include "planner/cost.h"
#include "planner/machine.h"
#include "planner/memory.h"
#include "recipe/load.h"
#include "recipe/recipe.h"
#include "schedule/schedule.h"
#include "sharding/ledger.h"

namespace trainctl::planner {

inline constexpr char kPlanSchema[] = "trainctl.plan.v1";

// One way to lay out a step.
struct Layout {
  sharding::Mesh mesh;
  int zero_stage = 0;
  int64_t micro_batch = 1;        // sequences per worker at a time
  int64_t num_micro_batches = 1;  // accumulation: batch / (micro_batch * data degree)
  schedule::Recompute recompute = schedule::Recompute::kNone;
  std::string ToString() const;  // "ZeRO-3 dp_shard=2 micro_batch=4 recompute=full"
  bool operator==(const Layout&) const = default;
};

struct Candidate {
  Layout layout;
  MemoryReport memory;
  double step_seconds = 0;  // good for comparing; for more where plan.rates were measured
  int64_t sent_bytes = 0;   // per worker and step
  bool fits = false;
  bool chosen = false;
  std::string reason;  // why it was turned down, or why it was taken
  bool operator==(const Candidate&) const = default;
};

struct Plan {
  Layout layout;
  int64_t seq_len = 0;
  DType compute_dtype = DType::kF32;
  bool prefetch = true;
  bool checkpoint_copy = false;  // checkpoints are written from a copy, beside training
  int64_t threads_per_worker = 1;
  std::string device = "cpu";  // or recipe::kCudaDevice: what workers compute on
  int64_t num_parameters = 0;
  double flops_per_token = 0;
  double peak_flops = 0;              // of a worker's device, for the MFU (utilization.h); 0: unknown
  Rates rates;                        // that the candidates' times are made of
  int64_t memory_limit_bytes = 0;     // tensor memory per worker
  MemoryReport predicted;             // of the chosen layout
  std::vector<Candidate> candidates;  // in the order of strategies; the chosen one among them
  std::vector<std::string> notes;     // what each "auto" became, and warnings
  bool operator==(const Plan&) const = default;
};

// Weighs every layout that the recipe allows. `host` is the machine that the workers will run on (all
// nodes are taken to be alike), `measured` its profile; null: times are orders of magnitude. UsageError:
// degrees that do not multiply to the number of workers, a batch that does not divide, a device or precision
// that is not there. InfeasibleError: nothing fits; says what each category needs and the nearest recipe that
// would. InternalError: the chosen schedule is not proven correct (schedule::Check), which is our mistake.
absl::StatusOr<Plan> MakePlan(const recipe::Recipe& recipe, const cluster::Host& host,
                              const MachineProfile* measured = nullptr);
// The same with what was measured of `host`, if anything was (machine.h).
absl::StatusOr<Plan> MakePlanFor(const recipe::Recipe& recipe, const cluster::Host& host);

// The recipe with every layout choice fixed as the plan has it, as TOML.
std::string FixedRecipe(const recipe::LoadedRecipe& loaded, const Plan& plan);

// What the workers run: the one place where a plan becomes a schedule.
struct PlannedStep {
  schedule::BuildOptions options;
  sharding::Ledger ledger;
  schedule::Schedule schedule;
};
PlannedStep PlannedSchedule(const Plan& plan, const model::ModelSpec& spec);

// What the plan says of the chosen layout's step.
const Candidate& Chosen(const Plan& plan);

std::string PlanToJson(const Plan& plan);
// BadDataError naming `what` and the field; a newer schema version is refused with a clear word.
absl::StatusOr<Plan> PlanFromJson(absl::string_view text, absl::string_view what);

absl::string_view RecomputeName(schedule::Recompute recompute);  // "none", "full": as in recipes
absl::string_view StrategyName(int zero_stage);                  // "DDP", "ZeRO-1", ...

}  // namespace trainctl::planner
