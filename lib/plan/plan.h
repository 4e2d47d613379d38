// The plan: a recipe with every "auto" resolved, the step that follows from it, what that step will need, and
// the layouts that were weighed. It is written to the run folder before the run; each worker rebuilds the
// step from it and refuses to run another one. All that the trainer sees of planning is here. Pure; thread
// safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(plan::Plan plan, plan::PlanFromJson(text, "plan.json"));
//   TRAINCTL_ASSIGN_OR_RETURN(plan::PlannedStep step, plan::RebuildStep(plan, recipe.model.spec));
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cluster/host.h"
#include "layout/layout.h"
#include "layout/ledger.h"
#include "model/model_spec.h"
#include "schedule/build_step.h"
#include "schedule/layout_step.h"
#include "simulate/cost.h"
#include "simulate/memory.h"

namespace trainctl::plan {

inline constexpr char kPlanSchema[] = "trainctl.plan.v1";

// The note that a run prints if its plan has `shares_devices`.
inline constexpr char kSharedDevicesNote[] =
    "workers share devices, as TRAINCTL_TEST_SHARED_DEVICES asks for in tests: the times of this run mean "
    "nothing";

struct Candidate {
  layout::Layout layout;
  simulate::MemoryReport memory;
  double step_seconds = 0;  // good for comparing; for more where plan.rates were measured
  int64_t sent_bytes = 0;   // per worker and step
  bool fits = false;
  bool chosen = false;
  std::string reason;  // why it was turned down, or why it was taken
  bool operator==(const Candidate&) const = default;
};

// What a step asks of a device, products and attention themselves left out.
struct PlannedWork {
  int64_t launches = 0;
  int64_t moved_bytes = 0;  // by passes over memory
  bool operator==(const PlannedWork&) const = default;
};

// What the search for the layout had to do.
struct SearchCounts {
  int64_t strategies = 0;  // meshes with a ZeRO stage
  int64_t bounded = 0;     // layouts
  int64_t pruned = 0;
  int64_t folded = 0;  // layouts estimated from steps with few layers
  int64_t whole = 0;   // layouts estimated from whole steps: pipelines, and all if folding is off
  int64_t tried = 0;   // numbers of recomputed layers, to find the least that fit
  bool operator==(const SearchCounts&) const = default;
};

struct Plan {
  layout::Layout layout;
  schedule::StepSetting setting;
  std::string step_hash;  // of the step that `layout` and `setting` make (schedule/step_hash.h)
  int64_t nodes = 1;
  int64_t devices_per_node = 1;
  int64_t threads_per_worker = 1;  // of the host
  std::string device = "cpu";      // or recipe::kCudaDevice: what workers compute on
  bool shares_devices = false;     // several workers may compute on one device: for tests
  std::string hardware;  // what the times are of: a name of the catalogue; empty: the CPU, or unknown
  cluster::Host host;    // the machine as it was read, once, for this plan
  int64_t num_parameters = 0;
  double flops_per_token = 0;
  double peak_flops = 0;             // of a worker's device, for the MFU (utilization.h); 0: unknown
  simulate::Rates rates;             // that the candidates' times are made of
  int64_t memory_limit_bytes = 0;    // tensor memory per worker
  simulate::MemoryReport predicted;  // of the chosen layout
  // On a device, of the first stage and by the names of timings.jsonl: "rms norm backward".
  std::map<std::string, PlannedWork> work;
  SearchCounts search;
  std::vector<Candidate> candidates;  // in the order of strategies; the chosen one among them
  std::vector<std::string> notes;     // what each "auto" became, and warnings
  bool operator==(const Plan&) const = default;
};

// What the plan says of the chosen layout's step.
const Candidate& Chosen(const Plan& plan);

std::string PlanToJson(const Plan& plan);
nlohmann::ordered_json PlanToJsonObject(const Plan& plan);
// BadDataError naming `what` and the field; a newer schema version is refused with a clear word.
absl::StatusOr<Plan> PlanFromJson(absl::string_view text, absl::string_view what);

using PlannedStep = schedule::LayoutStep;

// The one place where a plan becomes a step. Of a plan that was made; one that was read is rebuilt.
PlannedStep BuildStep(const Plan& plan, const model::ModelSpec& spec);
// The same, held against plan.step_hash. EnvironmentError: this build makes another step than the one that
// planned; InternalError: the step is not proven correct (schedule::Check).
absl::StatusOr<PlannedStep> RebuildStep(const Plan& plan, const model::ModelSpec& spec);

}  // namespace trainctl::plan
