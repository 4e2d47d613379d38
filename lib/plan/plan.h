// The plan of a run. It contains the layout and settings of the step with every "auto" resolved, the
// predicted memory and time, and the layouts that the planner compared. The launcher writes the plan to the
// run folder before the run. Each worker rebuilds the step from the plan, and refuses to run a step with a
// different hash. The trainer depends on this module and not on the planner. Pure; thread-safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(plan::Plan plan, plan::PlanFromJson(text, "plan.json"));
//   TRAINCTL_ASSIGN_OR_RETURN(plan::PlannedStep step, plan::RebuildStep(plan, recipe.model.spec));
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/json_fwd.h"
#include "cluster/host.h"
#include "layout/layout.h"
#include "layout/ledger.h"
#include "model/architecture.h"
#include "schedule/build_step.h"
#include "schedule/layout_step.h"
#include "simulate/cost.h"
#include "simulate/memory.h"

namespace trainctl::plan {

inline constexpr char kPlanSchema[] = "trainctl.plan.v1";

// Note that a run prints if Plan::shares_devices is true.
inline constexpr char kSharedDevicesNote[] =
    "workers share devices, as TRAINCTL_TEST_SHARED_DEVICES asks for in tests: the times of this run mean "
    "nothing";

struct Candidate {
  layout::Layout layout;
  simulate::MemoryReport memory;
  double step_seconds = 0;  // estimate; suitable for comparison, and rough unless Plan::rates were measured
  int64_t sent_bytes = 0;   // per worker and step
  bool fits = false;
  bool chosen = false;
  std::string reason;  // why it was rejected or chosen
  bool operator==(const Candidate&) const = default;
};

// Kernel launches and memory traffic of a kind of operator in one step on a device. Does not include the
// traffic of matrix products and attention.
struct PlannedWork {
  int64_t launches = 0;
  int64_t moved_bytes = 0;  // bytes read and written by passes over memory
  bool operator==(const PlannedWork&) const = default;
};

// Statistics of the search for the layout.
struct SearchCounts {
  int64_t strategies = 0;  // combinations of a mesh and a ZeRO stage
  int64_t bounded = 0;     // lower bounds computed for layouts
  int64_t pruned = 0;      // layouts rejected because of their bounds
  int64_t folded = 0;      // layouts estimated from steps with few layers
  int64_t whole = 0;       // layouts estimated from whole steps: pipelines, or all if folding is off
  int64_t tried = 0;       // attempts to find the smallest number of recomputed layers that fits
  bool operator==(const SearchCounts&) const = default;
};

struct Plan {
  layout::Layout layout;
  schedule::StepSetting setting;
  std::string step_hash;  // hash of the step built from `layout` and `setting` (schedule/step_hash.h)
  int64_t nodes = 1;
  int64_t devices_per_node = 1;
  int64_t threads_per_worker = 1;  // CPU threads
  std::string device = "cpu";      // device that workers compute on: "cpu" or recipe::kCudaDevice
  bool shares_devices = false;     // whether several workers may share a device, for tests
  std::string hardware;            // catalogue name of the device; empty for a CPU or an unknown device
  cluster::Host host;              // the machine as detected for this plan
  int64_t num_parameters = 0;
  double flops_per_token = 0;        // FLOPs per token of a training step (model::FlopsPerToken)
  double peak_flops = 0;             // FLOP/s of a worker's device, for the MFU (utilization.h); 0 if unknown
  simulate::Rates rates;             // used to estimate the candidates' times
  int64_t memory_limit_bytes = 0;    // tensor memory per worker
  simulate::MemoryReport predicted;  // peak memory of the chosen layout
  // Work of a rank in the first pipeline stage, by the names in timings.jsonl: for example, "rms norm
  // backward". Empty on a CPU.
  std::map<std::string, PlannedWork> work;
  SearchCounts search;
  // All layouts that the planner simulated, including the chosen one, and those that the recipe rules out.
  // Sorted by the mesh's degrees and the ZeRO stage.
  std::vector<Candidate> candidates;
  std::vector<std::string> notes;  // resolved value of each "auto", and warnings
  bool operator==(const Plan&) const = default;
};

// Returns the candidate that was chosen. The plan must have one.
const Candidate& Chosen(const Plan& plan);

std::string PlanToJson(const Plan& plan);
Json PlanToJsonObject(const Plan& plan);
// Parses the output of PlanToJson. Plans of earlier versions are accepted. Returns BadDataError, with `what`
// and the field, if the text is invalid or its schema version is newer than kPlanSchema.
absl::StatusOr<Plan> PlanFromJson(absl::string_view text, absl::string_view what);

using PlannedStep = schedule::LayoutStep;

// Builds the step of a plan that this process made, and aborts if that is not possible. Use RebuildStep for a
// plan that was read from a file.
PlannedStep BuildStep(const Plan& plan, const model::Architecture& spec);
// Builds the step of a plan that was read from a file, and checks it against plan.step_hash. Returns
// EnvironmentError if the hash is missing or differs, because another build made the plan or because it was
// edited. Returns InternalError if schedule::Check cannot prove that the step is correct. Also returns the
// errors of schedule::BuildLayoutStep.
absl::StatusOr<PlannedStep> RebuildStep(const Plan& plan, const model::Architecture& spec);

}  // namespace trainctl::plan
