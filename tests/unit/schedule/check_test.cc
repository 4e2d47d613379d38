// The builder's schedules are proven correct; spoiled ones are refused, unless an oracle that
// executes them in many interleavings finds that they compute the same.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/status.h"
#include "model/model_spec.h"
#include "schedule/schedule.h"
#include "tests/unit/schedule/symbolic_machine.h"

namespace trainctl::schedule {
namespace {

using ::testing::HasSubstr;

struct Case {
  int stage = 0;
  layout::Mesh mesh;
  bool tied = false;
  int num_micro_batches = 1;
  layout::Recompute recompute = layout::Recompute::kNone;
  bool prefetch = true;
  int layers = 1;

  std::string Name() const {
    return absl::StrCat("stage ", stage, " ", mesh.ToString(), tied ? " tied" : "", " micro-batches ",
                        num_micro_batches, recompute == layout::Recompute::kFull ? " recompute" : "",
                        prefetch ? " prefetch" : "", " layers ", layers);
  }
  model::ModelSpec Spec() const {
    model::ModelSpec spec;
    spec.layers = layers;
    spec.hidden = 8;
    spec.heads = 2;
    spec.kv_heads = 1;
    spec.head_dim = 4;
    spec.ffn = 12;
    spec.vocab = 24;
    spec.tie_embeddings = tied;
    return spec;
  }
  layout::Ledger MakeLedger() const { return layout::Ledger(model::Inventory(Spec()), mesh, stage); }
  BuildOptions Options() const {
    return {.shape = {2, 4},
            .num_micro_batches = num_micro_batches,
            .recompute = recompute,
            .prefetch = prefetch};
  }
  Schedule Build(const layout::Ledger& ledger) const { return BuildDataParallel(Spec(), ledger, Options()); }
};

std::vector<Case> Grid(const std::vector<layout::Mesh>& meshes, const std::vector<int>& layer_counts) {
  std::vector<Case> cases;
  for (const layout::Mesh& mesh : meshes) {
    for (int stage = 0; stage <= 3; ++stage) {
      if ((stage == 0) != (mesh.dp_shard == 1)) continue;
      for (bool tied : {false, true}) {
        for (int num_micro_batches : {1, 2, 4}) {
          for (layout::Recompute recompute : {layout::Recompute::kNone, layout::Recompute::kFull}) {
            for (bool prefetch : {false, true}) {
              for (int layers : layer_counts) {
                cases.push_back({stage, mesh, tied, num_micro_batches, recompute, prefetch, layers});
              }
            }
          }
        }
      }
    }
  }
  return cases;
}

SymbolicResult RunIn(const Schedule& schedule, const layout::Ledger& ledger, const Policy& policy) {
  return SymbolicMachine(schedule, ledger).Run(policy);
}

// The result in list order, which the builder means.
SymbolicResult Reference(const Schedule& schedule, const layout::Ledger& ledger) {
  Schedule serial = schedule;
  for (size_t i = 1; i < serial.instructions.size(); ++i) {
    serial.instructions[i].waits = {static_cast<int>(i) - 1};
  }
  return RunIn(serial, ledger, Policies(0)[0]);
}

TEST(ScheduleCheck, EveryScheduleOfTheGridIsProvenAndComputesTheSameInEveryInterleaving) {
  const std::vector<layout::Mesh> meshes = {
      {.dp_replicate = 1, .dp_shard = 1}, {.dp_replicate = 2, .dp_shard = 1},
      {.dp_replicate = 3, .dp_shard = 1}, {.dp_replicate = 4, .dp_shard = 1},
      {.dp_replicate = 1, .dp_shard = 2}, {.dp_replicate = 1, .dp_shard = 3},
      {.dp_replicate = 1, .dp_shard = 4}, {.dp_replicate = 2, .dp_shard = 2}};
  const std::vector<Policy> policies = Policies(2);
  int num_schedules = 0;
  for (const Case& test : Grid(meshes, {1, 2, 3, 8})) {
    const layout::Ledger ledger = test.MakeLedger();
    const Schedule schedule = test.Build(ledger);
    const absl::Status status = Check(schedule, ledger);
    ASSERT_TRUE(status.ok()) << test.Name() << ": " << status;
    ++num_schedules;
    if (test.mesh.world_size() != 2) continue;  // the order of instructions depends on stage alone
    const SymbolicResult expected = Reference(schedule, ledger);
    ASSERT_EQ(expected.error, "") << test.Name();
    for (const Policy& policy : policies) ASSERT_EQ(RunIn(schedule, ledger, policy), expected) << test.Name();
  }
  std::printf("%d schedules proven\n", num_schedules);
}

TEST(ScheduleCheck, EvaluationSchedulesAreProven) {
  for (const Case& test :
       Grid({{.dp_replicate = 2, .dp_shard = 1}, {.dp_replicate = 1, .dp_shard = 2}}, {1, 2, 3})) {
    const layout::Ledger ledger = test.MakeLedger();
    const Schedule schedule = BuildForwardOnly(test.Spec(), ledger, test.Options());
    EXPECT_TRUE(Check(schedule, ledger).ok()) << test.Name() << ": " << Check(schedule, ledger);
  }
}

// ---- mutants ------------------------------------------------------------------------------------

void Remove(Schedule& schedule, size_t index) {
  schedule.instructions.erase(schedule.instructions.begin() + static_cast<ptrdiff_t>(index));
  for (Instruction& instruction : schedule.instructions) {
    std::vector<int> waits;
    for (int wait : instruction.waits) {
      if (wait != static_cast<int>(index)) waits.push_back(wait > static_cast<int>(index) ? wait - 1 : wait);
    }
    instruction.waits = waits;
  }
}

// The copy follows the original; who waited for the original waits for the original still.
void Duplicate(Schedule& schedule, size_t index) {
  for (Instruction& instruction : schedule.instructions) {
    for (int& wait : instruction.waits) wait += wait > static_cast<int>(index);
  }
  const Instruction copy = schedule.instructions[index];
  schedule.instructions.insert(schedule.instructions.begin() + static_cast<ptrdiff_t>(index) + 1, copy);
}

using Mutate = std::function<void(Schedule&)>;
using Mutant = std::pair<std::string, Mutate>;

std::vector<Mutant> MutantsOf(const Schedule& schedule) {
  std::vector<Mutant> mutants;
  const auto add = [&](const std::string& kind, size_t index, std::function<void(Instruction&)> spoil) {
    mutants.push_back({kind, [index, spoil](Schedule& s) { spoil(s.instructions[index]); }});
  };
  const auto other_slot = [](int slot, size_t count) { return (slot + 1) % static_cast<int>(count); };
  const size_t num_parameter_slots = schedule.parameter_slots.size();
  const size_t num_gradient_slots = schedule.gradient_slots.size();
  for (size_t i = 0; i < schedule.instructions.size(); ++i) {
    const Instruction& instruction = schedule.instructions[i];
    mutants.push_back({"drop instruction", [i](Schedule& s) { Remove(s, i); }});
    mutants.push_back({"double instruction", [i](Schedule& s) { Duplicate(s, i); }});
    for (size_t k = 0; k < instruction.waits.size(); ++k) {
      add("drop wait", i,
          [k](Instruction& x) { x.waits.erase(x.waits.begin() + static_cast<ptrdiff_t>(k)); });
    }
    for (size_t k = 0; k < instruction.frees.size(); ++k) {
      const int value = instruction.frees[k];
      add("drop free", i,
          [k](Instruction& x) { x.frees.erase(x.frees.begin() + static_cast<ptrdiff_t>(k)); });
      mutants.push_back({"free early", [i, k, value](Schedule& s) {
                           auto& frees = s.instructions[i].frees;
                           frees.erase(frees.begin() + static_cast<ptrdiff_t>(k));
                           for (size_t j = i; j-- > 0;) {
                             if (s.instructions[j].stream != StreamId::kCompute) continue;
                             s.instructions[j].frees.push_back(value);
                             return;
                           }
                         }});
      add("free twice", i, [k](Instruction& x) { x.frees.push_back(x.frees[k]); });
    }
    for (size_t k = 0; k < instruction.reads.size(); ++k) {
      add("drop read", i,
          [k](Instruction& x) { x.reads.erase(x.reads.begin() + static_cast<ptrdiff_t>(k)); });
    }
    for (size_t k = 0; k < instruction.accumulate.size(); ++k) {
      add("flip accumulate", i, [k](Instruction& x) { x.accumulate[k] = !x.accumulate[k]; });
    }
    for (size_t k = 0; k < instruction.parameter_slots.size() && num_parameter_slots > 1; ++k) {
      if (instruction.parameter_slots[k] < 0) continue;
      add("wrong parameter slot", i, [=](Instruction& x) {
        x.parameter_slots[k] = other_slot(x.parameter_slots[k], num_parameter_slots);
      });
    }
    for (size_t k = 0; k < instruction.gradient_slots.size() && num_gradient_slots > 1; ++k) {
      add("wrong gradient slot", i,
          [=](Instruction& x) { x.gradient_slots[k] = other_slot(x.gradient_slots[k], num_gradient_slots); });
    }
    if (instruction.op == Op::kForward) add("flip keep", i, [](Instruction& x) { x.keep = !x.keep; });
    if (instruction.op == Op::kReduceGradient) {
      add("flip first", i, [](Instruction& x) { x.first = !x.first; });
      add("flip last", i, [](Instruction& x) { x.last = !x.last; });
      if (instruction.slot >= 0 && num_gradient_slots > 1) {
        add("wrong reduce slot", i, [=](Instruction& x) { x.slot = other_slot(x.slot, num_gradient_slots); });
      }
    }
    if (instruction.op == Op::kGather) {
      add("wrong gather slot", i, [=](Instruction& x) { x.slot = other_slot(x.slot, num_parameter_slots); });
      add("wrong bucket", i, [](Instruction& x) { x.bucket = x.bucket == 0 ? 1 : 0; });
    }
  }
  return mutants;
}

TEST(ScheduleCheck, SpoiledSchedulesAreRefusedOrComputeTheSame) {
  const std::vector<Policy> policies = Policies(6);
  std::map<std::string, std::array<int, 3>> counts;  // kind -> refused, equivalent, seen to go wrong
  int total = 0;
  for (const Case& test :
       Grid({{.dp_replicate = 2, .dp_shard = 1}, {.dp_replicate = 1, .dp_shard = 2}}, {1, 2, 3})) {
    if (test.num_micro_batches == 4) continue;  // as two, only longer
    const layout::Ledger ledger = test.MakeLedger();
    const Schedule schedule = test.Build(ledger);
    const SymbolicResult expected = Reference(schedule, ledger);
    for (const auto& [kind, mutate] : MutantsOf(schedule)) {
      Schedule mutant = schedule;
      mutate(mutant);
      ++total;
      const bool refused = !Check(mutant, ledger).ok();
      ++counts[kind][refused ? 0 : 1];
      for (const Policy& policy : policies) {
        const SymbolicResult result = RunIn(mutant, ledger, policy);
        if (refused) {
          if (result == expected) continue;
          ++counts[kind][2];
          break;
        }
        ASSERT_EQ(result, expected) << kind << " passes the checker in " << test.Name() << ": "
                                    << result.error;
      }
    }
  }
  for (const auto& [kind, count] : counts) {
    std::printf("%-22s %5d refused (%d seen to go wrong), %d equivalent\n", kind.c_str(), count[0], count[2],
                count[1]);
    EXPECT_GT(count[0], 0) << kind;
    // Only an order that others already enforce may be left out without harm.
    if (kind != "drop wait") {
      EXPECT_EQ(count[1], 0) << kind;
    }
  }
  std::printf("%d mutants\n", total);
}

TEST(ScheduleCheck, AnErrorNamesTheInstructionAndTheReason) {
  const Case test{.stage = 3, .mesh = {.dp_shard = 2}, .layers = 2};
  const layout::Ledger ledger = test.MakeLedger();
  Schedule schedule = test.Build(ledger);
  for (Instruction& instruction : schedule.instructions) {
    if (instruction.op == Op::kForward && instruction.block == 2) instruction.waits.clear();
  }
  const absl::Status status = Check(schedule, ledger);
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("forward block 2"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("does not wait for gather bucket 2"));
}

}  // namespace
}  // namespace trainctl::schedule
