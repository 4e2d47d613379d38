// What the tests of steps share: small models, layouts and orders, built in one call.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "model/architecture.h"
#include "model/parameters.h"
#include "schedule/build_step.h"

namespace trainctl::schedule {

inline std::string Name(PipelineKind kind, const PipelineShape& shape) {
  return absl::StrCat(PipelineKindName(kind), " ranks ", shape.ranks, " micro-batches ",
                      shape.num_micro_batches, " stages per rank ", shape.virtual_stages);
}

inline std::vector<PipelineKind> AllKinds() {
  std::vector<PipelineKind> kinds;
  for (int k = 0; k < kNumPipelineKinds; ++k) kinds.push_back(static_cast<PipelineKind>(k));
  return kinds;
}

// An order alone, built and proven; the test fails and an empty step comes back otherwise.
inline Step Expanded(PipelineKind kind, const PipelineShape& shape, bool sends_on_compute = false) {
  SCOPED_TRACE(Name(kind, shape));
  const absl::StatusOr<PipelineSchedule> order = BuildPipeline(kind, shape);
  EXPECT_TRUE(order.ok()) << order.status();
  if (!order.ok()) return {};
  absl::StatusOr<Step> step = ExpandOrder(*order, sends_on_compute);
  EXPECT_TRUE(step.ok()) << step.status();
  if (!step.ok()) return {};
  const absl::StatusOr<Proof> proof = Check(*step);
  EXPECT_TRUE(proof.ok()) << proof.status();
  return *std::move(step);
}

// A step of a small model.
struct Case {
  int stage = 0;  // ZeRO
  layout::Mesh mesh;
  bool tied = false;
  int num_micro_batches = 1;
  layout::Recompute recompute = layout::Recompute::kNone;
  bool prefetch = true;
  int layers = 1;
  std::optional<PipelineKind> pipeline;  // none: mesh.pp is 1
  int virtual_stages = 1;
  std::vector<int64_t> recomputed_layers = {};  // of each stage; empty: all

  std::string Name() const {
    return absl::StrCat(
        "stage ", stage, " ", mesh.ToString(), tied ? " tied" : "", " micro-batches ", num_micro_batches,
        recompute == layout::Recompute::kFull ? " recompute" : "",
        recomputed_layers.empty() ? "" : absl::StrCat(" of ", absl::StrJoin(recomputed_layers, ",")),
        prefetch ? " prefetch" : "", " layers ", layers,
        pipeline ? absl::StrCat(" ", PipelineKindName(*pipeline), " of ", mesh.pp, " x ", virtual_stages)
                 : "");
  }
  model::Architecture Spec() const {
    model::Architecture spec;
    SetNumLayers(spec, layers);
    spec.hidden = 8;
    SetEach(spec, &model::Attention::heads, 4);
    SetEach(spec, &model::Attention::kv_heads, 2);
    SetEach(spec, &model::Attention::head_dim, 2);
    SetEach(spec, &model::Mlp::ffn, 12);
    spec.vocab = 24;
    spec.tie_embeddings = tied;
    return spec;
  }
  BuildOptions Options() const {
    return {.micro_batch = 2,
            .num_micro_batches = num_micro_batches,
            .recompute = recompute,
            .recomputed_layers = recomputed_layers,
            .setting = {.seq_len = 4, .prefetch = prefetch}};
  }
};

// Where stages as even as can be begin, then the number of blocks.
inline std::vector<int> EvenStages(int num_blocks, int num_stages) {
  std::vector<int> begin;
  for (int stage = 0; stage <= num_stages; ++stage) begin.push_back(num_blocks * stage / num_stages);
  return begin;
}

struct BuiltCase {
  layout::Ledger ledger;
  Step step;
};

// The order of the case must exist for its shape, and the model have a block for each stage.
inline BuiltCase Build(const Case& test) {
  const model::Architecture spec = test.Spec();
  if (!test.pipeline) {
    layout::Ledger ledger(model::Inventory(spec), test.mesh, test.stage);
    Step step = BuildStep(GraphOf(spec, ledger, test.Options()), ledger, test.Options());
    return {std::move(ledger), std::move(step)};
  }
  const absl::StatusOr<PipelineSchedule> order =
      BuildPipeline(*test.pipeline, {test.mesh.pp, test.num_micro_batches, test.virtual_stages});
  EXPECT_TRUE(order.ok()) << order.status();
  const std::vector<int> stages = EvenStages(model::HeadBlock(spec) + 1, order->placement.num_stages);
  layout::Ledger ledger(model::Inventory(spec), test.mesh, test.stage, OwnersOf(*order, stages));
  absl::StatusOr<Step> step =
      BuildStep(GraphOf(spec, ledger, test.Options()), ledger, test.Options(), *order, stages);
  EXPECT_TRUE(step.ok()) << test.Name() << ": " << step.status();
  return {std::move(ledger), step.ok() ? *std::move(step) : Step{}};
}

}  // namespace trainctl::schedule
