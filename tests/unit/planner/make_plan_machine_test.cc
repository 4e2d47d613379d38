// How MakePlan takes account of the machines: devices, memory, cores and links.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cluster/catalogue.h"
#include "model/presets.h"
#include "planner/make_plan.h"
#include "tests/unit/planner/make_plan_fixture.h"

namespace trainctl::planner {
namespace {

using plan::Chosen;
using plan::PlanFromJson;
using plan::PlanToJson;
using ::testing::Contains;
using ::testing::HasSubstr;

TEST(Plan, ADeviceIsPlannedWithWhatIsKnownOfIt) {
  recipe::Recipe recipe = SmallRecipe(2);
  recipe.train.precision = "auto";
  recipe.cluster.memory_limit_bytes.reset();
  cluster::Host host = SomeHost();

  // A device given by its name has nine tenths of the memory in the catalogue.
  recipe.cluster.device = "h100-sxm-80gb";
  absl::StatusOr<Plan> plan = MakePlan(recipe, host);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const double bytes = cluster::FindDevice("h100-sxm-80gb")->device->memory_bytes.value;
  EXPECT_EQ(plan->memory_limit_bytes, static_cast<int64_t>(0.9 * bytes));
  EXPECT_EQ(plan->device, "cuda");
  EXPECT_EQ(plan->setting.types.compute, DType::kBF16);
  EXPECT_TRUE(plan::BuildStep(*plan, recipe.model.spec).options.setting.on_device);

  // Nothing of this machine counts for a device that is named: the plan is the same wherever it is made.
  const Plan elsewhere = *plan;
  host.accelerator = "NVIDIA A100-SXM4-40GB";
  host.accelerator_memory_bytes = int64_t{40} << 30;
  host.allowed_cores = 64;
  plan = MakePlan(recipe, host);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->step_hash, elsewhere.step_hash);
  EXPECT_EQ(plan->notes, elsewhere.notes);
  EXPECT_EQ(plan->candidates, elsewhere.candidates);

  // "cuda" is what this machine's driver shows, and without one nothing is known.
  recipe.cluster.device = "cuda";
  EXPECT_EQ(ExitCodeFor(MakePlan(recipe, SomeHost()).status()), ExitCode::kEnvironment);
  plan = MakePlan(recipe, host);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->memory_limit_bytes, static_cast<int64_t>(0.9 * static_cast<double>(int64_t{40} << 30)));
  EXPECT_EQ(plan->hardware, "a100-sxm-40gb");

  // A device that the catalogue does not have gets an order of layouts and no times.
  host.accelerator = "NVIDIA Z9000";
  plan = MakePlan(recipe, host);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->hardware, "");
  EXPECT_THAT(plan->notes, Contains(HasSubstr("NVIDIA Z9000 is not in the catalogue")));
}

TEST(Plan, WhatWasMeasuredOfADeviceIsOfTheOneThatIsHere) {
  recipe::Recipe recipe = SmallRecipe(1);
  recipe.cluster.memory_limit_bytes.reset();
  recipe.cluster.device = "cuda";
  recipe.train.precision = "bf16";
  cluster::Host host = SomeHost();
  host.accelerator = "NVIDIA A100-SXM4-40GB";
  host.accelerator_memory_bytes = int64_t{40} << 30;
  // Half as fast as the catalogue has it, whatever that is.
  const Plan usual = *MakePlan(recipe, host);
  simulate::MachineProfile profile;
  const model::Product product{DType::kBF16, 4096, 4096, 4096, 2};
  simulate::Work work;
  work.products = {{product}};
  profile.devices.push_back({.name = host.accelerator,
                             .bytes_per_second = 0.5 / usual.rates[simulate::Resource::kMovedBytes],
                             .launch_seconds = 2 * usual.rates[simulate::Resource::kOperators],
                             .products = {{product, 2 * usual.rates.Seconds(work)}}});
  const absl::StatusOr<Plan> plan = MakePlan(recipe, host, &profile);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->rates.measured);
  EXPECT_NEAR(plan->rates.scales.products, 2, 1e-9);
  const auto step_seconds = [](const Plan& of) {
    return std::find_if(of.candidates.begin(), of.candidates.end(),
                        [](const Candidate& c) { return c.chosen; })
        ->step_seconds;
  };
  EXPECT_GT(step_seconds(*plan), step_seconds(usual));
  const absl::StatusOr<Plan> read = PlanFromJson(PlanToJson(*plan), "plan.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->rates == plan->rates);

  // The catalogue gives the rates of another device, and of one that the recipe names.
  profile.devices[0].name = "NVIDIA H100 80GB HBM3";
  EXPECT_TRUE(MakePlan(recipe, host, &profile)->rates == usual.rates);
  profile.devices[0].name = host.accelerator;
  recipe.cluster.device = "a100-sxm-40gb";
  EXPECT_FALSE(MakePlan(recipe, host, &profile)->rates.measured);

  // For a device that the catalogue lacks, the profile is the only source.
  recipe.cluster.device = "cuda";
  host.accelerator = profile.devices[0].name = "NVIDIA Z9000";
  const absl::StatusOr<Plan> unknown = MakePlan(recipe, host, &profile);
  ASSERT_TRUE(unknown.ok()) << unknown.status();
  EXPECT_TRUE(unknown->rates.measured);
  EXPECT_GT(unknown->peak_flops, 0);
  EXPECT_THAT(unknown->notes, Contains(HasSubstr("that `trainctl calibrate` measured")));
}

