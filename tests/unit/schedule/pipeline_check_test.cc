// Every builder's schedule is proven; spoiled ones are refused, unless an oracle that executes them
// on numbers finds that they compute the same.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <functional>
#include <map>

#include "base/status.h"
#include "tests/unit/schedule/pipeline_machine.h"
#include "tests/unit/schedule/pipeline_testing.h"

namespace trainctl::schedule {
namespace {

using ::testing::HasSubstr;
using List = std::vector<PipelineInstruction>;

// Shapes near `shape` that the kind can do.
std::vector<PipelineShape> SmallShapes(PipelineKind kind) {
  std::vector<PipelineShape> shapes;
  for (int p = 1; p <= 9; ++p) {
    for (int m : {1, 2, 3, 4, 5, 7, 8, 9, 12, 18, 20}) {
      for (int v = 1; v <= 4; ++v) {
        if (CheckPipelineShape(kind, {p, m, v}).ok()) shapes.push_back({p, m, v});
      }
    }
  }
  return shapes;
}

TEST(PipelineCheck, ProvesEveryKindOverAGridOfShapes) {
  for (PipelineKind kind : AllKinds()) {
    const std::vector<PipelineShape> shapes = SmallShapes(kind);
    EXPECT_GE(shapes.size(), 10u);
    for (const PipelineShape& shape : shapes) Lowered(kind, shape);
  }
}

// The oracle agrees that all kinds compute the same gradients, those of a single rank.
TEST(PipelineCheck, EveryKindComputesWhatOneRankComputes) {
  for (PipelineKind kind : AllKinds()) {
    for (const PipelineShape& shape : SmallShapes(kind)) {
      const LoweredPipeline lowered = Lowered(kind, shape);
      // One rank with as many stages in one list: every micro-batch forward, then backward.
      PipelineSchedule reference;
      reference.placement = lowered.placement;
      reference.placement.num_ranks = 1;
      reference.placement.num_copies = 1;
      const int num_stages = lowered.placement.num_stages;
      reference.placement.stage_ranks.assign(static_cast<size_t>(num_stages), 0);
      reference.actions.resize(1);
      for (int m = 0; m < shape.num_micro_batches; ++m) {
        for (int s = 0; s < num_stages; ++s) {
          reference.actions[0].push_back({PipelineOp::kForward, false, s, m});
        }
        for (int s = num_stages; s-- > 0;) {
          reference.actions[0].push_back({PipelineOp::kBackward, false, s, m});
        }
      }
      const absl::StatusOr<LoweredPipeline> single = LowerPipeline(reference);
      ASSERT_TRUE(single.ok()) << single.status();
      const PipelineOutcome expected = PipelineMachine(*single, 1).Run();
      EXPECT_FALSE(expected.failed);
      EXPECT_EQ(PipelineMachine(lowered, 2).Run(), expected) << Name(kind, shape);
    }
  }
}

// ---- mutants --------------------------------------------------------------------------------------

struct Mutant {
  std::string kind;
  std::function<void(LoweredPipeline&)> spoil;
};

bool IsPass(PipelineOp op) { return op <= PipelineOp::kBackwardWeight; }

void AddListMutants(size_t r, size_t i, const List& list, std::vector<Mutant>& mutants) {
  const PipelineInstruction& at = list[i];
  const std::string what = IsPass(at.op) ? "pass" : at.reads >= 0 ? "send" : "receive";
  mutants.push_back({"drop " + what, [r, i](LoweredPipeline& l) {
                       l.instructions[r].erase(l.instructions[r].begin() + static_cast<std::ptrdiff_t>(i));
                     }});
  mutants.push_back({"double " + what, [r, i](LoweredPipeline& l) {
                       List& spoiled = l.instructions[r];
                       spoiled.insert(spoiled.begin() + static_cast<std::ptrdiff_t>(i),
                                      PipelineInstruction(spoiled[i]));
                     }});
  for (size_t distance : {1u, 2u, 5u}) {
    if (i + distance >= list.size()) continue;
    mutants.push_back({"swap", [r, i, distance](LoweredPipeline& l) {
                         std::swap(l.instructions[r][i], l.instructions[r][i + distance]);
                       }});
  }
}

void AddStorageMutants(size_t r, size_t i, const LoweredPipeline& lowered, std::vector<Mutant>& mutants) {
  const List& list = lowered.instructions[r];
  const auto set = [&](const std::string& kind, auto spoil) {
    mutants.push_back({kind, [r, i, spoil](LoweredPipeline& l) { spoil(l.instructions[r][i]); }});
  };
  const PipelineInstruction& at = list[i];
  if (at.frees_slot) set("drop free of slot", [](PipelineInstruction& x) { x.frees_slot = false; });
  if (at.frees_read) set("drop free of buffer", [](PipelineInstruction& x) { x.frees_read = false; });
  if (IsPass(at.op) && !at.frees_slot) {
    set("free slot early", [](PipelineInstruction& x) { x.frees_slot = true; });
    // With the later free gone, nothing is freed twice.
    mutants.push_back({"free slot early", [r, i](LoweredPipeline& l) {
                         List& spoiled = l.instructions[r];
                         for (size_t k = i + 1; k < spoiled.size(); ++k) {
                           if (!spoiled[k].frees_slot || spoiled[k].slot != spoiled[i].slot) continue;
                           spoiled[k].frees_slot = false;
                           break;
                         }
                         spoiled[i].frees_slot = true;
                       }});
  }
  if (at.joined) set("not joined", [](PipelineInstruction& x) { x.joined = false; });
  if (at.op == PipelineOp::kForward && !at.joined)
    set("joined", [](PipelineInstruction& x) { x.joined = true; });
  for (int slot = 0; slot < lowered.num_slots[r]; ++slot) {
    if (at.slot < 0 || slot == at.slot) continue;
    set("other slot", [slot](PipelineInstruction& x) { x.slot = slot; });
    if (at.op != PipelineOp::kForward) continue;
    // The whole life of the activations moves to a slot that others use.
    mutants.push_back({"slot reused", [r, i, slot](LoweredPipeline& l) {
                         const PipelineInstruction forward = l.instructions[r][i];
                         for (PipelineInstruction& x : l.instructions[r]) {
                           const bool same = x.stage == forward.stage && x.micro_batch == forward.micro_batch;
                           if (same && IsPass(x.op)) x.slot = slot;
                         }
                       }});
  }
  for (int buffer = 0; buffer < lowered.num_buffers[r]; ++buffer) {
    if (at.reads >= 0 && buffer != at.reads) {
      set("reads other buffer", [buffer](PipelineInstruction& x) { x.reads = buffer; });
    }
    if (at.writes < 0 || buffer == at.writes) continue;
    set("writes other buffer", [buffer](PipelineInstruction& x) { x.writes = buffer; });
    mutants.push_back({"buffer reused", [r, i, buffer](LoweredPipeline& l) {
                         List& spoiled = l.instructions[r];
                         for (size_t k = i + 1; k < spoiled.size(); ++k) {
                           if (spoiled[k].reads != spoiled[i].writes) continue;
                           spoiled[k].reads = buffer;
                           break;
                         }
                         spoiled[i].writes = buffer;
                       }});
  }
}

void AddNameMutants(size_t r, size_t i, const LoweredPipeline& lowered, std::vector<Mutant>& mutants) {
  const auto set = [&](const std::string& kind, auto spoil) {
    mutants.push_back({kind, [r, i, spoil](LoweredPipeline& l) { spoil(l.instructions[r][i]); }});
  };
  for (int by : {-1, 1}) {
    set("other micro-batch", [by](PipelineInstruction& x) { x.micro_batch += by; });
    set("other stage", [by](PipelineInstruction& x) { x.stage += by; });
    if (lowered.instructions[r][i].peer >= 0)
      set("other peer", [by](PipelineInstruction& x) { x.peer += by; });
  }
  for (int op = 0; op < kNumPipelineOps; ++op) {
    if (static_cast<int>(lowered.instructions[r][i].op) == op) continue;
    set("other operation", [op](PipelineInstruction& x) { x.op = static_cast<PipelineOp>(op); });
  }
}

std::vector<Mutant> MutantsOf(const LoweredPipeline& lowered) {
  std::vector<Mutant> mutants;
  for (size_t r = 0; r < lowered.instructions.size(); ++r) {
    mutants.push_back({"slot too many", [r](LoweredPipeline& l) { ++l.num_slots[r]; }});
    mutants.push_back({"slot too few", [r](LoweredPipeline& l) { --l.num_slots[r]; }});
    mutants.push_back({"buffer too many", [r](LoweredPipeline& l) { ++l.num_buffers[r]; }});
    for (size_t i = 0; i < lowered.instructions[r].size(); ++i) {
      AddListMutants(r, i, lowered.instructions[r], mutants);
      AddStorageMutants(r, i, lowered, mutants);
      AddNameMutants(r, i, lowered, mutants);
    }
  }
  return mutants;
}

TEST(PipelineCheck, RefusesMutantsUnlessTheyComputeTheSame) {
  enum { kRefused, kRefusedAndWrong, kEquivalent };
  std::map<std::string, std::array<int, 3>> counts;
  int total = 0;
  for (PipelineKind kind : AllKinds()) {
    for (const PipelineShape& shape : std::vector<PipelineShape>{{2, 4, 0}, {3, 4, 0}, {4, 8, 0}}) {
      PipelineShape fitting = shape;
      fitting.virtual_stages = LimitsOf(kind).min_virtual_stages;
      if (!CheckPipelineShape(kind, fitting).ok()) continue;
      const LoweredPipeline lowered = Lowered(kind, fitting);
      const PipelineOutcome expected = PipelineMachine(lowered, 1).Run();
      for (const Mutant& mutant : MutantsOf(lowered)) {
        LoweredPipeline spoiled = lowered;
        mutant.spoil(spoiled);
        ++total;
        const bool refused = !CheckPipeline(spoiled).ok();
        bool wrong = false;
        // In-range numbers are the machine's own premise.
        const bool runnable = [&] {
          for (const List& list : spoiled.instructions) {
            for (const PipelineInstruction& i : list) {
              if (i.stage < 0 || i.stage >= spoiled.placement.num_stages) return false;
            }
          }
          return true;
        }();
        for (uint32_t seed = 1; runnable && seed <= (refused ? 1u : 8u) && !wrong; ++seed) {
          wrong = PipelineMachine(spoiled, seed).Run() != expected;
        }
        if (!refused && (wrong || !runnable)) {
          ADD_FAILURE() << mutant.kind << " of " << Name(kind, fitting)
                        << " is accepted but computes wrongly";
        }
        std::array<int, 3>& count = counts[mutant.kind];
        ++count[refused ? kRefused : kEquivalent];
        if (refused && wrong) ++count[kRefusedAndWrong];
      }
    }
  }
  for (const auto& [kind, count] : counts) {
    std::printf("%-20s %6d refused (%d seen to go wrong), %d equivalent\n", kind.c_str(), count[kRefused],
                count[kRefusedAndWrong], count[kEquivalent]);
  }
  std::printf("%d mutants\n", total);
  // What can never be harmless.
  for (const char* kind : {"drop pass", "drop send", "drop receive", "double pass", "double send",
                           "double receive", "drop free of slot", "drop free of buffer", "free slot early",
                           "other slot", "other stage", "other peer", "slot too many", "slot too few"}) {
    EXPECT_GT(counts[kind][kRefused], 0) << kind;
    EXPECT_EQ(counts[kind][kEquivalent], 0) << kind;
  }
  EXPECT_GT(counts["slot reused"][kRefused], 0);
  EXPECT_GT(counts["swap"][kRefused], 0);
}

// ---- messages -------------------------------------------------------------------------------------

std::string Complaint(const LoweredPipeline& lowered) {
  const absl::Status status = CheckPipeline(lowered).status();
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData);
  return std::string(status.message());
}

// 1f1b on 2 ranks with 2 micro-batches; rank 0: F0 send F1 send recv B0 recv B1.
LoweredPipeline Small() { return Lowered(PipelineKind::k1F1B, {2, 2, 1}); }

TEST(PipelineCheck, NamesRankInstructionAndReason) {
  LoweredPipeline dropped = Small();
  dropped.instructions[0].erase(dropped.instructions[0].begin() + 1);
  EXPECT_THAT(Complaint(dropped), HasSubstr("rank 0"));

  LoweredPipeline early = Small();
  std::swap(early.instructions[0][0], early.instructions[0][1]);
  EXPECT_THAT(Complaint(early),
              HasSubstr("rank 0, instruction 0 (send activation of stage 0, micro-batch 0, to "
                        "rank 1): reads nothing instead of the activation between stages 0 and 1"));

  LoweredPipeline leak = Small();
  leak.instructions[1].back().frees_read = false;
  EXPECT_THAT(Complaint(leak),
              HasSubstr("rank 1 never frees the gradient between stages 0 and 1 of micro-batch 1"));

  LoweredPipeline crossed = Small();
  std::swap(crossed.instructions[1][0].micro_batch, crossed.instructions[1][0].slot);
  EXPECT_THAT(Complaint(crossed), HasSubstr("rank 1, instruction 0"));

  LoweredPipeline unknown = Small();
  unknown.instructions[0][0].op = static_cast<PipelineOp>(200);
  EXPECT_THAT(Complaint(unknown), HasSubstr("unknown instruction"));

  LoweredPipeline homeless = Small();
  homeless.placement.stage_ranks[1] = 7;
  EXPECT_THAT(Complaint(homeless), HasSubstr("stage 1 lies on rank 7, which does not exist"));

  EXPECT_THAT(Complaint(LoweredPipeline{}), HasSubstr("has lists for 0 ranks"));
}

TEST(PipelineCheck, FindsADeadlock) {
  // Each waits for the other's message before it sends its own: B of stage 0 before F of micro-batch 1.
  PipelineSchedule schedule = *BuildPipeline(PipelineKind::k1F1B, {2, 2, 1});
  std::vector<PipelineAction>& last = schedule.actions[1];   // F0 B0 F1 B1
  std::vector<PipelineAction>& first = schedule.actions[0];  // F0 F1 B0 B1
  std::swap(last[1], last[2]);                               // F0 F1 B0 B1
  std::swap(first[1], first[2]);                             // F0 B0 F1 B1
  const absl::StatusOr<LoweredPipeline> lowered = LowerPipeline(schedule);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_THAT(Complaint(*lowered), HasSubstr("waits for ever"));
}

// 1F1B sends forward and backward at once; with sends that wait for their receive, two ranks that
// both send first stand still. AFAB does one after the other.
TEST(PipelineCheck, TellsWhetherSendsMayWait) {
  EXPECT_TRUE(CheckPipeline(Lowered(PipelineKind::kGPipe, {4, 8, 1}))->rendezvous_safe);
  EXPECT_FALSE(CheckPipeline(Lowered(PipelineKind::k1F1B, {4, 8, 1}))->rendezvous_safe);
  EXPECT_TRUE(CheckPipeline(Lowered(PipelineKind::k1F1B, {4, 1, 1}))->rendezvous_safe);
}

TEST(PipelineCheck, LoweringRefusesASchedule) {
  const auto complaint = [](const std::function<void(PipelineSchedule&)>& spoil) {
    PipelineSchedule schedule = *BuildPipeline(PipelineKind::k1F1B, {2, 2, 1});
    spoil(schedule);
    const absl::Status status = LowerPipeline(schedule).status();
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData);
    return std::string(status.message());
  };
  EXPECT_THAT(complaint([](PipelineSchedule& s) { s.actions[0].erase(s.actions[0].begin()); }),
              HasSubstr("rank 0, action 1 (backward of stage 0, micro-batch 0) runs before its forward"));
  EXPECT_THAT(complaint([](PipelineSchedule& s) { s.actions[1].erase(s.actions[1].begin() + 3); }),
              HasSubstr("waits for a gradient that rank 1 does not send"));
  EXPECT_THAT(complaint([](PipelineSchedule& s) { s.actions[1][0].stage = 0; }),
              HasSubstr("belongs on rank 0"));
  EXPECT_THAT(complaint([](PipelineSchedule& s) { s.actions[1][0].micro_batch = 2; }),
              HasSubstr("is outside of 2 stages and 2 micro-batches"));
  EXPECT_THAT(complaint([](PipelineSchedule& s) { s.actions[0][0].joined = true; }), HasSubstr("overlaps"));
  EXPECT_THAT(
      complaint([](PipelineSchedule& s) { s.actions[0].insert(s.actions[0].begin(), s.actions[0][0]); }),
      HasSubstr("runs again before its backward"));
  EXPECT_THAT(complaint([](PipelineSchedule& s) { s.placement.stage_ranks.pop_back(); }),
              HasSubstr("no valid placement"));
}

// Slots are as few as the passes allow, buffers few and independent of the number of micro-batches.
TEST(PipelineCheck, LoweringIsFrugal) {
  for (PipelineKind kind : AllKinds()) {
    const int v = LimitsOf(kind).min_virtual_stages;
    const LoweredPipeline lowered = Lowered(kind, {4, 64, v});
    const PipelineTimes times = Times(lowered, {.stages = {{1, 1, 1}}});
    for (size_t r = 0; r < 4; ++r) {
      EXPECT_EQ(lowered.num_slots[r], times.peak_in_flight[r]) << PipelineKindName(kind);
      EXPECT_LE(lowered.num_buffers[r], 4) << PipelineKindName(kind);
    }
  }
}

}  // namespace
}  // namespace trainctl::schedule
