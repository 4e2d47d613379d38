#include "schedule/step_hash.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>

namespace trainctl::schedule {
namespace {

struct Built {
  layout::Ledger ledger;
  Schedule schedule;
};

Built Build(int stage, int shards, const std::function<void(model::ModelSpec&, BuildOptions&)>& change = {}) {
  model::ModelSpec spec = *model::Preset("toy-1m");
  spec.layers = 2;
  BuildOptions options;
  options.shape = {2, 32};
  options.num_micro_batches = 3;
  if (change) change(spec, options);
  layout::Mesh mesh;
  (stage == 0 ? mesh.dp_replicate : mesh.dp_shard) = shards;
  layout::Ledger ledger(model::Inventory(spec), mesh, stage);
  Schedule schedule = BuildDataParallel(spec, ledger, options);
  return {std::move(ledger), std::move(schedule)};
}

std::string HashOf(const Built& built) { return HashStep(built.schedule, built.ledger); }

TEST(StepHash, TheSameStepHasTheSameHashAndOthersHaveOthers) {
  EXPECT_EQ(HashOf(Build(3, 2)), HashOf(Build(3, 2)));
  EXPECT_EQ(HashOf(Build(3, 2)).size(), 32u);
  std::set<std::string> hashes;
  int num_steps = 0;
  for (int stage = 0; stage <= 3; ++stage) {
    for (int workers : {2, 4}) {
      for (int change = 0; change < 9; ++change) {
        ++num_steps;
        hashes.insert(HashOf(Build(stage, workers, [&](model::ModelSpec& spec, BuildOptions& options) {
          if (change == 1) options.shape.batch = 1;
          if (change == 2) options.num_micro_batches = 2;
          if (change == 3) options.compute_dtype = DType::kBF16;
          if (change == 4) options.recompute = layout::Recompute::kFull;
          if (change == 5) options.on_device = true;
          if (change == 6) spec.tie_embeddings = true;
          if (change == 7) options.optimizer = optim::Find("lion");
          if (change == 8) options.optimizer = optim::Find("sgd");
        })));
      }
    }
  }
  EXPECT_EQ(static_cast<int>(hashes.size()), num_steps);
}

// Each field of an instruction, a value, a slot, one at a time.
TEST(StepHash, EveryFieldOfAStepChangesTheHash) {
  const Built built = Build(3, 2);
  const std::string before = HashOf(built);
  const auto changes = [&](const char* what, const std::function<void(Schedule&)>& change) {
    Schedule schedule = built.schedule;
    change(schedule);
    EXPECT_NE(HashStep(schedule, built.ledger), before) << what;
  };
  for (const size_t at :
       {size_t{0}, built.schedule.instructions.size() / 2, built.schedule.instructions.size() - 1}) {
    const auto of = [at](Schedule& s) -> Instruction& { return s.instructions[at]; };
    changes("op", [&](Schedule& s) { of(s).op = of(s).op == Op::kLoss ? Op::kForward : Op::kLoss; });
    changes("stream", [&](Schedule& s) {
      of(s).stream = of(s).stream == StreamId::kReduce ? StreamId::kGather : StreamId::kReduce;
    });
    changes("block", [&](Schedule& s) { ++of(s).block; });
    changes("bucket", [&](Schedule& s) { ++of(s).bucket; });
    changes("micro_batch", [&](Schedule& s) { ++of(s).micro_batch; });
    changes("slot", [&](Schedule& s) { ++of(s).slot; });
    changes("keep", [&](Schedule& s) { of(s).keep = !of(s).keep; });
    changes("first", [&](Schedule& s) { of(s).first = !of(s).first; });
    changes("last", [&](Schedule& s) { of(s).last = !of(s).last; });
    changes("peak_extra_bytes", [&](Schedule& s) { ++of(s).peak_extra_bytes; });
    using List = std::vector<int> Instruction::*;
    for (const List list : {&Instruction::waits, &Instruction::parameter_slots, &Instruction::gradient_slots,
                            &Instruction::reads, &Instruction::writes, &Instruction::frees}) {
      changes("a list", [&](Schedule& s) { (of(s).*list).push_back(0); });
    }
    changes("accumulate", [&](Schedule& s) { of(s).accumulate.push_back(true); });
    changes("an instruction left out", [&](Schedule& s) {
      s.instructions.erase(s.instructions.begin() + static_cast<std::ptrdiff_t>(at));
    });
  }
  changes("the order of instructions", [](Schedule& s) { std::swap(s.instructions[1], s.instructions[2]); });
  for (size_t v = 0; v < built.schedule.values.size(); ++v) {
    changes("a value's bytes", [&](Schedule& s) { ++s.values[v].bytes; });
  }
  changes("persistent", [](Schedule& s) { s.values.back().persistent = !s.values.back().persistent; });
  changes("category", [](Schedule& s) { s.values.back().category = Category::kOptimizer; });
  changes("a parameter slot", [](Schedule& s) { ++s.parameter_slots[0].numel; });
  changes("a gradient slot", [](Schedule& s) { ++s.gradient_slots[0].value; });
  changes("the receive buffer", [](Schedule& s) { ++s.receive_buffer_bytes; });
}

// Numbers that move from one list to the next are another step.
TEST(StepHash, ListsDoNotRunIntoEachOther) {
  const Built built = Build(0, 1);
  Schedule a = built.schedule, b = built.schedule;
  a.instructions[0].reads = {1, 2};
  a.instructions[0].writes = {};
  b.instructions[0].reads = {1};
  b.instructions[0].writes = {2};
  EXPECT_NE(HashStep(a, built.ledger), HashStep(b, built.ledger));
}

TEST(StepHash, WhatIsHashedAsItRunsIsTheHashOfTheWhole) {
  const Built built = Build(2, 4);
  StepHasher hasher(built.schedule, built.ledger);
  for (const Instruction& instruction : built.schedule.instructions) hasher.Add(instruction);
  EXPECT_EQ(hasher.Finish(), HashOf(built));
}

}  // namespace
}  // namespace trainctl::schedule