TEST(Plan, OfADeviceTheKernelOfAttentionAndTheWorkspaceAreThoseThatWillRun) {
  recipe::Recipe recipe = SmallRecipe(1);
  recipe.train.precision = "bf16";
  recipe.cluster.memory_limit_bytes.reset();
  recipe.cluster.device = "h100-sxm-80gb";
  recipe.data.packing = "continuous";
  const Plan whole = MustPlan(recipe);
  EXPECT_EQ(whole.setting.workspace_bytes, int64_t{32} << 20);
  const absl::StatusOr<Plan> read = PlanFromJson(PlanToJson(whole), "plan.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->rates == whole.rates);
  EXPECT_EQ(read->setting, whole.setting);
  // Packed documents, or bits that repeat, take the slower kernel; a step takes longer then.
  recipe.run.deterministic = true;
  const Plan ordered = MustPlan(recipe);
  EXPECT_FALSE(ordered.rates == whole.rates);
  EXPECT_GT(plan::Chosen(ordered).step_seconds, plan::Chosen(whole).step_seconds);
  recipe.run.deterministic = false;
  recipe.data.packing = "documents";
  EXPECT_TRUE(MustPlan(recipe).rates == ordered.rates);
  // An older device's library is content with less.
  recipe.cluster.device = "a100-sxm-40gb";
  EXPECT_EQ(MustPlan(recipe).setting.workspace_bytes, 8320 << 10);
}

TEST(Plan, WhatADeviceDoesNotHaveIsNotPlanned) {
  recipe::Recipe recipe = SmallRecipe(2);
  recipe.cluster.device = "v100-sxm2-32gb";
  recipe.cluster.memory_limit_bytes.reset();
  recipe.train.precision = "bf16";
  EXPECT_THAT(MessageOf(MakePlan(recipe, SomeHost())), HasSubstr("v100-sxm2-32gb does not support bf16"));
  recipe.train.precision = "auto";
  const absl::StatusOr<Plan> plan = MakePlan(recipe, SomeHost());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->setting.types.compute, DType::kF32);
  recipe.cluster.memory_limit_bytes = int64_t{500} << 30;
  EXPECT_THAT(MessageOf(MakePlan(recipe, SomeHost())), HasSubstr("is more than the"));
  recipe.cluster.device = "cuda";
  recipe.cluster.node = "dgx-h100";
  EXPECT_THAT(MessageOf(MakePlan(recipe, SomeHost())), HasSubstr("cluster.node: "));
}

