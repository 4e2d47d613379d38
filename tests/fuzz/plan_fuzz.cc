// Fuzzes recipes for planning: what loads gets a plan or one clear error, and what a plan fixes plans to the
// same layout again. Large searches are left out: they would only make the fuzzing slow.

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "frameworks/cluster_plan.h"
#include "planner/make_plan.h"
#include "recipe/load.h"
#include "recipe/machine.h"

namespace trainctl::frameworks {
namespace {

constexpr int64_t kMostDevices = 64;
constexpr int64_t kMostLayers = 64;
constexpr int64_t kMostSequences = 64;  // of a worker and step
// What a search is cut to where the recipe leaves it free.
constexpr int64_t kLayers = 6;
constexpr int64_t kSequences = 8;  // of a worker and step

recipe::Access NoFiles() {
  recipe::Access access;
  access.working_dir = "/cwd";
  access.environment = [](const std::string&) { return std::optional<std::string>(); };
  access.read_file = [](const std::string& path) -> absl::StatusOr<std::string> {
    return UsageError("there is no file " + path);
  };
  access.expand_glob = [](const std::string& pattern) -> absl::StatusOr<std::vector<std::string>> {
    return std::vector<std::string>{pattern};
  };
  access.is_folder = [](const std::string&) { return false; };
  return access;
}

// The same choices with fewer layers: a search of 16 takes 10 s when each comparison is instrumented.
void CutLayers(recipe::Recipe& recipe) {
  const recipe::ParallelConfig& parallel = recipe.parallel;
  if (!parallel.passes.empty() || parallel.stage_layers.has_value() ||
      parallel.recomputed_layers.has_value()) {
    return;
  }
  model::Architecture& spec = recipe.model.spec;
  const int64_t dense_layers = FindExperts(spec) != nullptr ? NumDenseLayers(spec) : 0;
  SetNumLayers(spec, std::min(NumLayers(spec), dense_layers + kLayers));
}

void CutSequences(recipe::Recipe& recipe) {
  const int64_t most = recipe.cluster.nodes * recipe.cluster.devices_per_node * kSequences;
  int64_t& sequences = recipe.train.batch_sequences;
  if (!recipe.train.micro_batch.has_value() && sequences % most == 0) sequences = most;
}

absl::StatusOr<recipe::LoadedRecipe> Load(const std::string& text) {
  return recipe::LoadRecipeText(text, "fuzz.toml", {}, NoFiles(), recipe::Purpose::kWhatIf);
}

bool IsSmall(const recipe::LoadedRecipe& loaded) {
  const absl::StatusOr<std::shared_ptr<const cluster::Machine>> machine =
      recipe::MachineOf(loaded.recipe.cluster);
  return !machine.ok() ||
         (NumLayers(loaded.recipe.model.spec) <= kMostLayers && (*machine)->num_gpus() <= kMostDevices);
}

// A plan of our own trainer has a step that is proven, and what is frozen plans to that step.
void FuzzOurs(recipe::Recipe recipe) {
  CutSequences(recipe);
  const int64_t share =
      recipe.train.batch_sequences / (recipe.cluster.nodes * recipe.cluster.devices_per_node);
  if (NumLayers(recipe.model.spec) > kMostLayers || share > kMostSequences) return;
  cluster::Host host;
  host.memory_available_bytes = int64_t{64} << 30;
  const absl::StatusOr<plan::Plan> plan = planner::MakePlan(recipe, host);
  if (!plan.ok()) {
    const ExitCode code = ExitCodeFor(plan.status());
    TRAINCTL_CHECK_MSG(
        code == ExitCode::kUsage || code == ExitCode::kInfeasible || code == ExitCode::kEnvironment,
        plan.status().ToString());
    return;
  }
  const absl::StatusOr<plan::Plan> again = planner::MakePlan(planner::Frozen(recipe, *plan), host);
  TRAINCTL_CHECK_MSG(again.ok(), again.status().ToString());
  TRAINCTL_CHECK_MSG(again->step_hash == plan->step_hash, plan->layout.ToString());
}

void FuzzOne(const std::string& input) {
  absl::StatusOr<recipe::LoadedRecipe> loaded = Load(input);
  if (!loaded.ok()) {
    TRAINCTL_CHECK(ExitCodeFor(loaded.status()) == ExitCode::kUsage && !loaded.status().message().empty());
    return;
  }
  CutLayers(loaded->recipe);
  if (loaded->purpose == recipe::Purpose::kPlan) return FuzzOurs(loaded->recipe);
  if (!IsSmall(*loaded)) return;
  ClusterPlanOptions options;
  options.keep = 1;
  const absl::StatusOr<ClusterPlan> plan = MakeClusterPlan(*loaded, options);
  if (!plan.ok()) {
    const ExitCode code = ExitCodeFor(plan.status());
    TRAINCTL_CHECK_MSG(code == ExitCode::kUsage || code == ExitCode::kInfeasible, plan.status().ToString());
    TRAINCTL_CHECK(!plan.status().message().empty());
    return;
  }
  TRAINCTL_CHECK(plan->chosen.fits && plan->chosen.time.step_seconds > 0);
  const std::string fixed = FixedRecipe(*loaded, *plan, plan->chosen);
  absl::StatusOr<recipe::LoadedRecipe> reloaded = Load(fixed);
  TRAINCTL_CHECK_MSG(reloaded.ok(), reloaded.status().ToString(), "\n", fixed);
  SetNumLayers(reloaded->recipe.model.spec, NumLayers(loaded->recipe.model.spec));
  const absl::StatusOr<ClusterPlan> again = MakeClusterPlan(*reloaded, options);
  TRAINCTL_CHECK_MSG(again.ok(), again.status().ToString(), "\n", fixed);
  TRAINCTL_CHECK_MSG(DescribeLayout(again->chosen.workload) == DescribeLayout(plan->chosen.workload), fixed);
}

}  // namespace
}  // namespace trainctl::frameworks

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  trainctl::frameworks::FuzzOne(std::string(reinterpret_cast<const char*>(data), size_bytes));
  return 0;
}
