// Spoiled steps are refused, unless an oracle that executes them in several interleavings finds that they
// compute the same.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <functional>
#include <map>

#include "base/status.h"
#include "tests/unit/schedule/step_machine.h"
#include "tests/unit/schedule/step_testing.h"

namespace trainctl::schedule {
namespace {

using ::testing::HasSubstr;

using Mutate = std::function<void(Step&)>;
using Mutant = std::pair<std::string, Mutate>;

template <typename List>
void EraseAt(List& list, size_t at) {
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
}

void Remove(Program& program, size_t index) {
  EraseAt(program.instructions, index);
  for (Instruction& instruction : program.instructions) {
    Ids waits;
    for (int wait : instruction.waits) {
      if (wait != static_cast<int>(index)) waits.push_back(wait > static_cast<int>(index) ? wait - 1 : wait);
    }
    instruction.waits = waits;
  }
}

// The copy follows the original; who waited for the original waits for the original still.
void Duplicate(Program& program, size_t index) {
  for (Instruction& instruction : program.instructions) {
    for (int& wait : instruction.waits) wait += wait > static_cast<int>(index);
  }
  const Instruction copy = program.instructions[index];
  program.instructions.insert(program.instructions.begin() + static_cast<std::ptrdiff_t>(index) + 1, copy);
}

// Exchanges two instructions; waits follow them.
void Swap(Program& program, size_t a, size_t b) {
  std::swap(program.instructions[a], program.instructions[b]);
  for (Instruction& instruction : program.instructions) {
    for (int& wait : instruction.waits) {
      wait = wait == static_cast<int>(a)   ? static_cast<int>(b)
             : wait == static_cast<int>(b) ? static_cast<int>(a)
                                           : wait;
    }
  }
}

class Mutants {
 public:
  Mutants(const Step& step, size_t own_class) : step_(step), class_(own_class) {}

  std::vector<Mutant> All() {
    for (size_t i = 0; i < program().instructions.size(); ++i) {
      OfList(i);
      OfValues(i);
      OfSlots(i);
      OfNames(i);
    }
    return std::move(mutants_);
  }

 private:
  const Program& program() const { return step_.programs[class_]; }

  void AddProgram(const std::string& kind, const std::function<void(Program&)>& spoil) {
    mutants_.push_back({kind, [c = class_, spoil](Step& s) { spoil(s.programs[c]); }});
  }
  void Add(const std::string& kind, size_t index, const std::function<void(Instruction&)>& spoil) {
    AddProgram(kind, [index, spoil](Program& p) { spoil(p.instructions[index]); });
  }

  void OfList(size_t i) {
    const Instruction& instruction = program().instructions[i];
    const std::string what = instruction.op == Op::kSend      ? "send"
                             : instruction.op == Op::kReceive ? "receive"
                                                              : "instruction";
    AddProgram("drop " + what, [i](Program& p) { Remove(p, i); });
    AddProgram("double " + what, [i](Program& p) { Duplicate(p, i); });
    for (size_t distance : {size_t{1}, size_t{3}}) {
      if (i + distance >= program().instructions.size()) continue;
      const bool same = instruction.stream == program().instructions[i + distance].stream;
      AddProgram(same ? "swap on a stream" : "swap across streams",
                 [i, distance](Program& p) { Swap(p, i, i + distance); });
    }
    for (size_t k = 0; k < instruction.waits.size(); ++k)
      Add("drop wait", i, [k](Instruction& x) { EraseAt(x.waits, k); });
    for (size_t k = 0; k < instruction.groups.size(); ++k)
      Add("drop group", i, [k](Instruction& x) { EraseAt(x.groups, k); });
    const int num_groups = static_cast<int>(step_.groups.size());
    for (size_t k = 0; k < instruction.groups.size(); ++k)
      Add("other group", i,
          [k, num_groups](Instruction& x) { x.groups[k] = (x.groups[k] + 1) % num_groups; });
  }

  void OfValues(size_t i) {
    const Instruction& instruction = program().instructions[i];
    for (size_t k = 0; k < instruction.frees.size(); ++k) {
      const int value = instruction.frees[k];
      Add("drop free", i, [k](Instruction& x) { EraseAt(x.frees, k); });
      AddProgram("free early", [i, k, value](Program& p) {
        EraseAt(p.instructions[i].frees, k);
        for (size_t j = i; j-- > 0;) {
          if (p.instructions[j].stream != kComputeStream) continue;
          p.instructions[j].frees.push_back(value);
          return;
        }
      });
      Add("free twice", i, [k](Instruction& x) { x.frees.push_back(int{x.frees[k]}); });
    }
    for (size_t k = 0; k < instruction.reads.size(); ++k) {
      Add("drop read", i, [k](Instruction& x) { EraseAt(x.reads, k); });
      Add("read another", i, [k](Instruction& x) { --x.reads[k]; });
    }
    for (size_t k = 0; k < instruction.writes.size(); ++k) {
      Add("drop write", i, [k](Instruction& x) { EraseAt(x.writes, k); });
      AddProgram("write a value of another name", [i, k](Program& p) {
        ++p.values[static_cast<size_t>(p.instructions[i].writes[k])].micro_batch;
      });
    }
  }

