// The builders' steps are proven correct, and an oracle that executes them in many interleavings finds that
// all layouts compute the same. Spoiled ones: step_mutants_test.cc.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <map>
#include <set>

#include "base/status.h"
#include "tests/unit/schedule/step_machine.h"
#include "tests/unit/schedule/step_testing.h"

namespace trainctl::schedule {
namespace {

using ::testing::HasSubstr;

std::vector<Case> DataParallelGrid(const std::vector<layout::Mesh>& meshes,
                                   const std::vector<int>& layer_counts) {
  std::vector<Case> cases;
  for (const layout::Mesh& mesh : meshes) {
    for (int stage = 0; stage <= 3; ++stage) {
      if ((stage == 0) != (mesh.dp_shard == 1)) continue;
      for (bool tied : {false, true}) {
        for (int num_micro_batches : {1, 2, 4}) {
          for (layout::Recompute recompute : {layout::Recompute::kNone, layout::Recompute::kFull}) {
            for (bool prefetch : {false, true}) {
              for (int layers : layer_counts) {
                cases.push_back({stage, mesh, tied, num_micro_batches, recompute, prefetch, layers, {}, 1});
                if (recompute != layout::Recompute::kFull || layers == 1 || num_micro_batches == 4) continue;
                cases.push_back(cases.back());
                cases.back().recomputed_layers = {1 + layers / 3};
              }
            }
          }
        }
      }
    }
  }
  return cases;
}

// Every order with every ZeRO stage and recompute, as far as its shape allows.
std::vector<Case> PipelineGrid(const std::vector<int>& ranks, const std::vector<int>& micro_batches) {
  std::vector<Case> cases;
  for (PipelineKind kind : AllKinds()) {
    for (int p : ranks) {
      for (int m : micro_batches) {
        const int v = LimitsOf(kind).min_virtual_stages;
        if (!CheckPipelineShape(kind, {p, m, v}).ok()) continue;
        for (int stage = 0; stage <= 3; ++stage) {
          for (bool tied : {false, true}) {
            for (layout::Recompute recompute : {layout::Recompute::kNone, layout::Recompute::kFull}) {
              layout::Mesh mesh;
              mesh.pp = p;
              (stage == 0 ? mesh.dp_replicate : mesh.dp_shard) = 2;
              mesh.tp = stage % 2 == 1 ? 2 : 1;
              cases.push_back({stage, mesh, tied, m, recompute, true, 2 * p * v - 1, kind, v});
            }
            // Every other stage recomputes its first layer alone, which is its only one at the ends.
            if (tied) continue;
            cases.push_back(cases.back());
            for (int s = 0; s < p * v; ++s) cases.back().recomputed_layers.push_back((s + m) % 2);
          }
        }
      }
    }
  }
  return cases;
}

Outcome RunIn(const Step& step, const layout::Ledger& ledger, const Policy& policy) {
  return StepMachine(step, &ledger).Run(policy);
}

// Of the same model and micro-batches on one rank without ZeRO.
Outcome Reference(const Case& test) {
  Case plain = test;
  plain.pipeline.reset();
  plain.mesh = {};
  plain.stage = 0;
  const BuiltCase built = Build(plain);
  return RunIn(built.step, built.ledger, Policies(0)[0]);
}

TEST(StepCheck, DataParallelStepsAreProvenAndComputeTheSameInEveryInterleaving) {
  const std::vector<layout::Mesh> meshes = {{.dp_replicate = 1, .dp_shard = 1},
                                            {.dp_replicate = 2, .dp_shard = 1},
                                            {.dp_replicate = 3, .dp_shard = 1},
                                            {.dp_replicate = 4, .dp_shard = 1},
                                            {.dp_replicate = 1, .dp_shard = 2},
                                            {.dp_replicate = 1, .dp_shard = 3},
                                            {.dp_replicate = 1, .dp_shard = 4},
                                            {.dp_replicate = 2, .dp_shard = 2},
                                            {.tp = 2},
                                            {.dp_shard = 2, .tp = 4}};
  const std::vector<Policy> policies = Policies(2);
  int num_steps = 0;
  for (const Case& test : DataParallelGrid(meshes, {1, 2, 3, 8})) {
    const BuiltCase built = Build(test);
    const absl::StatusOr<Proof> proof = Check(built.step, built.ledger);
    ASSERT_TRUE(proof.ok()) << test.Name() << ": " << proof.status();
    ++num_steps;
    if (test.mesh.world_size() != 2) continue;  // the order of instructions depends on the stage alone
    Outcome expected = Reference(test);
    ASSERT_EQ(expected.error, "") << test.Name();
    for (const Policy& policy : policies) {
      Outcome outcome = RunIn(built.step, built.ledger, policy);
      // An updated bucket is gathered in stages 1 and 2 alone; before that the parameters are the same.
      if (test.stage == 1 || test.stage == 2) {
        for (int b = 0; b < built.ledger.num_buckets(); ++b)
          expected.finals[static_cast<size_t>(b)] = Mix(Reference(test).finals[static_cast<size_t>(b)], 99);
      }
      ASSERT_EQ(outcome, expected) << test.Name();
    }
  }
  std::printf("%d steps proven\n", num_steps);
}

TEST(StepCheck, PipelinesWithZeroAndRecomputeComputeWhatOneRankComputes) {
  const std::vector<Policy> policies = Policies(1);
  std::set<std::string> kinds;
  int num_steps = 0;
  for (const Case& test : PipelineGrid({1, 2, 3, 4}, {1, 2, 4, 8})) {
    const BuiltCase built = Build(test);
    const absl::StatusOr<Proof> proof = Check(built.step, built.ledger);
    ASSERT_TRUE(proof.ok()) << test.Name() << ": " << proof.status();
    ++num_steps;
    kinds.insert(built.step.order);
    Outcome expected = Reference(test);
    if (test.stage == 1 || test.stage == 2) {
      for (int b = 0; b < built.ledger.num_buckets(); ++b)
        expected.finals[static_cast<size_t>(b)] = Mix(expected.finals[static_cast<size_t>(b)], 99);
    }
    for (const Policy& policy : policies)
      ASSERT_EQ(RunIn(built.step, built.ledger, policy), expected) << test.Name();
  }
  EXPECT_EQ(kinds.size(), static_cast<size_t>(kNumPipelineKinds));
  std::printf("%d steps proven\n", num_steps);
}

TEST(StepCheck, EvaluationStepsAreProven) {
  for (const Case& test : DataParallelGrid(
           {{.dp_replicate = 2, .dp_shard = 1}, {.dp_replicate = 1, .dp_shard = 2}}, {1, 2, 3})) {
    const layout::Ledger ledger(model::Inventory(test.Spec()), test.mesh, test.stage);
    const Step step = BuildForwardOnly(GraphOf(test.Spec(), ledger, test.Options()), ledger, test.Options());
    const absl::StatusOr<Proof> proof = Check(step, ledger);
    EXPECT_TRUE(proof.ok()) << test.Name() << ": " << proof.status();
  }
}

}  // namespace
}  // namespace trainctl::schedule
