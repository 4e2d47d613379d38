// What holds for every job, whatever its price: over random models, machines, frameworks and degrees.

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "frameworks/data_parallel_time.h"
#include "frameworks/pipeline_rank.h"
#include "frameworks/price_memory.h"
#include "frameworks/price_time.h"
#include "tests/unit/frameworks/random_workload.h"
#include "tests/unit/num_cases.h"

namespace trainctl::frameworks {
namespace {

constexpr int kJobs = NumCases(3000);
constexpr int kFailuresShown = 5;
// Of sums of floating-point numbers in another order.
constexpr double kRounding = 1e-9;

// Calls `check` with random jobs until some have failed.
template <typename Check>
void ForRandomJobs(uint64_t seed, int jobs, Check check) {
  RandomJobs random(seed);
  int failures = 0;
  for (int i = 0; i < jobs && failures < kFailuresShown; ++i) {
    const Workload w = random.Next();
    const std::string problem = check(w);
    if (problem.empty()) continue;
    ++failures;
    ADD_FAILURE() << problem << "\n  job " << i << ": " << DescribeJob(w);
  }
}

std::vector<std::pair<const char*, double>> TimeParts(const TimePrice& t) {
  return {
      {"compute", t.compute_seconds}, {"recompute", t.recompute_seconds}, {"tensor", t.tensor_seconds},
      {"expert", t.expert_seconds},   {"context", t.context_seconds},     {"pipeline", t.pipeline_seconds},
      {"data", t.data_seconds},       {"optimizer", t.optimizer_seconds}, {"offload", t.offload_seconds}};
}

TEST(Properties, MemoryIsTheSumOfItsCategoriesAndNoneIsNegative) {
  ForRandomJobs(1, kJobs, [](const Workload& w) -> std::string {
    const MemoryPrice price = PriceMemory(w);
    double tensors = 0;
    for (size_t i = 0; i < price.parts.size(); ++i) {
      if (!std::isfinite(price.parts[i]) || price.parts[i] < 0)
        return absl::StrCat("part ", i, " is ", price.parts[i]);
      if (static_cast<MemoryPart>(i) != MemoryPart::kOutside) tensors += price.parts[i];
    }
    const double outside = price.parts[static_cast<size_t>(MemoryPart::kOutside)];
    if (std::abs(tensors - price.allocated_bytes) > kRounding * tensors)
      return absl::StrCat("parts make ", tensors, ", allocated ", price.allocated_bytes);
    if (!(price.allocated_bytes > 0 && price.reserved_bytes >= price.allocated_bytes))
      return absl::StrCat("allocated ", price.allocated_bytes, " reserved ", price.reserved_bytes);
    const double device = price.reserved_bytes + outside;
    if (std::abs(device - price.device_bytes) > kRounding * device)
      return absl::StrCat("reserved and outside make ", device, ", device ", price.device_bytes);
    if (!(price.upper_bytes >= price.device_bytes && std::isfinite(price.upper_bytes)))
      return absl::StrCat("device ", price.device_bytes, " upper ", price.upper_bytes);
    return "";
  });
}

TEST(Properties, TimeIsTheSumOfItsPartsAndNoneIsNegative) {
  ForRandomJobs(2, kJobs, [](const Workload& w) -> std::string {
    const TimePrice price = PriceTime(w);
    double sum = 0;
    for (const auto& [name, seconds] : TimeParts(price)) {
      if (!std::isfinite(seconds) || seconds < 0) return absl::StrCat(name, " is ", seconds);
      sum += seconds;
    }
    if (!(price.step_seconds > 0) || std::abs(sum - price.step_seconds) > kRounding * sum)
      return absl::StrCat("parts make ", sum, ", the step ", price.step_seconds);
    return "";
  });
}

TEST(Properties, APriceIsTheSameEachTime) {
  RandomJobs random(3);
  std::vector<Workload> jobs;
  for (int i = 0; i < 300; ++i) jobs.push_back(random.Next());
  std::vector<std::pair<double, double>> first;
  for (const Workload& w : jobs) first.emplace_back(PriceTime(w).step_seconds, PriceMemory(w).device_bytes);
  for (size_t i = jobs.size(); i-- > 0;) {
    EXPECT_EQ(PriceTime(jobs[i]).step_seconds, first[i].first) << DescribeJob(jobs[i]);
    EXPECT_EQ(PriceMemory(jobs[i]).device_bytes, first[i].second) << DescribeJob(jobs[i]);
  }
}

// What is wrong with `w` on a machine that is `faster` in what `raised` names, with contention off and the
// order of passes fixed; empty: it is no slower.
std::string SlowerOn(const Tuning& faster, const std::string& raised, const Workload& w) {
  const TunedMachine machine(faster, *w.device, *w.node);
  Workload on_faster = w;
  machine.Apply(on_faster);
  const double before = PriceTime(w, {.contention = false}).step_seconds;
  const double after = PriceTime(on_faster, {.contention = false}).step_seconds;
  if (after <= before * (1 + kRounding)) return "";
  return absl::StrCat(raised, " 1.7 times as high: ", before, " s become ", after, " s");
}

TEST(Properties, AFasterMachineIsNeverSlower) {
  for (const auto& [name, member] : TuningConstants()) {
    if (member == &Tuning::reserved_share) continue;
    Tuning faster;
    faster.*member = 1.7;
    const std::string raised(name);
    const bool links = member == &Tuning::link_bandwidth;
    ForRandomJobs(4, kJobs, [&](const Workload& w) -> std::string {
      // Blocks of the first pipeline rank are gathered beside its own passes, and what they take is added to
      // the slowest rank's, which may be another: faster passes of the one hide less.
      if (!links && w.mesh.pp > 1 && w.zero_stage >= 2) return "";
      return SlowerOn(faster, raised, w);
    });
  }
}

// ZeRO-2 and 3 under a pipeline too.
TEST(Properties, AMachineThatIsFasterInAllIsNeverSlower) {
  const Tuning faster = {.matmul_rate = 1.7, .memory_bandwidth = 1.7, .link_bandwidth = 1.7};
  int gathered_under_a_pipeline = 0;
  ForRandomJobs(8, kJobs, [&](const Workload& w) -> std::string {
    gathered_under_a_pipeline += w.mesh.pp > 1 && w.zero_stage >= 2;
    return SlowerOn(faster, "all rates", w);
  });
  EXPECT_GT(gathered_under_a_pipeline, kJobs / 10);
}

TEST(Properties, MoreMemoryChangesNeitherTimeNorTensors) {
  ForRandomJobs(5, 300, [](const Workload& w) -> std::string {
    cluster::Device larger = *w.device;
    larger.memory_bytes.value *= 2;
    Workload on_larger = w;
    on_larger.device = &larger;
    if (PriceTime(on_larger).step_seconds > PriceTime(w).step_seconds) return "slower with more memory";
    // The allocator may keep more of what it freed; the tensors are the same.
    if (PriceMemory(on_larger).allocated_bytes != PriceMemory(w).allocated_bytes)
      return "other tensors where there is more memory";
    return "";
  });
}

TEST(Properties, DoublingDataParallelismAtTheSameBatchNeverRaisesActivations) {
  int compared = 0;
  ForRandomJobs(6, kJobs, [&](const Workload& w) -> std::string {
    Workload doubled = w;
    (w.mesh.dp_replicate == 1 ? doubled.mesh.dp_shard : doubled.mesh.dp_replicate) *= 2;
    if (!Validate(doubled).ok()) return "";  // too few micro-batches for it
    ++compared;
    for (int64_t rank = 0; rank < w.mesh.pp; ++rank) {
      const MemoryPrice before = PriceMemoryOfRank(w, rank);
      const MemoryPrice after = PriceMemoryOfRank(doubled, rank);
      // At another moment other things are there: while the optimizer runs no activation is left.
      if (before.moment == after.moment) {
        const auto activations = static_cast<size_t>(MemoryPart::kActivations);
        if (after.parts[activations] > before.parts[activations] * (1 + kRounding))
          return absl::StrCat("activations ", before.parts[activations], " become ",
                              after.parts[activations]);
      }
      // ZeRO-2 and 3 over more than one rank need room for a block's gradient before it is scattered, and for
      // gathered blocks, which one rank alone does not; the gradients of a single micro-batch come to be
      // beside the loss.
      const bool begins_to_gather = w.zero_stage >= 2 && w.mesh.dp_shard == 1;
      const bool single = doubled.num_micro_batches() == 1;
      if (!begins_to_gather && !single && after.allocated_bytes > before.allocated_bytes * (1 + kRounding))
        return absl::StrCat("tensors ", before.allocated_bytes, " become ", after.allocated_bytes);
    }
    return "";
  });
  EXPECT_GT(compared, kJobs / 4);
}

// Whoever shards gradients pays for accumulation: each micro-batch's are exchanged, or all of them are kept
// whole until the last. Here nothing hides an exchange.
TEST(Properties, ShardedGradientsCostExchangesOrMemoryWhenTheyAreAddedUp) {
  int exchanged = 0, kept = 0;
  ForRandomJobs(9, kJobs, [&](Workload w) -> std::string {
    if (w.zero_stage < 2 || w.mesh.data_degree() * w.mesh.cp == 1 || w.num_micro_batches() == 1) return "";
    // Expert ranks may be as many as all ranks, which leaves one owner of each.
    if (w.mesh.dp_shard == 1 || w.mesh.ep > 1) return "";
    Workload one = w;
    one.mesh.pp = one.virtual_stages = 1;
    one.pipeline = std::nullopt;
    one.global_batch = w.micro_batch * w.mesh.data_degree();
    Workload more = w;
    if (w.mesh.pp == 1) more = one, more.global_batch *= w.num_micro_batches();
    const RankParameters own = ParametersOfRank(more, 0);
    const double gradients = PriceMemoryOfRank(more, 0).At(MemoryMoment::kEnd).gradients;
    const bool whole = gradients > 0.99 * own.all() * more.GradientBytes();
    Workload first = more;
    first.global_batch = w.micro_batch * w.mesh.data_degree();
    // Of all passes but the first, reducing what one rank has at a rate that no link here reaches.
    const double least = static_cast<double>(more.num_micro_batches() - 1) * own.all() *
                         more.ExchangedGradientBytes() / 2 / 1e12;
    const double grows = TimeDataParallel(more, PassTimes{}, true).total() -
                         TimeDataParallel(first, PassTimes{}, true).total();
    whole ? ++kept : ++exchanged;
    if (!whole && grows < least) return absl::StrCat("sharded gradients, exchanges grow by ", grows);
    return "";
  });
  EXPECT_GT(exchanged, kJobs / 10);
  EXPECT_GT(kept, kJobs / 150);
}

// (p - 1) of a stage's micro-batch, over v when each rank has v stages (arXiv 2104.04473, section 2.2), where
// stages are equal and transfers take nothing to speak of.
TEST(Properties, TheBubbleIsTheClosedForm) {
  int compared = 0;
  RandomJobs random(7);
  for (int i = 0; i < 20 * kJobs && compared < 300; ++i) {
    Workload w = random.Next();
    if (w.mesh.pp == 1 || w.framework->embedding_counts_as_layer || FindExperts(w.model) != nullptr) continue;
    if (w.framework->blocking_launches) continue;  // every kernel of the head takes the host's time
    // Equal stages, a head and transfers that weigh little.
    SetNumLayers(w.model, w.mesh.pp * w.virtual_stages * (2 + random.Below(4)));
    w.model.hidden = 8192;
    SetEach(w.model, &model::Attention::heads, 64);
    SetEach(w.model, &model::Attention::kv_heads, 64);
    SetEach(w.model, &model::Attention::head_dim, 128);
    w.model.vocab = 128;
    w.seq_len = 8192;
    w.mesh.cp = w.mesh.tp = 1;
    w.global_batch = w.micro_batch * w.mesh.data_degree() * w.mesh.pp * (1 + random.Below(6));
    if (!Validate(w).ok()) continue;
    const TunedMachine machine({.link_bandwidth = 1e6}, *w.device, *w.node);
    machine.Apply(w);
    const TimePrice price = PriceTime(w);
    const double m = static_cast<double>(w.num_micro_batches());
    const double passes = price.compute_seconds + price.recompute_seconds + price.tensor_seconds;
    const double closed_form =
        static_cast<double>(w.mesh.pp - 1) / static_cast<double>(w.virtual_stages) / m * passes;
    ++compared;
    EXPECT_NEAR(price.pipeline_seconds, closed_form, 0.02 * closed_form) << DescribeJob(w);
    if (HasFailure()) return;
  }
  EXPECT_EQ(compared, 300);
}

}  // namespace
}  // namespace trainctl::frameworks
