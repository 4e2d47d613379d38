// Workers rebuild the step that MakePlan has planned, and refuse any other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "planner/make_plan.h"
#include "tests/unit/planner/make_plan_fixture.h"

namespace trainctl::planner {
namespace {

using plan::Chosen;
using plan::PlanFromJson;
using plan::PlanToJson;
using ::testing::Contains;
using ::testing::HasSubstr;

// What is frozen plans to the same step on a machine with another amount of free memory and of cores.
TEST(Plan, AFrozenRecipePlansToTheSameStepOnAnotherDay) {
  for (const char* device : {"cpu", "cuda", "h100-sxm-80gb"}) {
    recipe::Recipe recipe = SmallRecipe(4);
    recipe.train.precision = "auto";
    recipe.cluster.memory_limit_bytes.reset();
    recipe.cluster.device = device;
    cluster::Host host = SomeHost();
    host.memory_available_bytes = 2600 * kMiB;
    host.accelerator = "NVIDIA A100-SXM4-40GB";
    host.accelerator_memory_bytes = int64_t{40} << 30;
    const absl::StatusOr<Plan> plan = MakePlan(recipe, host);
    ASSERT_TRUE(plan.ok()) << plan.status();
    host.memory_available_bytes = 64 * 1024 * kMiB;
    host.allowed_cores = 32;
    host.native_bf16 = true;
    const absl::StatusOr<Plan> again = MakePlan(Frozen(recipe, *plan), host);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->layout, plan->layout);
    EXPECT_EQ(again->step_hash, plan->step_hash);
    EXPECT_EQ(again->memory_limit_bytes, plan->memory_limit_bytes);
  }
}

TEST(Plan, AWorkerRefusesAnotherStepThanThePlans) {
  const recipe::Recipe recipe = SmallRecipe(2);
  Plan plan = MustPlan(recipe);
  EXPECT_TRUE(plan::RebuildStep(plan, recipe.model.spec).ok());
  plan.layout.num_micro_batches *= 2;  // as if a builder of another version had made it
  const absl::Status status = plan::RebuildStep(plan, recipe.model.spec).status();
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kEnvironment);
  EXPECT_THAT(std::string(status.message()), HasSubstr(plan.step_hash));
}

TEST(Plan, APipelineIsPlannedAsItIsRebuilt) {
  recipe::Recipe recipe = SmallRecipe(4);
  recipe.train.batch_sequences = 32;
  recipe.train.micro_batch = 2;
  recipe.parallel.pp = 2;
  recipe.parallel.zero_stage = 3;
  recipe.parallel.schedule = "zb-h1";
  const absl::StatusOr<Plan> plan = MakePlan(recipe, SomeHost());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->layout.mesh.pp, 2);
  EXPECT_EQ(plan->layout.mesh.dp_shard, 2);
  EXPECT_EQ(plan->layout.num_micro_batches, 8) << "32 sequences, of two pipelines, two at a time";
  const absl::StatusOr<Plan> read = plan::PlanFromJson(plan::PlanToJson(*plan), "plan.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->layout, plan->layout);
  const absl::StatusOr<plan::PlannedStep> rebuilt = plan::RebuildStep(*read, recipe.model.spec);
  ASSERT_TRUE(rebuilt.ok()) << rebuilt.status();
  ASSERT_EQ(rebuilt->step.programs.size(), 2u);
  int64_t most = 0;
  for (const schedule::Program& program : rebuilt->step.programs)
    most = std::max(most, simulate::SimulateMemory(program).peak_bytes);
  EXPECT_EQ(plan->predicted.peak_bytes, most) << "of the stage that needs most";
  EXPECT_LE(plan->predicted.peak_bytes, plan::Chosen(*plan).memory.peak_bytes);
}

