// Random steps through builder, checker and player: every pipeline order, ZeRO stage and recompute. The
// number is small by default; TRAINCTL_STEP_CASES=100000 runs the whole on two threads (ctest -R step). The
// time is printed and asserts nothing.

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <thread>

#include "schedule/step_hash.h"
#include "simulate/memory.h"
#include "simulate/play.h"
#include "tests/unit/num_cases.h"
#include "tests/unit/schedule/step_testing.h"

namespace trainctl::simulate {
namespace {

using schedule::Case;
using schedule::Instruction;
using schedule::Op;
using schedule::PipelineKind;

struct Tally {
  std::vector<int64_t> num_instructions;  // by case
  std::string failure;
};

// A step of random order, 1 to 16 ranks, 1 to 64 micro-batches, 1 to 4 stages per rank, as far as the order
// allows; of a model with a block or a few for each stage.
Case Draw(std::mt19937& random) {
  const auto below = [&](uint32_t n) { return static_cast<int>(random() % n); };
  Case test;
  int p = 1, m = 1, v = 1;
  PipelineKind kind = PipelineKind::kGPipe;
  do {
    kind = static_cast<PipelineKind>(below(schedule::kNumPipelineKinds));
    const schedule::PipelineLimits limits = schedule::LimitsOf(kind);
    p = 1 + below(16);
    m = 1 + below(64);
    v = std::clamp(1 + below(4), limits.min_virtual_stages, limits.max_virtual_stages);
  } while (!schedule::CheckPipelineShape(kind, {p, m, v}).ok());
  test.pipeline = kind;
  test.virtual_stages = v;
  test.num_micro_batches = m;
  test.mesh.pp = p;
  // Two blocks are the embedding and the head.
  test.layers = std::max(1, p * v * (1 + (below(32) == 0 ? 1 : 0)) - 2 + below(2));
  if (test.layers + 2 < p * v) test.layers = p * v - 2;
  test.stage = below(4);
  (test.stage == 0 ? test.mesh.dp_replicate : test.mesh.dp_shard) = 2;
  test.tied = below(2) == 0;
  test.recompute = static_cast<layout::Recompute>(below(3));
  if (test.recompute == layout::Recompute::kFull && below(2) == 0) {
    for (int s = 0; s < p * v; ++s) test.recomputed_layers.push_back(below(3));
  }
  test.prefetch = below(2) == 0;
  return test;
}

// Seconds of a block's work; what is sent or summed takes a tenth.
double SecondsOf(const Instruction& instruction) {
  switch (instruction.op) {
    case Op::kForward:
    case Op::kRecompute:
      return 1 + 0.25 * (instruction.block % 3);
    case Op::kBackward:
      return 2;
    case Op::kBackwardInput:
    case Op::kBackwardWeight:
    case Op::kLossAndGradient:
      return 1;
    default:
      return 0.1;
  }
}

std::string RunCase(const Case& test, Tally& tally) {
  const schedule::BuiltCase built = schedule::Build(test);
  const absl::StatusOr<schedule::Proof> proof = Check(built.step, built.ledger);
  if (!proof.ok()) return proof.status().ToString();
  tally.num_instructions.push_back(proof->num_instructions);
  if (proof->min_messages_in_flight < 1) return "does not finish in list order";
  const absl::StatusOr<Played> played =
      Play(built.step, [](int, const Instruction& instruction) { return SecondsOf(instruction); });
  if (!played.ok()) return played.status().ToString();
  for (size_t c = 0; c < built.step.programs.size(); ++c) {
    const schedule::Program& program = built.step.programs[c];
    double work = 0;
    for (const Instruction& instruction : program.instructions)
      work += instruction.stream == schedule::kComputeStream ? SecondsOf(instruction) : 0;
    // Sums in another order; a joined pair counts once, as the sum of both.
    if (std::abs(played->classes[c].busy_s - work) > 1e-9 * work)
      return absl::StrCat("class ", c, " idles at work");
    if (played->end_s < work * (1 - 1e-12)) return "is faster than its busiest class";
    const MemoryReport memory = SimulateMemory(program);
    int64_t persistent = 0;
    for (const schedule::Value& value : program.values) persistent += value.persistent ? value.bytes : 0;
    if (memory.peak_bytes <= persistent) return "has no activations";
  }
  return "";
}

void RunCases(uint32_t seed, int count, Tally& tally) {
  std::mt19937 random(seed);
  for (int i = 0; i < count && tally.failure.empty(); ++i) {
    const Case test = Draw(random);
    const std::string failure = RunCase(test, tally);
    if (!failure.empty()) tally.failure = absl::StrCat(test.Name(), ": ", failure);
  }
}

TEST(StepCases, RandomStepsAreBuiltProvenAndPlayed) {
  const char* wanted = std::getenv("TRAINCTL_STEP_CASES");
  const int count = wanted != nullptr ? std::max(2, std::atoi(wanted)) : NumCases(1000);
  // A quarter of the time went into pages that one step gave back and the next asked for.
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  const auto start = std::chrono::steady_clock::now();
  std::vector<Tally> tallies(2);
  std::thread other(RunCases, 1u, count / 2, std::ref(tallies[0]));
  RunCases(2u, count - count / 2, tallies[1]);
  other.join();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::vector<int64_t> sizes;
  for (const Tally& tally : tallies) {
    EXPECT_EQ(tally.failure, "");
    sizes.insert(sizes.end(), tally.num_instructions.begin(), tally.num_instructions.end());
  }
  ASSERT_EQ(sizes.size(), static_cast<size_t>(count));
  std::nth_element(sizes.begin(), sizes.begin() + count / 2, sizes.end());
  const int64_t median = sizes[static_cast<size_t>(count / 2)];
  EXPECT_GE(median, 500);
  std::printf("%d steps of %lld instructions (median) in %.2f s on 2 threads: %.0f a minute\n", count,
              static_cast<long long>(median), seconds, 60 * count / seconds);
}

}  // namespace
}  // namespace trainctl::simulate