  void OfSlots(size_t i) {
    const Instruction& instruction = program().instructions[i];
    const int num_parameter_slots = static_cast<int>(program().parameter_slots.size());
    const int num_gradient_slots = static_cast<int>(program().gradient_slots.size());
    for (size_t k = 0; k < instruction.parameter_slots.size() && num_parameter_slots > 1; ++k) {
      if (instruction.parameter_slots[k] < 0) continue;
      Add("wrong parameter slot", i, [k, num_parameter_slots](Instruction& x) {
        x.parameter_slots[k] = (x.parameter_slots[k] + 1) % num_parameter_slots;
      });
    }
    for (size_t k = 0; k < instruction.gradients.size(); ++k) {
      Add("flip accumulate", i, [k](Instruction& x) {
        (x.op == Op::kBackwardWeight ? x.gradients[k].accumulate_weights : x.gradients[k].accumulate) ^= true;
      });
      if (num_gradient_slots < 2 || instruction.gradients[k].slot < 0) continue;
      Add("wrong gradient slot", i, [k, num_gradient_slots](Instruction& x) {
        x.gradients[k].slot = (x.gradients[k].slot + 1) % num_gradient_slots;
      });
    }
    if (instruction.op == Op::kReduceGradient) {
      Add("flip first", i, [](Instruction& x) { x.first = !x.first; });
      if (instruction.slot >= 0 && num_gradient_slots > 1) {
        Add("wrong reduce slot", i,
            [num_gradient_slots](Instruction& x) { x.slot = (x.slot + 1) % num_gradient_slots; });
      }
    }
    if (instruction.op == Op::kGather && num_parameter_slots > 1) {
      Add("wrong gather slot", i,
          [num_parameter_slots](Instruction& x) { x.slot = (x.slot + 1) % num_parameter_slots; });
    }
  }

  void OfNames(size_t i) {
    const Instruction& instruction = program().instructions[i];
    if (instruction.op == Op::kForward) Add("flip keep", i, [](Instruction& x) { x.keep = !x.keep; });
    if (instruction.bucket >= 0) Add("other bucket", i, [](Instruction& x) { x.bucket ^= 1; });
    if (instruction.peer >= 0) Add("other peer", i, [](Instruction& x) { ++x.peer; });
    if (RunsBlock(instruction.op) || instruction.peer >= 0) {
      for (int by : {-1, 1}) {
        Add("other micro-batch", i, [by](Instruction& x) { x.micro_batch += by; });
        Add("other block", i, [by](Instruction& x) { x.block += by; });
      }
    }
    for (int op = 0; op < kNumOps; ++op) {
      if (static_cast<int>(instruction.op) == op) continue;
      Add("other operation", i, [op](Instruction& x) { x.op = static_cast<Op>(op); });
    }
  }