TEST(Plan, AMachineThatProgramsAloneFillIsNamedAsThat) {
  recipe::Recipe recipe = SmallRecipe(2);
  recipe.cluster.memory_limit_bytes.reset();
  cluster::Host host = SomeHost();
  host.memory_available_bytes = 1000 * kMiB;  // 425 MiB for each of two, which take 512
  const absl::StatusOr<Plan> plan = MakePlan(recipe, host);
  EXPECT_EQ(ExitCodeFor(plan.status()), ExitCode::kInfeasible);
  EXPECT_THAT(MessageOf(plan),
              HasSubstr("no memory is left for tensors: 850.00 MiB of this machine's 1000.00 MiB"));
  EXPECT_THAT(MessageOf(plan), HasSubstr("fewer workers"));
  EXPECT_THAT(MessageOf(plan), ::testing::Not(HasSubstr("of 0 B")));
  recipe.cluster.devices_per_node = 1;
  EXPECT_TRUE(MakePlan(recipe, host).ok());
}

// More workers on one machine have less memory each, and the advice has to fit into that.
TEST(Plan, AdviceToTakeMoreWorkersCountsTheirSharesOfTheMachine) {
  int num_infeasible = 0;
  for (const char* preset : {"toy-5m", "llama-25m", "llama-120m", "llama-1b"}) {
    for (const int64_t gib : {1, 2, 3, 4, 8, 16, 32}) {
      recipe::Recipe recipe = SmallRecipe(1);
      recipe.model.spec = *model::Preset(preset);
      recipe.cluster.memory_limit_bytes.reset();
      cluster::Host host = SomeHost();
      host.memory_available_bytes = gib * 1024 * kMiB;
      const std::string message = MessageOf(MakePlan(recipe, host));
      const size_t at = message.find("cluster.devices_per_node = ");
      num_infeasible += message.empty() ? 0 : 1;
      if (at == std::string::npos) continue;
      recipe.cluster.devices_per_node = std::stoll(message.substr(at + 27));
      recipe.parallel.zero_stage = 3;
      recipe.parallel.recompute = "full";
      recipe.train.micro_batch = 1;
      const size_t batch = message.find("train.batch_sequences = ");
      if (batch != std::string::npos) recipe.train.batch_sequences = std::stoll(message.substr(batch + 24));
      const absl::StatusOr<Plan> plan = MakePlan(recipe, host);
      EXPECT_TRUE(plan.ok()) << message << "\n" << plan.status();
    }
  }
  EXPECT_GT(num_infeasible, 3);
}

