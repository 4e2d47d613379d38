#include "schedule/step_hash.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>

#include "tests/unit/schedule/step_testing.h"

namespace trainctl::schedule {
namespace {

struct Built {
  layout::Ledger ledger;
  Step step;
};

Built BuildSmall(int stage, int shards,
                 const std::function<void(model::ModelSpec&, BuildOptions&)>& change = {}) {
  model::ModelSpec spec = *model::Preset("toy-1m");
  spec.layers = 2;
  BuildOptions options;
  options.micro_batch = 2;
  options.setting.seq_len = 32;
  options.num_micro_batches = 3;
  if (change) change(spec, options);
  layout::Mesh mesh;
  (stage == 0 ? mesh.dp_replicate : mesh.dp_shard) = shards;
  layout::Ledger ledger(model::Inventory(spec), mesh, stage);
  Step step = BuildStep(spec, ledger, options);
  return {std::move(ledger), std::move(step)};
}

std::string HashOf(const Built& built) { return HashStep(built.step, built.ledger); }

TEST(StepHash, TheSameStepHasTheSameHashAndOthersHaveOthers) {
  EXPECT_EQ(HashOf(BuildSmall(3, 2)), HashOf(BuildSmall(3, 2)));
  EXPECT_EQ(HashOf(BuildSmall(3, 2)).size(), 32u);
  std::set<std::string> hashes;
  int num_steps = 0;
  for (int stage = 0; stage <= 3; ++stage) {
    for (int workers : {2, 4}) {
      for (int change = 0; change < 12; ++change) {
        ++num_steps;
        hashes.insert(HashOf(BuildSmall(stage, workers, [&](model::ModelSpec& spec, BuildOptions& options) {
          if (change == 1) options.micro_batch = 1;
          if (change == 2) options.num_micro_batches = 2;
          if (change == 3) options.setting.types.compute = DType::kBF16;
          if (change == 4) options.recompute = layout::Recompute::kFull;
          if (change == 5) options.setting.on_device = true;
          if (change == 6) spec.tie_embeddings = true;
          if (change == 7) options.setting.optimizer = optim::Find("lion");
          if (change == 8) options.setting.optimizer = optim::Find("sgd");
          if (change == 9) options.setting.types.master = DType::kF64;
          if (change == 10) options.setting.types.gradient = DType::kF64;
          if (change == 11) options.setting.types.sum = DType::kF64;
        })));
      }
    }
  }
  EXPECT_EQ(static_cast<int>(hashes.size()), num_steps);
}

// Every field of what a step is made of, one at a time, in the programs of both classes.
TEST(StepHash, EveryFieldOfAStepChangesTheHash) {
  const BuiltCase built = Build({.stage = 3,
                                 .mesh = {.pp = 2, .dp_shard = 2},
                                 .tied = true,
                                 .num_micro_batches = 3,
                                 .recompute = layout::Recompute::kFull,
                                 .layers = 4,
                                 .pipeline = PipelineKind::kZbH1});
  const std::string before = HashStep(built.step, built.ledger);
  const auto changes = [&](const char* what, const std::function<void(Step&)>& change) {
    Step step = built.step;
    change(step);
    EXPECT_NE(HashStep(step, built.ledger), before) << what;
  };
  changes("the optimizer", [](Step& s) { s.optimizer = "lion"; });
  changes("zero_stage", [](Step& s) { --s.zero_stage; });
  changes("has_head", [](Step& s) { s.has_head = false; });
  changes("trains", [](Step& s) { s.trains = false; });
  changes("has_update", [](Step& s) { s.has_update = false; });
  changes("num_micro_batches", [](Step& s) { ++s.num_micro_batches; });
  changes("a stage", [](Step& s) { ++s.stage_begin[1]; });
  changes("where a stage lies",
          [](Step& s) { std::swap(s.placement.stage_ranks[0], s.placement.stage_ranks[1]); });
  changes("a group's axis", [](Step& s) { s.groups[0].axis = layout::Axis::kTp; });
  changes("a group's stream", [](Step& s) { ++s.groups[0].stream; });
  changes("a group's classes", [](Step& s) { s.groups.back().classes.pop_back(); });
  changes("a class left out", [](Step& s) { s.programs.pop_back(); });
  for (size_t c = 0; c < built.step.programs.size(); ++c) {
    const Program& program = built.step.programs[c];
    const auto in = [&](const char* what, const std::function<void(Program&)>& change) {
      changes(what, [&](Step& s) { change(s.programs[c]); });
    };
    in("num_micro_batches", [](Program& p) { ++p.num_micro_batches; });
    in("a stream's name", [](Program& p) { p.streams[0].name += "x"; });
    in("a stream's peer", [](Program& p) { ++p.streams.back().peer; });
    in("a stream's direction", [](Program& p) { p.streams.back().sends = !p.streams.back().sends; });
    in("a parameter slot", [](Program& p) { ++p.parameter_slots[0].numel; });
    in("a gradient slot", [](Program& p) { ++p.gradient_slots[0].value; });
    in("the receive buffer", [](Program& p) { ++p.receive_buffer_bytes; });
    in("the order of instructions", [](Program& p) { std::swap(p.instructions[1], p.instructions[2]); });
    for (size_t v = 0; v < program.values.size(); ++v) {
      in("a value's bytes", [&](Program& p) { ++p.values[v].bytes; });
      in("a value's block", [&](Program& p) { ++p.values[v].block; });
      in("a value's micro-batch", [&](Program& p) { ++p.values[v].micro_batch; });
      in("persistent", [&](Program& p) { p.values[v].persistent = !p.values[v].persistent; });
      in("a value's kind", [&](Program& p) {
        p.values[v].kind = p.values[v].kind == ValueKind::kSaved ? ValueKind::kQueued : ValueKind::kSaved;
      });
      in("a value's category", [&](Program& p) {
        p.values[v].category =
            p.values[v].category == Category::kOptimizer ? Category::kGradients : Category::kOptimizer;
      });
    }
    for (size_t at = 0; at < program.instructions.size(); at += 7) {
      const auto of = [at](Program& p) -> Instruction& { return p.instructions[at]; };
      in("op", [&](Program& p) { of(p).op = of(p).op == Op::kLoss ? Op::kForward : Op::kLoss; });
      in("stream", [&](Program& p) { ++of(p).stream; });
      in("block", [&](Program& p) { ++of(p).block; });
      in("bucket", [&](Program& p) { ++of(p).bucket; });
      in("micro_batch", [&](Program& p) { ++of(p).micro_batch; });
      in("slot", [&](Program& p) { ++of(p).slot; });
      in("peer", [&](Program& p) { ++of(p).peer; });
      in("keep", [&](Program& p) { of(p).keep = !of(p).keep; });
      in("first", [&](Program& p) { of(p).first = !of(p).first; });
      in("joined", [&](Program& p) { of(p).joined = !of(p).joined; });
      in("peak_extra_bytes", [&](Program& p) { ++of(p).peak_extra_bytes; });
      using List = Ids Instruction::*;
      for (const List list : {&Instruction::waits, &Instruction::parameter_slots, &Instruction::groups,
                              &Instruction::reads, &Instruction::writes, &Instruction::frees}) {
        in("a list", [&](Program& p) { (of(p).*list).push_back(0); });
      }
      in("a gradient", [&](Program& p) { of(p).gradients.push_back({}); });
      in("an instruction left out",
         [&](Program& p) { p.instructions.erase(p.instructions.begin() + static_cast<std::ptrdiff_t>(at)); });
      if (program.instructions[at].gradients.empty()) continue;
      in("a gradient's slot", [&](Program& p) { ++of(p).gradients[0].slot; });
      in("accumulate", [&](Program& p) { of(p).gradients[0].accumulate ^= true; });
      in("accumulate_weights", [&](Program& p) { of(p).gradients[0].accumulate_weights ^= true; });
    }
  }
}

// Numbers that move from one list to the next are another step.
TEST(StepHash, ListsDoNotRunIntoEachOther) {
  const Built built = BuildSmall(0, 1);
  Step a = built.step, b = built.step;
  a.programs[0].instructions[0].reads = {1, 2};
  a.programs[0].instructions[0].writes = {};
  b.programs[0].instructions[0].reads = {1};
  b.programs[0].instructions[0].writes = {2};
  EXPECT_NE(HashStep(a, built.ledger), HashStep(b, built.ledger));
}

TEST(StepHash, WhatIsHashedAsItRunsIsTheHashOfTheWholeForEveryClass) {
  const BuiltCase built = Build({.stage = 2,
                                 .mesh = {.pp = 3, .dp_shard = 2},
                                 .num_micro_batches = 4,
                                 .layers = 4,
                                 .pipeline = PipelineKind::k1F1B});
  for (size_t c = 0; c < built.step.programs.size(); ++c) {
    StepHasher hasher(built.step, built.ledger, static_cast<int>(c));
    for (const Instruction& instruction : built.step.programs[c].instructions) hasher.Add(instruction);
    EXPECT_EQ(hasher.Finish(), HashStep(built.step, built.ledger));
  }
}

}  // namespace
}  // namespace trainctl::schedule
