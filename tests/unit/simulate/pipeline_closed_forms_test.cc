// Bubble and activations in flight of every schedule against the closed forms that its authors
// publish. Times are small integers, so that sums of doubles are exact. `F`, `I`, `W` are forward,
// input backward and weight backward of one stage, B = I + W; p ranks, m micro-batches, v stages
// per rank. Bubbles of a schedule with v stages per rank are in the time of one of its stages.

#include <gtest/gtest.h>

#include "tests/unit/simulate/pass_times.h"

namespace trainctl::simulate {
namespace {

using schedule::Expanded;
using schedule::PipelineKind;

constexpr int kRanks[] = {1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 16};
const StageCosts kUnit = {1, 1, 1};
// F, I, W with W the shortest, as in a transformer layer with attention.
const std::vector<StageCosts> kCosts = {{1, 1, 1}, {4, 4, 3}, {3, 4, 2}, {4, 6, 3}, {5, 4, 4}};

// Work of one rank that holds `stages` stages.
double Work(const StageCosts& c, int micro_batches, int stages = 1) {
  return (c.forward_s + c.input_backward_s + c.weight_backward_s) * micro_batches * stages;
}
double FB(const StageCosts& c) { return c.forward_s + c.input_backward_s + c.weight_backward_s; }

std::vector<int> MicroBatches(int p) { return {1, 2, p, p + 1, 2 * p - 1, 2 * p, 4 * p, 64}; }

// Huang et al., GPipe (arXiv 1811.06965), section 2.3: bubble (p-1)/(m+p-1) of the time, all m
// micro-batches in flight on every rank.
TEST(StepClosedForms, GPipe) {
  for (int p : kRanks) {
    for (int m : MicroBatches(p)) {
      for (const StageCosts& c : kCosts) {
        const PassTimes times = Times(PipelineKind::kGPipe, {p, m, 1}, c);
        EXPECT_EQ(times.makespan_s, (m + p - 1) * FB(c));
        EXPECT_EQ(times.max_bubble_s(), (p - 1) * FB(c));
        for (int in_flight : times.peak_in_flight) EXPECT_EQ(in_flight, m);
      }
    }
  }
}

// Narayanan et al. (arXiv 2104.04473), section 2.2: the bubble of GPipe with at most p - i
// micro-batches in flight on rank i.
TEST(StepClosedForms, OneForwardOneBackward) {
  for (int p : kRanks) {
    for (int m : MicroBatches(p)) {
      for (const StageCosts& c : kCosts) {
        const PassTimes times = Times(PipelineKind::k1F1B, {p, m, 1}, c);
        EXPECT_EQ(times.makespan_s, (m + p - 1) * FB(c));
        for (int i = 0; i < p; ++i)
          EXPECT_EQ(times.peak_in_flight[static_cast<size_t>(i)], std::min(m, p - i));
      }
    }
  }
}

// The same paper: (p-1)(F+B)/v in the time of a rank's whole share of the model, for m a multiple
// of p. Memory: Megatron-LM's theoretical_memory_usage.py has p(1 + (p-1)/(pv)) micro-batches on
// the first rank, which is pv + p - 1 stage activations; rank i has two forwards less for each rank
// before it, from the warm-up of its schedules.py.
TEST(StepClosedForms, Interleaved) {
  for (int p : kRanks) {
    for (int v : {2, 3, 4}) {
      for (int m : {p, 2 * p, 4 * p}) {
        for (const StageCosts& c : kCosts) {
          const PassTimes times = Times(PipelineKind::kInterleaved1F1B, {p, m, v}, c);
          EXPECT_EQ(times.makespan_s - Work(c, m, v), (p - 1) * FB(c)) << p << " " << m << " " << v;
          for (int i = 0; i < p; ++i) {
            EXPECT_EQ(times.peak_in_flight[static_cast<size_t>(i)], std::min(m * v, p * v + p - 1 - 2 * i));
          }
        }
      }
    }
  }
}

// Lamy-Poirier (arXiv 2211.05953), section 4: the bubble of the interleaved schedule, for m >= p,
// with all micro-batches in flight.
TEST(StepClosedForms, LoopedBreadthFirst) {
  for (int p : kRanks) {
    for (int v : {2, 3, 4}) {
      for (int m : {p, p + 1, 2 * p, 4 * p}) {
        for (const StageCosts& c : kCosts) {
          const PassTimes times = Times(PipelineKind::kLoopedBreadthFirst, {p, m, v}, c);
          EXPECT_EQ(times.makespan_s - Work(c, m, v), (p - 1) * FB(c));
          for (int in_flight : times.peak_in_flight) EXPECT_EQ(in_flight, m * v);
        }
      }
    }
  }
}

// Qi et al. (arXiv 2401.10241), table 1: ZB-H1 has a bubble of (p-1)(F + I - W), a third of 1F1B's
// for F = I = W, and 1F1B's peak of p micro-batches, on every rank.
TEST(StepClosedForms, ZbH1) {
  for (int p : kRanks) {
    for (int m : {p, p + 1, 2 * p, 64}) {
      for (const StageCosts& c : kCosts) {
        const PassTimes times = Times(PipelineKind::kZbH1, {p, m, 1}, c);
        EXPECT_EQ(times.max_inner_bubble_s(),
                  (p - 1) * (c.forward_s + c.input_backward_s - c.weight_backward_s));
        EXPECT_EQ(Peak(times), p);
      }
    }
  }
}

// The same table: (p-1)(F + I - 2W), nothing for F = I = W, and 2p - 1 micro-batches. Its bubble
// lies between a rank's first and last pass: ranks end in the order in which they began, and the
// next step may follow at once (section 4, post-validation of the optimizer step).
TEST(StepClosedForms, ZbH2) {
  for (int p : kRanks) {
    for (int m : {2 * p - 1, 2 * p, 4 * p, 64}) {
      for (const StageCosts& c : kCosts) {
        const PassTimes times = Times(PipelineKind::kZbH2, {p, m, 1}, c);
        EXPECT_EQ(times.max_inner_bubble_s(),
                  (p - 1) * (c.forward_s + c.input_backward_s - 2 * c.weight_backward_s));
        EXPECT_EQ(Peak(times), 2 * p - 1);
      }
      // With a rank's start counted, only the way of the first micro-batch to the last rank is idle.
      EXPECT_EQ(Times(PipelineKind::kZbH2, {p, m, 1}, kUnit).makespan_s, 3 * m + p - 1);
    }
  }
}

// PyTorch's ScheduleInterleavedZeroBubble refers to the paper for ZB1P over several stages per rank
// and gives no form; the bubble of ZB-H1 divided by v, as for 1F1B, and its memory of p micro-batches.
TEST(StepClosedForms, InterleavedZeroBubble) {
  for (int p : kRanks) {
    for (int v : {2, 3, 4}) {
      for (int m : {p, 2 * p, 4 * p}) {
        for (const StageCosts& c : kCosts) {
          const PassTimes times = Times(PipelineKind::kInterleavedZeroBubble, {p, m, v}, c);
          EXPECT_EQ(times.max_inner_bubble_s(),
                    (p - 1) * (c.forward_s + c.input_backward_s - c.weight_backward_s))
              << p << " " << m << " " << v;
          EXPECT_EQ(Peak(times), p * v);
        }
      }
    }
  }
}

// arXiv 2401.10241, section 6, and the table in sail-sg/zero-bubble-pipeline-parallelism's README:
// no bubble for F = I = W, activations of 1F1B: p micro-batches, two stages each, on every rank.
TEST(StepClosedForms, Zbv) {
  for (int p : kRanks) {
    for (int m : {2 * p - 1, 2 * p, 4 * p, 64}) {
      const PassTimes times = Times(PipelineKind::kZbv, {p, m, 2}, kUnit);
      EXPECT_EQ(times.max_inner_bubble_s(), 0) << p << " " << m;
      EXPECT_EQ(times.makespan_s, 6 * m + p - 1);
      for (int in_flight : times.peak_in_flight) EXPECT_EQ(in_flight, 2 * p);
    }
  }
}

// The same table: half of 1F1B's bubble for F = I = W (1F1B: (p-1) * 6 of our units). Activations:
// floor((p+2)/2) micro-batches of two stages (the authors' scheduler playground,
// sail/pipeline-parallelism-with-controllable-memory). An odd p saves one unit more.
TEST(StepClosedForms, VHalf) {
  for (int p : kRanks) {
    for (int m : {p, p + 1, 2 * p, 4 * p, 64}) {
      const PassTimes times = Times(PipelineKind::kVHalf, {p, m, 2}, kUnit);
      const int half_of_1f1b = 3 * (p - 1);
      EXPECT_LE(times.max_bubble_s(), half_of_1f1b) << p << " " << m;
      EXPECT_GE(times.max_bubble_s(), half_of_1f1b - 1) << p << " " << m;
      if (m > p) {
        EXPECT_EQ(Peak(times), 2 * ((p + 2) / 2));
      }
    }
  }
}

// The playground again: V-Half has no bubble but at both ends as long as W + 2I >= 2F and
// W + 2F >= 2I; beyond that a micro-batch waits for what is missing.
TEST(StepClosedForms, VHalfToleratesUnequalPasses) {
  for (int p : {3, 4, 5, 8, 16}) {
    const auto per_micro_batch = [&](const StageCosts& c) {
      return (Times(PipelineKind::kVHalf, {p, 128, 2}, c).max_bubble_s() -
              Times(PipelineKind::kVHalf, {p, 64, 2}, c).max_bubble_s()) /
             64;
    };
    for (const StageCosts& c :
         std::vector<StageCosts>{{4, 5, 4}, {5, 4, 4}, {4, 4, 3}, {3, 4, 2}, {6, 4, 4}}) {
      EXPECT_EQ(per_micro_batch(c), 0) << p << " " << c.forward_s << " " << c.input_backward_s;
    }
    EXPECT_LE(per_micro_batch({4, 8, 4}), 2 * 8 - (4 + 2 * 4)) << p;
  }
}

// The same: two thirds of 1F1B's bubble and a constant, and floor((p+4)/3) micro-batches.
TEST(StepClosedForms, VMin) {
  for (int p : kRanks) {
    for (int m : {p, p + 1, 2 * p, 4 * p, 64}) {
      const PassTimes times = Times(PipelineKind::kVMin, {p, m, 2}, kUnit);
      const int two_thirds_of_1f1b = 4 * (p - 1);
      EXPECT_LE(times.max_bubble_s(), two_thirds_of_1f1b + 1) << p << " " << m;
      EXPECT_GE(times.max_bubble_s(), two_thirds_of_1f1b - 1) << p << " " << m;
      if (m > p) {
        EXPECT_EQ(Peak(times), 2 * ((p + 4) / 3));
      }
    }
  }
}

// deepseek-ai/DualPipe's README, for P stages of one direction (P = p for DualPipe, 2p for
// DualPipeV): bubble (P/2-1)(F&B + B - 3W), activations P+1 on every rank. Without overlap F&B,
// a forward and a backward together, is F + B. Exact where F = I, so that both directions keep step.
TEST(StepClosedForms, DualPipe) {
  for (int p : {2, 4, 6, 8, 12, 16}) {
    for (int m : {2 * p, 2 * p + 2, 4 * p, 64}) {
      for (const StageCosts& c : std::vector<StageCosts>{{1, 1, 1}, {4, 4, 3}, {4, 4, 2}}) {
        const double bubble = FB(c) + c.input_backward_s - 2 * c.weight_backward_s;
        const PassTimes dual = Times(PipelineKind::kDualPipe, {p, m, 1}, c);
        EXPECT_EQ(dual.max_bubble_s(), (p / 2 - 1) * bubble) << p << " " << m;
        for (int in_flight : dual.peak_in_flight) EXPECT_EQ(in_flight, p + 1);
        const PassTimes v = Times(PipelineKind::kDualPipeV, {p, m, 2}, c);
        EXPECT_EQ(v.max_bubble_s(), (p - 1) * bubble) << p << " " << m;
        for (int in_flight : v.peak_in_flight) EXPECT_EQ(in_flight, 2 * p + 1);
      }
    }
  }
}

// The same README: 2x parameters per device.
TEST(StepClosedForms, DualPipeHoldsTwoStagesPerRank) {
  const schedule::Step dual = Expanded(PipelineKind::kDualPipe, {4, 8, 1});
  EXPECT_EQ(dual.placement.StagesOf(0), (std::vector<int>{0, 3}));
  EXPECT_EQ(dual.placement.StagesOf(2), (std::vector<int>{1, 2}));
  EXPECT_EQ(Expanded(PipelineKind::kDualPipeV, {4, 8, 2}).placement.StagesOf(1), (std::vector<int>{1, 6}));
}

}  // namespace
}  // namespace trainctl::simulate