TEST(Plan, SlowLinksBetweenNodesAreSlowerThanFastOnes) {
  const auto seconds = [](int64_t nodes, std::optional<int64_t> bandwidth) {
    recipe::Recipe recipe = SmallRecipe(8);
    recipe.model.spec = *model::Preset("llama3.2-1b");
    recipe.cluster.device = "h100-sxm-80gb";
    recipe.cluster.nodes = nodes;
    recipe.cluster.scale_out_bandwidth = bandwidth;
    recipe.parallel.pp = recipe.parallel.tp = 1;
    recipe.train.batch_sequences = 8 * nodes;
    recipe.train.precision = "bf16";
    recipe.cluster.memory_limit_bytes.reset();
    return Chosen(MustPlan(recipe)).step_seconds;
  };
  EXPECT_LT(seconds(1, std::nullopt), seconds(2, std::nullopt));
  EXPECT_LT(seconds(2, std::nullopt), seconds(2, int64_t{3'000'000'000}));
}

// A device's collectives sum in their own buffers; tokens and a part of the gradient arrive in
// additional memory.
TEST(Plan, ADevicesBuffersAreItsOwn) {
  recipe::Recipe recipe = SmallRecipe(2);
  recipe.cluster.device = "cuda";
  recipe.cluster.memory_limit_bytes = int64_t{1} << 30;
  recipe.parallel.zero_stage = 2;
  recipe.checkpoint.async = true;
  const absl::StatusOr<Plan> plan = MakePlan(recipe, SomeHost());
  ASSERT_TRUE(plan.ok()) << plan.status();
  const plan::PlannedStep step = plan::BuildStep(*plan, recipe.model.spec);
  int64_t largest = 0;
  for (const layout::Bucket& bucket : step.ledger.buckets()) largest = std::max(largest, bucket.padded_numel);
  EXPECT_EQ(step.ProgramOf(0).receive_buffer_bytes, largest / 2 * 4);
  const auto bytes_of = [&](const std::string& name) {
    int64_t bytes = 0;
    for (const schedule::Value& value : step.ProgramOf(0).values)
      bytes += ValueKindName(value.kind) == name ? value.bytes : 0;
    return bytes;
  };
  EXPECT_EQ(bytes_of("checkpoint copy"), 0);  // in the host's memory
  EXPECT_EQ(bytes_of("tokens"), recipe.train.batch_sequences / 2 * recipe.data.seq_len * 13);
}

TEST(Plan, AutomaticPrecisionFollowsTheCpuAndSaysSo) {
  recipe::Recipe recipe = SmallRecipe(2);
  recipe.train.precision = "auto";
  cluster::Host host = SomeHost();
  absl::StatusOr<Plan> plan = MakePlan(recipe, host);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->setting.types.compute, DType::kF32);
  EXPECT_THAT(plan->notes, Contains(HasSubstr("train.precision = auto: fp32")));
  host.native_bf16 = true;
  plan = MakePlan(recipe, host);
  EXPECT_EQ(plan->setting.types.compute, DType::kBF16);
  EXPECT_THAT(plan->notes, Contains(HasSubstr("train.precision = auto: bf16")));
}

TEST(Plan, ThreadsAndMemoryAreTheMachinesShare) {
  recipe::Recipe recipe = SmallRecipe(2);
  recipe.cluster.memory_limit_bytes.reset();
  const Plan plan = MustPlan(recipe);
  EXPECT_EQ(plan.threads_per_worker, 2);
  // Two workers of a machine with 16 GiB: each less than half of it, more than a third.
  EXPECT_LT(plan.memory_limit_bytes, 8192 * kMiB);
  EXPECT_GT(plan.memory_limit_bytes, 16384 * kMiB / 3);
  recipe.cluster.threads_per_worker = 3;
  EXPECT_EQ(MustPlan(recipe).threads_per_worker, 3);
  recipe.cluster.threads_per_worker.reset();
  recipe.cluster.devices_per_node = 8;
  EXPECT_EQ(MustPlan(recipe).threads_per_worker, 1);
  EXPECT_THAT(MustPlan(recipe).notes, Contains(HasSubstr("8 workers share 4 cores")));
}

// A worker shares its machine with the workers of that machine, not with those of all of them.
TEST(Plan, EachMachineHasMemoryAndCoresOfItsOwn) {
  recipe::Recipe one = SmallRecipe(2);
  one.cluster.memory_limit_bytes.reset();
  recipe::Recipe three = one;
  three.cluster.nodes = 3;
  const Plan plan = MustPlan(three);
  EXPECT_EQ(plan.layout.mesh.world_size(), 6);
  EXPECT_EQ(plan.memory_limit_bytes, MustPlan(one).memory_limit_bytes);
  EXPECT_EQ(plan.threads_per_worker, MustPlan(one).threads_per_worker);
  EXPECT_EQ(plan.rates, MustPlan(one).rates);
  EXPECT_THAT(plan.notes, Contains(HasSubstr("2 workers on each machine")));
  EXPECT_THAT(plan.notes, Contains(HasSubstr("the network between them is not measured")));
  EXPECT_THAT(MustPlan(one).notes, ::testing::Not(Contains(HasSubstr("not measured"))));
  ExpectSound(plan, three);
}

// More machines bring their own memory, so the memory that a worker may use does not depend on their number.
TEST(Plan, AdviceToTakeMoreMachinesCountsTheirMemory) {
  recipe::Recipe recipe = SmallRecipe(2);
  recipe.model.spec = *model::Preset("llama-1b");
  recipe.cluster.nodes = 2;
  recipe.cluster.memory_limit_bytes.reset();
  cluster::Host host = SomeHost();
  host.memory_available_bytes = int64_t{7} * 1024 * kMiB;
  const std::string message = MessageOf(MakePlan(recipe, host));
  const size_t at = message.find("cluster.nodes = ");
  ASSERT_NE(at, std::string::npos) << message;
  recipe.cluster.nodes = std::stoll(message.substr(at + 16));
  const size_t batch = message.find("train.batch_sequences = ");
  if (batch != std::string::npos) recipe.train.batch_sequences = std::stoll(message.substr(batch + 24));
  const absl::StatusOr<Plan> plan = MakePlan(recipe, host);
  EXPECT_TRUE(plan.ok()) << message << "\n" << plan.status();
}

}  // namespace
}  // namespace trainctl::planner