TEST(Plan, StatedRecomputedLayersAreHonoured) {
  recipe::Recipe recipe = SmallRecipe(2);
  recipe.parallel.pp = 2;
  recipe.parallel.stage_layers = {5, 1};
  recipe.train.micro_batch = 1;
  const auto peak_of = [&](const char* recompute, std::optional<std::vector<int64_t>> layers) {
    recipe.parallel.recompute = recompute;
    recipe.parallel.recomputed_layers = std::move(layers);
    return MustPlan(recipe).predicted.peak_bytes;
  };
  const int64_t none = peak_of("none", {}), all = peak_of("full", {});
  const int64_t one = peak_of("full", {{1, 0}}), two = peak_of("full", {{2, 0}});
  EXPECT_GT(none, one);
  EXPECT_GT(one, two);
  EXPECT_GE(two, all);
  const Plan plan = MustPlan(recipe);
  EXPECT_EQ(plan.layout.recomputed_layers, (std::vector<int64_t>{2, 0}));
  const absl::StatusOr<Plan> read = PlanFromJson(PlanToJson(plan), "plan.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, plan);
  EXPECT_TRUE(plan::RebuildStep(*read, recipe.model.spec).ok());
  EXPECT_EQ(MustPlan(Frozen(recipe, plan)).step_hash, plan.step_hash) << "what plan --write writes";

  // A single number applies to both stages, and to all layers of a stage with fewer. It also implies full
  // recompute of these layers.
  recipe.parallel.recompute.reset();
  recipe.parallel.recomputed_layers = {{2}};
  EXPECT_EQ(MustPlan(recipe).layout.recompute, Recompute::kFull);
  EXPECT_EQ(MustPlan(recipe).layout.recomputed_layers, (std::vector<int64_t>{2, 1}));
  // A number that covers all layers gives the same layout and step as no number.
  const std::string hash = (recipe.parallel.recomputed_layers = {{6}}, MustPlan(recipe).step_hash);
  EXPECT_TRUE(MustPlan(recipe).layout.recomputed_layers.empty());
  peak_of("full", {});
  EXPECT_EQ(MustPlan(recipe).step_hash, hash);
}

TEST(Plan, TensorParallelismIsPlannedAsItIsRebuilt) {
  recipe::Recipe recipe = SmallRecipe(4);
  recipe.parallel.tp = 2;
  recipe.parallel.zero_stage = 3;
  Plan plan = MustPlan(recipe);
  EXPECT_EQ(plan.layout.mesh.ToString(), "dp_shard=2 tp=2");
  EXPECT_TRUE(plan.layout.sequence_parallel);
  EXPECT_THAT(plan.notes, Contains(HasSubstr("parallel.sequence_parallel = auto: true")));
  const int64_t with_parts = plan.predicted.peak_bytes;
  const std::string hash = plan.step_hash;
  recipe.parallel.sequence_parallel = false;
  recipe.train.micro_batch = plan.layout.micro_batch;
  plan = MustPlan(recipe);
  EXPECT_GT(plan.predicted.peak_bytes, with_parts) << "norms and residuals of all tokens";
  EXPECT_NE(plan.step_hash, hash);
  const absl::StatusOr<Plan> read = plan::PlanFromJson(plan::PlanToJson(plan), "plan.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->layout, plan.layout);
  EXPECT_TRUE(plan::RebuildStep(*read, recipe.model.spec).ok());
}

// States only the fields that a recipe requires; the data is not read.
constexpr char kOpen[] = R"(recipe_version = 1
[model]
preset = "toy-5m"
[data]
seq_len = 256
packing = "continuous"
[[data.train]]
files = ["text.txt"]
[train]
steps = 10
batch_sequences = 24
precision = "auto"
[cluster]
)";

TEST(Plan, ARecipeWithEverythingFixedPlansToTheSame) {
  recipe::Access access = recipe::RealAccess();
  access.expand_glob = [](const std::string& pattern) -> absl::StatusOr<std::vector<std::string>> {
    return std::vector<std::string>{pattern};
  };
  access.read_file = [](const std::string&) { return "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"; };
  const auto load = [&](const std::string& text) {
    return recipe::LoadRecipeText(text, "r.toml", {}, access);
  };
  for (const char* cluster : {"devices_per_node = 2\n", "devices_per_node = 4\nmemory_limit = \"180MiB\"\n",
                              "devices_per_node = 2\n[parallel]\npp = 2\nschedule_file = \"order.csv\"\n"}) {
    const absl::StatusOr<recipe::LoadedRecipe> loaded = load(absl::StrCat(kOpen, cluster));
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const Plan plan = MustPlan(loaded->recipe);
    const std::string text = FixedRecipe(*loaded, plan);
    const absl::StatusOr<recipe::LoadedRecipe> fixed = load(text);
    ASSERT_TRUE(fixed.ok()) << fixed.status() << "\n" << text;
    const Plan again = MustPlan(fixed->recipe);
    EXPECT_EQ(again.layout, plan.layout) << text;
    EXPECT_EQ(again.predicted, plan.predicted) << text;
    EXPECT_EQ(again.setting.types.compute, plan.setting.types.compute) << text;
    EXPECT_EQ(again.threads_per_worker, plan.threads_per_worker) << text;
    EXPECT_EQ(Chosen(again).reason, "what the recipe asks for") << text;
  }
}

}  // namespace
}  // namespace trainctl::planner