  const Step& step_;
  const size_t class_;
  std::vector<Mutant> mutants_;
};

// Each ZeRO stage, recompute and tied embeddings, with and without tensor parallelism, of which two ranks
// have copies of one head of keys; pipelines whose backward is whole, split, interleaved, a V, and with two
// copies of the model.
std::vector<Case> Cases() {
  std::vector<Case> cases;
  const auto recompute = [](int i) {
    return i % 2 == 0 ? layout::Recompute::kNone : layout::Recompute::kFull;
  };
  for (int stage = 0; stage <= 3; ++stage) {
    layout::Mesh mesh;
    (stage == 0 ? mesh.dp_replicate : mesh.dp_shard) = 2;
    for (int i = 0; i < 4; ++i) {
      mesh.tp = i == 1 ? 2 : i == 3 ? 4 : 1;
      cases.push_back({stage, mesh, i >= 2, 2, recompute(i), stage % 2 == 0, 1 + i, {}, 1});
    }
    mesh.pp = 2;
    mesh.tp = 1 + stage % 2;
    int i = stage;
    for (PipelineKind kind : {PipelineKind::k1F1B, PipelineKind::kZbH1, PipelineKind::kInterleaved1F1B,
                              PipelineKind::kZbv, PipelineKind::kDualPipe}) {
      const int v = LimitsOf(kind).min_virtual_stages;
      cases.push_back({stage, mesh, i % 2 == 0, kind == PipelineKind::kDualPipe ? 4 : 2, recompute(++i), true,
                       2 * v, kind, v});
    }
  }
  return cases;
}

TEST(StepMutants, AreRefusedOrComputeTheSame) {
  const std::vector<Policy> policies = Policies(4);
  std::map<std::string, std::array<int, 3>> counts;  // kind -> refused, equivalent, seen to go wrong
  int total = 0;
  for (const Case& test : Cases()) {
    const BuiltCase built = Build(test);
    ASSERT_TRUE(Check(built.step, built.ledger).ok()) << test.Name();
    const Outcome expected = StepMachine(built.step, &built.ledger).Run(policies[0]);
    ASSERT_EQ(expected.error, "") << test.Name();
    for (size_t c = 0; c < built.step.programs.size(); ++c) {
      for (const auto& [kind, mutate] : Mutants(built.step, c).All()) {
        Step mutant = built.step;
        mutate(mutant);
        ++total;
        const bool refused = !Check(mutant, built.ledger).ok();
        ++counts[kind][refused ? 0 : 1];
        if (refused) continue;
        for (const Policy& policy : policies) {
          const Outcome outcome = StepMachine(mutant, &built.ledger).Run(policy);
          ASSERT_EQ(outcome, expected)
              << kind << " passes the checker in " << test.Name() << ": " << outcome.error;
        }
      }
    }
  }
  for (const auto& [kind, count] : counts) {
    std::printf("%-30s %6d refused, %d equivalent\n", kind.c_str(), count[0], count[1]);
    EXPECT_GT(count[0], 0) << kind;
    // Only an order that others already enforce, or that means nothing, may change without harm.
    if (kind != "drop wait" && kind.substr(0, 4) != "swap") {
      EXPECT_EQ(count[1], 0) << kind;
    }
  }
  std::printf("%d mutants\n", total);
}

// Two of the mutants that matter most between classes, by hand.
TEST(StepMutants, AnErrorNamesTheClassTheInstructionAndTheReason) {
  const Case test{.stage = 3,
                  .mesh = {.pp = 2, .dp_shard = 2},
                  .num_micro_batches = 2,
                  .layers = 4,
                  .pipeline = PipelineKind::k1F1B};
  const BuiltCase built = Build(test);
  const auto complaint = [&](const std::function<void(Step&)>& spoil) {
    Step step = built.step;
    spoil(step);
    const absl::Status status = Check(step, built.ledger).status();
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kInternal);
    return std::string(status.message());
  };
  const auto first = [](Step& step, size_t c, Op op) -> size_t {
    size_t i = 0;
    while (step.programs[c].instructions[i].op != op) ++i;
    return i;
  };
  EXPECT_THAT(complaint([&](Step& s) { Remove(s.programs[0], first(s, 0, Op::kSend)); }),
              HasSubstr("class 0"));
  EXPECT_THAT(complaint([&](Step& s) {
                Instruction& x = s.programs[1].instructions[first(s, 1, Op::kForward)];
                x.waits.clear();
              }),
              HasSubstr("before it is written"));
  EXPECT_THAT(complaint([&](Step& s) { s.placement.stage_ranks[1] = 7; }),
              HasSubstr("stage 1 lies on rank 7, which does not exist"));
  // The collectives of the two classes are in two orders.
  EXPECT_THAT(complaint([&](Step& s) {
                Swap(s.programs[1], first(s, 1, Op::kReduceLoss), first(s, 1, Op::kGradNorm));
              }),
              HasSubstr("class 1"));
  EXPECT_THAT(complaint([&](Step& s) { s.programs[0].instructions[0].op = static_cast<Op>(200); }),
              HasSubstr("unknown instruction"));
  EXPECT_THAT(complaint([&](Step& s) {
                s.groups.push_back({layout::Axis::kPp, kComputeStream, {99}});
              }),
              HasSubstr("a group of classes that do not exist"));
  EXPECT_THAT(complaint([&](Step& s) {
                s.groups[0].classes = {0, 1};
              }),
              HasSubstr("a group of classes that do not exist"));
}

// Messages of one peer on two streams may arrive in another order than they were sent.
TEST(StepMutants, AChannelHasOneStream) {
  Step step = Expanded(PipelineKind::k1F1B, {2, 4, 1});
  Program& program = step.programs[1];
  const auto receives = std::find_if(program.streams.begin(), program.streams.end(),
                                     [](const Stream& s) { return s.peer == 0 && !s.sends; });
  ASSERT_NE(receives, program.streams.end());
  program.streams.push_back(Stream(*receives));
  bool other = false;
  for (Instruction& instruction : program.instructions) {
    if (instruction.op != Op::kReceive) continue;
    if (other) instruction.stream = static_cast<int>(program.streams.size()) - 1;
    instruction.waits.clear();
    other = !other;
  }
  EXPECT_THAT(std::string(Check(step).status().message()), HasSubstr("could overtake each other"));
}

// A saved value that nobody speaks of would be missed by the executor alone.
TEST(StepMutants, WhatABackwardNeedsIsSaved) {
  const BuiltCase built = Build({.layers = 2});
  Step step = built.step;
  Program& program = step.programs[0];
  int forgotten = -1;
  for (size_t v = 0; v < program.values.size() && forgotten < 0; ++v) {
    if (program.values[v].kind == ValueKind::kSaved) forgotten = static_cast<int>(v);
  }
  ASSERT_GE(forgotten, 0);
  for (Instruction& instruction : program.instructions) {
    for (Ids* values : {&instruction.reads, &instruction.writes, &instruction.frees}) {
      values->erase(std::remove(values->begin(), values->end(), forgotten), values->end());
      for (int& value : *values) value -= value > forgotten ? 1 : 0;
    }
  }
  for (std::vector<Slot>* slots : {&program.parameter_slots, &program.gradient_slots}) {
    for (Slot& slot : *slots) slot.value -= slot.value > forgotten ? 1 : 0;
  }
  EraseAt(program.values, static_cast<size_t>(forgotten));
  EXPECT_THAT(std::string(Check(step, built.ledger).status().message()), HasSubstr("should write"));
}

// Each waits for the other's message before it sends its own: B of stage 0 before F of micro-batch 1.
TEST(StepMutants, ADeadlockOfAnOrderIsFound) {
  PipelineSchedule order = *BuildPipeline(PipelineKind::k1F1B, {2, 2, 1});
  std::swap(order.actions[1][1], order.actions[1][2]);  // F0 F1 B0 B1
  std::swap(order.actions[0][1], order.actions[0][2]);  // F0 B0 F1 B1
  const absl::StatusOr<Step> step = ExpandOrder(order);
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_THAT(std::string(Check(*step).status().message()), HasSubstr("waits forever"));
}

// With sends on the compute stream two ranks that both send first stand still, unless sends are buffered:
// 1F1B sends forward and backward at once.
TEST(StepMutants, SendsOnTheComputeStreamAreRefusedUnlessBuffered) {
  for (const PipelineKind kind : AllKinds()) {
    const PipelineSchedule order = *BuildPipeline(kind, {4, 8, LimitsOf(kind).min_virtual_stages});
    const Step step = *ExpandOrder(order, /*sends_on_compute=*/true);
    const absl::StatusOr<Proof> proof = Check(step);
    EXPECT_EQ(proof.ok(), kind == PipelineKind::kGPipe) << PipelineKindName(kind);
    EXPECT_TRUE(Check(step, {.buffers_sends = true}).ok()) << PipelineKindName(kind);
    if (!proof.ok()) {
      EXPECT_THAT(std::string(proof.status().message()), HasSubstr("waits forever"));
    }
  }
}

TEST(StepMutants, AnOrderThatCannotRunIsRefused) {
  const auto complaint = [](const std::function<void(PipelineSchedule&)>& spoil) {
    PipelineSchedule order = *BuildPipeline(PipelineKind::k1F1B, {2, 2, 1});
    spoil(order);
    const absl::Status status = ExpandOrder(order).status();
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData);
    return std::string(status.message());
  };
  EXPECT_THAT(complaint([](PipelineSchedule& s) { s.actions[0].erase(s.actions[0].begin()); }),
              HasSubstr("runs before its forward"));
  EXPECT_THAT(complaint([](PipelineSchedule& s) { s.actions[1].erase(s.actions[1].begin() + 3); }),
              HasSubstr("waits for a gradient that rank 1 does not send"));
  EXPECT_THAT(complaint([](PipelineSchedule& s) { s.actions[1][0].stage = 0; }),
              HasSubstr("belongs on rank 0"));
  EXPECT_THAT(complaint([](PipelineSchedule& s) { s.actions[1][0].micro_batch = 2; }),
              HasSubstr("is outside of 2 stages and 2 micro-batches"));
  EXPECT_THAT(complaint([](PipelineSchedule& s) { s.placement.stage_ranks.clear(); }),
              HasSubstr("no valid placement"));
}

}  // namespace
}  // namespace trainctl::schedule
