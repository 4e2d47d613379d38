#include "frameworks/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "frameworks/framework.h"
#include "model/architecture.h"
#include "tests/unit/frameworks/random_workload.h"
#include "tests/unit/num_cases.h"

namespace trainctl::frameworks {
namespace {

// A GPT of 96 layers of 12288 (arXiv 2005.14165) on 1,536 GPUs, as arXiv 2104.04473 cut it.
Workload Gpt(schedule::PipelineKind kind, int64_t virtual_stages, int64_t pp, int64_t micro_batches) {
  Workload w;
  SetNumLayers(w.model, 96);
  w.model.hidden = 12288;
  SetEach(w.model, &model::Mlp::ffn, 4 * 12288);
  SetEach(w.model, &model::Attention::heads, 96);
  SetEach(w.model, &model::Attention::kv_heads, 96);
  SetEach(w.model, &model::Attention::head_dim, 128);
  w.model.vocab = 51200;
  SetEach(w.model, &model::Mlp::gated, false);
  w.seq_len = 2048;
  w.micro_batch = 1;
  w.mesh.tp = 8;
  w.mesh.pp = pp;
  w.mesh.dp_shard = 2;
  w.virtual_stages = virtual_stages;
  w.global_batch = w.mesh.data_degree() * micro_batches;
  w.recompute = RecomputeKind::kFull;
  w.pipeline = kind;
  const auto device = cluster::FindDevice("h100");
  w.device = device->device;
  w.node = &cluster::DefaultNodeFor(*w.device);
  w.framework = FindFramework("megatron-core");
  return w;
}

struct Case {
  schedule::PipelineKind kind;
  int64_t virtual_stages;
};

std::vector<Case> AllKinds() {
  std::vector<Case> cases;
  for (int k = 0; k < schedule::kNumPipelineKinds; ++k) {
    const auto kind = static_cast<schedule::PipelineKind>(k);
    cases.push_back({kind, schedule::LimitsOf(kind).min_virtual_stages});
  }
  return cases;
}

double Peak(const RankTimeline& rank) {
  double peak = 0;
  for (const report::MemorySample& sample : rank.samples) {
    peak = std::max(peak,
                    rank.state_bytes + sample.gradient_bytes + sample.activation_bytes + sample.work_bytes);
  }
  return peak;
}

std::string Name(const Workload& w) {
  return absl::StrCat(std::string(schedule::PipelineKindName(w.Pipeline())), " pp=", w.mesh.pp,
                      " v=", w.virtual_stages, " m=", w.num_micro_batches());
}

std::vector<Workload> Jobs() {
  std::vector<Workload> jobs;
  for (const Case& c : AllKinds()) {
    for (const int64_t pp : {2, 4, 8}) {
      for (const int64_t m : {16, 24}) jobs.push_back(Gpt(c.kind, c.virtual_stages, pp, m));
    }
  }
  for (const int zero : {0, 1, 2, 3}) {
    Workload w = Gpt(schedule::PipelineKind::k1F1B, 1, 1, 5);
    w.zero_stage = zero;
    jobs.push_back(w);
    // One micro-batch: gradients that are no buffers come to be in its backward.
    w.framework = FindFramework("torchtitan");
    w.global_batch = w.mesh.data_degree();
    jobs.push_back(w);
    w = jobs[jobs.size() - 2];
    w.mesh.pp = 4;
    jobs.push_back(w);
  }
  return jobs;
}

// The two go separate ways from the same costs: PriceTime plays some rounds and adds the rest.
TEST(Timeline, EndsWhenPriceTimeSaysThatTheStepDoes) {
  for (const Workload& w : Jobs()) {
    ASSERT_TRUE(Validate(w).ok()) << Name(w) << Validate(w);
    const Timeline timeline = BuildTimeline(w);
    EXPECT_EQ(timeline.left_out_micro_batches, 0) << Name(w);
    const double step = PriceTime(w).step_seconds;
    EXPECT_NEAR(timeline.end_s, step, 1e-9 * step) << Name(w);
  }
}

TEST(Timeline, MemoryPeaksWherePriceMemorySays) {
  for (const Workload& w : Jobs()) {
    const Timeline timeline = BuildTimeline(w);
    ASSERT_EQ(timeline.ranks.size(), static_cast<size_t>(w.mesh.pp));
    for (size_t r = 0; r < timeline.ranks.size(); ++r) {
      const double expected = PriceMemoryOfRank(w, static_cast<int64_t>(r)).allocated_bytes;
      EXPECT_NEAR(Peak(timeline.ranks[r]), expected, 1e-9 * expected) << Name(w) << " rank " << r;
    }
    const MemoryPrice worst = PriceMemory(w);
    const double drawn = Peak(timeline.ranks[static_cast<size_t>(worst.stage)]);
    EXPECT_NEAR(drawn, worst.allocated_bytes, 1e-9 * drawn) << Name(w);
  }
}

TEST(Timeline, MemoryIsBackToTheStatesAtTheEnd) {
  for (const Workload& w : Jobs()) {
    for (const RankTimeline& rank : BuildTimeline(w).ranks) {
      const double most = rank.memory.moments[static_cast<size_t>(MemoryMoment::kBackward)].activations;
      EXPECT_GT(most, 0);
      EXPECT_NEAR(rank.samples.back().activation_bytes, 0, 1e-9 * most) << Name(w);
      EXPECT_EQ(rank.samples.back().work_bytes, 0);
      EXPECT_EQ(rank.samples.back().gradient_bytes, 0);
      EXPECT_TRUE(std::is_sorted(
          rank.samples.begin(), rank.samples.end(),
          [](const report::MemorySample& a, const report::MemorySample& b) { return a.time_s < b.time_s; }));
    }
  }
}

// Of a single micro-batch the backward makes the gradients, and the optimizer finds all of them.
TEST(Timeline, GradientsThatTheStepMakesAreThereForTheOptimizer) {
  Workload w = Gpt(schedule::PipelineKind::k1F1B, 1, 1, 1);
  w.framework = FindFramework("torchtitan");
  w.zero_stage = 3;
  const Timeline timeline = BuildTimeline(w);
  const RankTimeline& rank = timeline.ranks[0];
  const double made =
      rank.memory.At(MemoryMoment::kEnd).gradients - rank.memory.At(MemoryMoment::kBackward).gradients;
  ASSERT_GT(made, 0);
  EXPECT_EQ(rank.samples.front().gradient_bytes, 0);
  const double optimizer_s = rank.streams[0].spans.back().start_s;
  int found = 0;
  for (const report::MemorySample& sample : rank.samples) {
    if (sample.time_s != optimizer_s) continue;
    ++found;
    EXPECT_NEAR(sample.gradient_bytes, made, 1e-9 * made);
  }
  EXPECT_GT(found, 0);
}

TEST(Timeline, SpansOfAStreamFollowOneAnother) {
  for (const Workload& w : Jobs()) {
    const Timeline timeline = BuildTimeline(w);
    for (const RankTimeline& rank : timeline.ranks) {
      for (const report::Stream& stream : rank.streams) {
        double end = 0;
        for (const report::Span& span : stream.spans) {
          EXPECT_GE(span.start_s, end - 1e-12) << Name(w) << " " << stream.name;
          EXPECT_GT(span.end_s, span.start_s) << Name(w) << " " << stream.name;
          end = span.end_s;
        }
        EXPECT_LE(end, timeline.end_s * (1 + 1e-12)) << Name(w) << " " << stream.name;
      }
    }
  }
}

// Every stage runs every micro-batch once each way.
TEST(Timeline, EveryPassIsThere) {
  for (const Workload& w : Jobs()) {
    const Timeline timeline = BuildTimeline(w);
    int64_t forwards = 0, backwards = 0;
    for (const RankTimeline& rank : timeline.ranks) {
      for (const report::Span& span : rank.streams[0].spans) {
        forwards += span.kind == report::SpanKind::kForward;
        backwards +=
            span.kind == report::SpanKind::kBackward || span.kind == report::SpanKind::kBackwardInput;
      }
    }
    EXPECT_EQ(forwards, timeline.num_stages * w.num_micro_batches()) << Name(w);
    EXPECT_EQ(backwards, forwards) << Name(w);
  }
}

// All that a rank does while it has a span of its own adds up to what PriceTime counts.
TEST(Timeline, ExchangesOfTheSlowestRankAreThoseOfPriceTime) {
  Workload w = Gpt(schedule::PipelineKind::kInterleaved1F1B, 2, 4, 16);
  const Timeline timeline = BuildTimeline(w);
  double most = 0;
  for (const RankTimeline& rank : timeline.ranks) {
    double seconds = 0;
    for (const report::Stream& stream : rank.streams) {
      if (stream.kind != report::StreamKind::kExchange) continue;
      for (const report::Span& span : stream.spans) seconds += span.end_s - span.start_s;
    }
    most = std::max(most, seconds);
  }
  EXPECT_GT(most, 0);
  EXPECT_NEAR(most, timeline.parts.price.tensor_seconds, 1e-9 * most);
}

TEST(Timeline, VeryLongStepsAreCutAndSayHowMuch) {
  const Workload w = Gpt(schedule::PipelineKind::k1F1B, 1, 8, 1003);
  TimelineOptions options;
  options.max_passes = 1000;
  const Timeline timeline = BuildTimeline(w, options);
  EXPECT_GT(timeline.left_out_micro_batches, 900);
  EXPECT_EQ(timeline.left_out_micro_batches % 8, 0);
  EXPECT_LT(timeline.end_s, timeline.parts.price.step_seconds / 10);
  EXPECT_NEAR(timeline.end_s + timeline.left_out_s, timeline.parts.price.step_seconds,
              1e-9 * timeline.parts.price.step_seconds);
  const Timeline whole = BuildTimeline(w);
  EXPECT_EQ(whole.left_out_micro_batches, 0);
  EXPECT_NEAR(whole.end_s, timeline.end_s + timeline.left_out_s, 1e-9 * whole.end_s);
}

// Any model, machine, framework, degrees and schedule.
TEST(Timeline, AgreesWithThePricesOfRandomJobs) {
  RandomJobs random(11);
  int failures = 0;
  for (int i = 0; i < NumCases(1500) && failures < 5; ++i) {
    Workload w = random.Next();
    if (w.mesh.pp > 1) {
      const auto kind = static_cast<schedule::PipelineKind>(random.Below(schedule::kNumPipelineKinds));
      Workload other = w;
      other.pipeline = kind;
      other.virtual_stages = schedule::LimitsOf(kind).min_virtual_stages;
      if (Validate(other).ok()) w = other;
    }
    const Timeline timeline = BuildTimeline(w);
    const double step = PriceTime(w).step_seconds;
    // Of long steps PriceTime plays some rounds and repeats them.
    const double tolerance = w.num_micro_batches() > 5 * w.mesh.pp ? 2e-2 : 1e-9;
    std::string problem;
    if (!(std::fabs(timeline.end_s + timeline.left_out_s - step) <= tolerance * step)) {
      absl::StrAppend(&problem, "ends at ", timeline.end_s, " + ", timeline.left_out_s, " s, the step takes ",
                      step);
    }
    for (size_t r = 0; r < timeline.ranks.size(); ++r) {
      // Passes of stages without a layer take no time.
      if (LayersOfRank(w, static_cast<int64_t>(r)).empty()) continue;
      const MemoryPrice& memory = timeline.ranks[r].memory;
      const double drawn = Peak(timeline.ranks[r]);
      // With several stages a rank may not hold all of its activations yet when the loss is formed, or not
      // any more when the embedding has its backward; the price says that it does.
      const bool other = memory.moment == MemoryMoment::kLoss || memory.moment == MemoryMoment::kEnd;
      const double least = other && timeline.num_stages > w.mesh.pp
                               ? memory.allocated_bytes - memory.At(memory.moment).sum() +
                                     memory.At(MemoryMoment::kBackward).sum()
                               : memory.allocated_bytes;
      if (!(drawn >= least * (1 - 1e-9) && drawn <= memory.allocated_bytes * (1 + 1e-9))) {
        absl::StrAppend(&problem, "\n  rank ", r, " peaks at ", drawn, " bytes, priced at ",
                        memory.allocated_bytes, ", moment ", static_cast<int>(memory.moment));
        break;
      }
      for (const report::Stream& stream : timeline.ranks[r].streams) {
        double end = 0;
        for (const report::Span& span : stream.spans) {
          if (span.start_s < end - 1e-12 * step)
            absl::StrAppend(&problem, "\n  spans of ", stream.name, " overlap");
          end = span.end_s;
        }
      }
    }
    if (problem.empty()) continue;
    ++failures;
    ADD_FAILURE() << problem << "\n  job " << i << ": " << Name(w) << ", " << DescribeJob(w);
  }
}

}  // namespace
}  // namespace trainctl::frameworks
