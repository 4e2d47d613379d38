// The passes of the search against pricing everything, and the bounds against what is played. `ctest -R
// search` runs all of it; the unit tests run a part (TRAINCTL_SEARCH_CASES).
#include "planner/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <thread>

#include "layout/family.h"
#include "model/presets.h"
#include "planner/choose.h"
#include "planner/neighbours.h"
#include "schedule/layout_step.h"
#include "simulate/bounds.h"
#include "simulate/device_rates.h"
#include "simulate/fold.h"
#include "simulate/play.h"
#include "tests/unit/schedule/step_testing.h"

namespace trainctl::planner {
namespace {

using layout::Recompute;
using simulate::Rates;
using simulate::Resource;

class Picker {
 public:
  explicit Picker(uint32_t seed) : random_(seed) {}
  int64_t operator()(std::initializer_list<int64_t> values) {
    return values.begin()[random_() % values.size()];
  }
  double Between(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }

 private:
  std::mt19937 random_;
};

// Under sanitizers each takes twenty times as long.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TRAINCTL_FEW_CASES
#endif
#endif
#ifdef TRAINCTL_FEW_CASES
constexpr int kShare = 80;
#else
constexpr int kShare = 20;
#endif

int NumCases(int whole) {
  const char* wanted = std::getenv("TRAINCTL_SEARCH_CASES");
  return wanted != nullptr && std::string(wanted) == "all" ? whole : whole / kShare;
}

model::Architecture DrawModel(Picker& pick, int64_t layers) {
  model::Architecture spec = *model::Preset("toy-1m");
  SetNumLayers(spec, layers);
  SetEach(spec, &model::Attention::head_dim, pick({4, 16}));
  SetEach(spec, &model::Attention::heads, pick({2, 4}));
  SetEach(spec, &model::Attention::kv_heads, pick({1, 2}));
  spec.hidden = AttentionOf(spec).heads * AttentionOf(spec).head_dim;
  SetEach(spec, &model::Mlp::ffn, pick({16, 100, 512}));
  spec.vocab = pick({17, 300, 9000});
  spec.tie_embeddings = pick({0, 1}) == 1;
  return spec;
}

Rates DrawDevice(Picker& pick) {
  constexpr const char* kDevices[] = {"a100-sxm-80gb", "h100-sxm-80gb", "mi300x"};
  const auto machine = cluster::MachineOf(
      {.device = kDevices[pick({0, 1, 2})], .nodes = pick({1, 4, 100}), .devices_per_node = pick({1, 4, 8})});
  TRAINCTL_CHECK_MSG(machine.ok(), machine.status().message());
  return simulate::DeviceRates(*machine, pick({0, 1}) == 1 ? DType::kBF16 : DType::kF32);
}

// A device's prices, or a CPU's of which any may dominate.
Rates DrawRates(Picker& pick) {
  if (pick({0, 1, 2}) == 0) return DrawDevice(pick);
  Rates rates;
  for (double& seconds : rates.seconds_per_unit) seconds = pick.Between(0.5, 2) * 1e-9;
  rates[Resource::kSentBytes] *= static_cast<double>(pick({0, 1, 10, 100, 1000}));
  rates[Resource::kCollectives] *= static_cast<double>(pick({1, 1000, 100000}));
  rates[Resource::kOperators] *= static_cast<double>(pick({1, 1000, 100000}));
  rates[Resource::kSteps] *= static_cast<double>(pick({0, 1000000}));
  rates.overlap = pick({0, 1, 1}) == 1;
  return rates;
}

schedule::StepSetting DrawSetting(Picker& pick) {
  schedule::StepSetting setting;
  setting.seq_len = pick({3, 16, 100});
  setting.types.compute = pick({0, 1}) == 1 ? DType::kBF16 : DType::kF32;
  if (setting.types.compute == DType::kBF16 && pick({0, 1}) == 1) setting.types.master = DType::kBF16;
  setting.prefetch = pick({0, 1}) == 1;
  setting.checkpoint_copy = pick({0, 1}) == 1;
  setting.on_device = pick({0, 1}) == 1;
  if (setting.on_device) setting.workspace_bytes = pick({0, 1000, 1 << 20});
  setting.threads = setting.on_device ? 1 : pick({1, 4});
  setting.optimizer = optim::Find(pick({0, 1}) == 1 ? "lion" : "adamw");
  return setting;
}

layout::Layout DrawLayout(Picker& pick) {
  layout::Layout layout;
  layout.zero_stage = static_cast<int>(pick({0, 1, 2, 3}));
  layout.mesh.dp_shard = layout.zero_stage == 0 ? 1 : static_cast<int>(pick({2, 3, 8, 64}));
  layout.mesh.dp_replicate = static_cast<int>(pick({1, 1, 2, 5}));
  layout.micro_batch = pick({1, 2, 3});
  layout.num_micro_batches = pick({1, 2, 3, 4, 9, 100});
  layout.recompute = layout::kRecomputes[pick({0, 1, 2, 3})];
  return layout;
}

// Of the layers of each stage, where all would be.
void DrawRecomputed(Picker& pick, size_t num_stages, layout::Layout& layout) {
  if (layout.recompute != Recompute::kFull || pick({0, 1}) == 0) return;
  layout.recomputed_layers.clear();
  for (size_t s = 0; s < num_stages; ++s) layout.recomputed_layers.push_back(pick({0, 1, 2, 3, 7}));
}

struct Held {
  int64_t num_cases = 0;
  double seconds_share = 0;  // sums of bound / price
  double bytes_share = 0;
  std::string failure;

  void Compare(const simulate::StepBound& bound, double seconds, int64_t peak_bytes,
               const std::string& name) {
    ++num_cases;
    seconds_share += seconds > 0 ? bound.seconds / seconds : 1;
    bytes_share += static_cast<double>(bound.peak_bytes) / static_cast<double>(peak_bytes);
    if (failure.empty() && (bound.seconds > seconds || bound.peak_bytes > peak_bytes)) {
      failure = absl::StrCat(name, ": bound ", bound.seconds, " s and ", bound.peak_bytes, " bytes, played ",
                             seconds, " s and ", peak_bytes, " bytes");
    }
  }
};

void CompareDataParallel(Picker& pick, Held& held) {
  const model::Architecture spec = DrawModel(pick, pick({1, 2, 3, 5, 8, 12}));
  layout::Layout layout = DrawLayout(pick);
  DrawRecomputed(pick, 1, layout);
  const schedule::StepSetting setting = DrawSetting(pick);
  const Rates rates = DrawRates(pick);
  const schedule::BuildOptions options = schedule::OptionsOf(layout, setting, simulate::kMicroBatchesToPrice);
  const simulate::FoldedModel folded(spec);
  const simulate::FoldedStrategy strategy(folded, layout.mesh, layout.zero_stage);
  const simulate::StepBounder whole = strategy.Bounder(options, rates);
  const simulate::GraphCosts costs = whole.graph_costs();
  const simulate::StepBounder bounder(costs, whole.ledger_costs(), strategy.ledger(), rates);
  const simulate::StepBound bound =
      bounder.BoundDataParallel(options, NumLayers(spec), layout.num_micro_batches);
  const layout::Ledger ledger(model::Inventory(spec), layout.mesh, layout.zero_stage);
  const simulate::StepPrice played =
      simulate::PriceWhole(schedule::BuildStep(schedule::GraphOf(spec, ledger, options), ledger, options),
                           ledger, options, layout.num_micro_batches, rates);
  EXPECT_LE(simulate::MeanPassSeconds(costs, NumLayers(spec), layout.num_micro_batches, /*pp=*/1, rates),
            played.cost.seconds);
  held.Compare(bound, played.cost.seconds, played.memory.peak_bytes,
               absl::StrCat(layout.ToString(), " layers ", NumLayers(spec), " prefetch ", setting.prefetch,
                            " overlap ", rates.overlap, " tied ", spec.tie_embeddings));
}

void ComparePipeline(Picker& pick, schedule::PipelineKind kind, Held& held) {
  schedule::PipelineShape shape;
  do {
    const schedule::PipelineLimits limits = schedule::LimitsOf(kind);
    shape = {
        static_cast<int>(pick({1, 2, 3, 4, 6})), static_cast<int>(pick({1, 2, 4, 6, 8, 12})),
        std::clamp(static_cast<int>(pick({1, 2, 3})), limits.min_virtual_stages, limits.max_virtual_stages)};
  } while (!schedule::CheckPipelineShape(kind, shape).ok());
  const absl::StatusOr<schedule::PipelineSchedule> order = schedule::BuildPipeline(kind, shape);
  ASSERT_TRUE(order.ok()) << order.status();
  const int num_stages = order->placement.num_stages;
  const model::Architecture spec =
      DrawModel(pick, std::max<int64_t>(1, num_stages * pick({1, 2, 4}) - 2) + pick({0, 1}));
  const std::vector<int> stages = schedule::EvenStages(model::NumBlocks(spec), num_stages);
  layout::Layout layout = DrawLayout(pick);
  layout.mesh.pp = shape.ranks;
  layout.num_micro_batches = shape.num_micro_batches;
  DrawRecomputed(pick, static_cast<size_t>(num_stages), layout);
  const Rates rates = DrawRates(pick);
  const schedule::BuildOptions options = schedule::OptionsOf(layout, DrawSetting(pick));
  const layout::Ledger ledger(model::Inventory(spec), layout.mesh, layout.zero_stage,
                              schedule::OwnersOf(*order, stages));
  const absl::StatusOr<schedule::Step> step =
      schedule::BuildStep(schedule::GraphOf(spec, ledger, options), ledger, options, *order, stages);
  ASSERT_TRUE(step.ok()) << step.status();
  int64_t peak_bytes = 0;
  for (const schedule::Program& program : step->programs)
    peak_bytes = std::max(peak_bytes, simulate::SimulateMemory(program).peak_bytes);
  const double seconds = simulate::PlayAtRates(*step, ledger, options, rates).end_s + rates[Resource::kSteps];
  const simulate::StepBounder bounder(step->graph, ledger, options, rates);
  EXPECT_LE(simulate::MeanPassSeconds(bounder.graph_costs(), NumLayers(spec), layout.num_micro_batches,
                                      shape.ranks, rates),
            seconds)
      << schedule::Name(kind, shape);
  held.Compare(bounder.Bound(options, simulate::ShapeOf(*order, stages)), seconds, peak_bytes,
               absl::StrCat(schedule::Name(kind, shape), " ", layout.ToString(), " layers ", NumLayers(spec),
                            " overlap ", rates.overlap, " tied ", spec.tie_embeddings));
}

// Runs `run(seed, count)` on two threads.
void OnTwoThreads(int count, const std::function<void(uint32_t, int)>& run) {
  std::thread other([&] { run(1, count / 2); });
  run(2, count - count / 2);
  other.join();
}

double Since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST(Search, NoBoundIsAboveWhatIsPlayed) {
  const auto start = std::chrono::steady_clock::now();
  constexpr int kKinds = schedule::kNumPipelineKinds;
  // By thread; data parallelism first, then the orders.
  std::vector<std::vector<Held>> held(2, std::vector<Held>(kKinds + 1));
  const int count = NumCases(20000);
  OnTwoThreads(count, [&](uint32_t seed, int num) {
    Picker pick(seed);
    for (int i = 0; i < num; ++i) {
      std::vector<Held>& own = held[seed - 1];
      // As many of data parallelism as of all orders.
      if (i % 2 == 0) {
        CompareDataParallel(pick, own[0]);
      } else {
        const int kind = i / 2 % kKinds;
        ComparePipeline(pick, static_cast<schedule::PipelineKind>(kind), own[static_cast<size_t>(kind) + 1]);
      }
    }
  });
  for (size_t k = 0; k <= kKinds; ++k) {
    const Held &a = held[0][k], &b = held[1][k];
    EXPECT_EQ(a.failure, "");
    EXPECT_EQ(b.failure, "");
    const std::string name(k == 0 ? "data parallel"
                                  : schedule::PipelineKindName(static_cast<schedule::PipelineKind>(k - 1)));
    const double num = static_cast<double>(a.num_cases + b.num_cases);
    std::printf("%-24s %6.0f layouts: bounds are %4.1f %% of the time, %4.1f %% of the memory\n",
                name.c_str(), num, 100 * (a.seconds_share + b.seconds_share) / num,
                100 * (a.bytes_share + b.bytes_share) / num);
  }
  std::printf("%d layouts in %.1f s on 2 threads\n", count, Since(start));
}

struct Space {
  model::Architecture spec;
  Problem problem;
};

void DrawSpace(Picker& pick, Space& space) {
  space.spec = DrawModel(pick, pick({1, 3, 7, 9, 14}));
  Problem& problem = space.problem;
  layout::Request& request = problem.request;
  request.spec = &space.spec;
  const bool is_cut = pick({0, 0, 1}) == 1;  // pipelines are not folded
  request.devices_per_node = is_cut ? pick({2, 4, 6, 8}) : pick({1, 2, 4, 6, 8, 16});
  if (!is_cut) request.pp = request.tp = 1;
  request.batch_sequences = request.devices_per_node * pick({1, 2, 6, 8});
  problem.setting = DrawSetting(pick);
  request.seq_len = problem.setting.seq_len;
  problem.rates = DrawRates(pick);
  if (pick({0, 0, 1}) == 1) request.micro_batch = 1;
  if (pick({0, 0, 1}) == 1) request.recompute = layout::kRecomputes[pick({0, 1, 2, 3})];
  if (pick({0, 0, 0, 1}) == 1) request.zero_stage = request.devices_per_node == 1 ? 0 : pick({1, 2, 3});
  // Between what the smallest layout needs and what the largest does, or a little beside.
  problem.memory_limit_bytes = int64_t{1} << 60;
  std::vector<int64_t> bytes;
  for (const plan::Candidate& candidate : Search(problem, Wanted::kFamilies).candidates)
    bytes.push_back(candidate.memory.peak_bytes);
  const auto [least, most] = std::minmax_element(bytes.begin(), bytes.end());
  problem.memory_limit_bytes =
      static_cast<int64_t>(pick.Between(0.7 * static_cast<double>(*least), 1.1 * static_cast<double>(*most)));
}

constexpr SearchPasses kNoPasses{.prune_memory = false, .prune_time = false, .fold = false, .halve = false};

struct SpaceTally {
  int64_t feasible = 0, infeasible = 0, cut = 0;
  plan::SearchCounts counts;
  std::string failure;
};

const plan::Candidate* ChosenOf(const Found& found) {
  return found.chosen < 0 ? nullptr : &found.candidates[static_cast<size_t>(found.chosen)];
}

std::string NameOf(const plan::Candidate* candidate) {
  if (candidate == nullptr) return "none";
  return absl::StrCat(candidate->layout.ToString(), " (", candidate->step_seconds, " s, ",
                      candidate->memory.peak_bytes, " bytes, ", candidate->reason, ")");
}

// The least seconds of each family, or -1.
std::array<double, layout::kNumFamilies> SecondsOfFamilies(const Found& found) {
  std::array<double, layout::kNumFamilies> seconds;
  seconds.fill(-1);
  for (const plan::Candidate& candidate : found.candidates) {
    double& least = seconds[static_cast<size_t>(layout::FamilyOf(candidate.layout))];
    if (candidate.fits && (least < 0 || candidate.step_seconds < least)) least = candidate.step_seconds;
  }
  return seconds;
}

// "" if the best of each family is within 1 % of the best of `everything`.
std::string CompareFamilies(const Found& found, const Found& everything) {
  const auto own = SecondsOfFamilies(found), best = SecondsOfFamilies(everything);
  for (size_t f = 0; f < own.size(); ++f) {
    if (best[f] < 0 ? own[f] < 0 : own[f] >= 0 && own[f] <= best[f] * kSameTime) continue;
    return absl::StrCat(layout::FamilyName(static_cast<layout::Family>(f)), " takes ", own[f], " s, not ",
                        best[f]);
  }
  return "";
}

// "" or what differs.
std::string CompareSearches(const Problem& problem, SpaceTally& tally) {
  const Found everything = Search(problem, Wanted::kFamilies, kNoPasses);
  const plan::Candidate* const expected = ChosenOf(everything);
  tally.feasible += expected != nullptr ? 1 : 0;
  for (int off = 0; off < 9; ++off) {
    const Wanted wanted = off < 8 ? Wanted::kFamilies : Wanted::kChoice;
    const SearchPasses passes{
        .prune_memory = (off & 1) == 0, .prune_time = (off & 2) == 0, .fold = (off & 4) == 0};
    const Found found = Search(problem, wanted, passes);
    const plan::Candidate* const chosen = ChosenOf(found);
    if ((chosen == nullptr) != (expected == nullptr))
      return absl::StrCat("passes ", off, ": one finds nothing");
    if (chosen != nullptr && !(chosen->layout == expected->layout && chosen->memory == expected->memory &&
                               chosen->step_seconds == expected->step_seconds)) {
      return absl::StrCat("passes ", off, ": ", NameOf(chosen), ", not ", NameOf(expected));
    }
    if (wanted == Wanted::kFamilies) {
      const std::string failure = CompareFamilies(found, everything);
      if (!failure.empty()) return absl::StrCat("passes ", off, ": ", failure);
    }
    if (off != 0) continue;
    tally.cut += chosen != nullptr && chosen->layout.mesh.pp * chosen->layout.mesh.tp > 1 ? 1 : 0;
    tally.counts.bounded += found.counts.bounded;
    tally.counts.pruned += found.counts.pruned;
    tally.counts.folded += found.counts.folded;
  }
  // Advice searches on up to 1,024 times as many workers, so without the passes it takes long.
  if (expected != nullptr || tally.infeasible++ % 4 != 0) return "";
  const std::string advice = NearestThatFits(problem), whole = NearestThatFits(problem, kNoPasses);
  return advice == whole ? "" : absl::StrCat("advice: ", advice, ", not: ", whole);
}

TEST(Search, FindsWhatPricingEverythingFinds) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<SpaceTally> tallies(2);
  const int count = NumCases(100);
  OnTwoThreads(count, [&](uint32_t seed, int num) {
    Picker pick(seed + 100);
    SpaceTally& tally = tallies[seed - 1];
    for (int i = 0; i < num && tally.failure.empty(); ++i) {
      Space space;
      DrawSpace(pick, space);
      const std::string failure = CompareSearches(space.problem, tally);
      if (!failure.empty()) tally.failure = absl::StrCat("space ", i, " of seed ", seed, ": ", failure);
    }
  });
  const SpaceTally &a = tallies[0], &b = tallies[1];
  EXPECT_EQ(a.failure, "");
  EXPECT_EQ(b.failure, "");
  EXPECT_GT(a.feasible + b.feasible, count / 3);
  if (count >= 100) {
    EXPECT_LT(a.feasible + b.feasible, count);
    EXPECT_GT(a.cut + b.cut, count / 50) << "the model is hardly ever cut";
  }
  EXPECT_GT(a.counts.pruned + b.counts.pruned, (a.counts.bounded + b.counts.bounded) / 4);
  std::printf("%d spaces, %d with an answer: %d layouts bounded, %d pruned, %d folded; %.1f s on 2 threads\n",
              count, static_cast<int>(a.feasible + b.feasible),
              static_cast<int>(a.counts.bounded + b.counts.bounded),
              static_cast<int>(a.counts.pruned + b.counts.pruned),
              static_cast<int>(a.counts.folded + b.counts.folded), Since(start));
}

// A model, a cluster and a batch as users have them, and a limit that may be short of what the devices have.
void DrawJob(Picker& pick, Space& space) {
  constexpr const char* kModels[] = {"toy-1m", "llama3.2-1b", "llama3.1-8b", "llama3.1-70b"};
  constexpr const char* kDevices[] = {"h100-sxm-80gb", "a100-sxm-40gb", "mi300x"};
  space.spec = *model::Preset(kModels[pick({0, 1, 2, 2, 3})]);
  SetNumLayers(space.spec, std::min<int64_t>(NumLayers(space.spec), pick({4, 8, 16, 80})));
  Problem& problem = space.problem;
  layout::Request& request = problem.request;
  request.spec = &space.spec;
  request.nodes = pick({1, 1, 1, 2, 4});
  request.devices_per_node = pick({1, 2, 4, 8, 8});
  request.batch_sequences =
      std::max<int64_t>(1, request.num_workers() * pick({1, 2, 4, 16}) / pick({1, 1, 2}));
  request.seq_len = pick({1024, 8192});
  schedule::StepSetting& setting = problem.setting;
  setting.seq_len = request.seq_len;
  setting.types.compute = DType::kBF16;
  setting.on_device = true;
  const auto machine = cluster::MachineOf({.device = kDevices[pick({0, 1, 2})],
                                           .nodes = request.nodes,
                                           .devices_per_node = request.devices_per_node});
  TRAINCTL_CHECK_MSG(machine.ok(), machine.status().message());
  problem.rates = simulate::DeviceRates(*machine, DType::kBF16);
  problem.memory_limit_bytes =
      static_cast<int64_t>(pick.Between(0.2, 0.9) * (*machine)->device->memory_bytes.value);
}

// "" or a combination that is more than 1 % faster than what was chosen.
std::string CompareForced(const Problem& problem, int64_t& num_forced) {
  const Found free = Search(problem, Wanted::kChoice);
  const plan::Candidate* const chosen = ChosenOf(free);
  for (const layout::Request& cut : layout::PossibleCuts(problem.request)) {
    for (int64_t stage = 0; stage <= 3; ++stage) {
      for (const Recompute recompute : layout::kRecomputes) {
        Problem forced = problem;
        forced.request = cut;
        forced.request.zero_stage = stage;
        forced.request.recompute = recompute;
        if (!layout::FindViolations(forced.request).empty()) continue;
        const Found found = Search(forced, Wanted::kChoice);
        const plan::Candidate* const best = ChosenOf(found);
        if (best == nullptr) continue;
        ++num_forced;
        if (chosen == nullptr || chosen->step_seconds > kSameTime * best->step_seconds)
          return absl::StrCat(NameOf(best), " is better than ", NameOf(chosen));
      }
    }
  }
  return "";
}

TEST(Search, NoForcedCombinationIsFaster) {
  const auto start = std::chrono::steady_clock::now();
  const int count = NumCases(200);
  std::vector<std::string> failures(2);
  std::vector<int64_t> num_forced(2);
  OnTwoThreads(count, [&](uint32_t seed, int num) {
    Picker pick(seed + 200);
    for (int i = 0; i < num && failures[seed - 1].empty(); ++i) {
      Space space;
      DrawJob(pick, space);
      const std::string failure = CompareForced(space.problem, num_forced[seed - 1]);
      if (!failure.empty()) failures[seed - 1] = absl::StrCat("job ", i, " of seed ", seed, ": ", failure);
    }
  });
  EXPECT_EQ(failures[0], "");
  EXPECT_EQ(failures[1], "");
  EXPECT_GT(num_forced[0] + num_forced[1], 5 * count);
  std::printf("%d jobs, %d forced combinations that fit: %.1f s on 2 threads\n", count,
              static_cast<int>(num_forced[0] + num_forced[1]), Since(start));
}

// A pipeline whose first stages have most micro-batches in flight, on a limit that neither all layers nor
// none decide: of each stage as few are recomputed as fit, one fewer does not.
TEST(Search, EachStageRecomputesAsFewLayersAsFit) {
  model::Architecture spec = *model::Preset("toy-1m");
  SetNumLayers(spec, 24);
  Problem problem;
  layout::Request& request = problem.request;
  request = {.spec = &spec, .devices_per_node = 4, .batch_sequences = 8, .seq_len = 128};
  request.pp = 4, request.tp = 1, request.micro_batch = 1;
  request.stage_layers = {{6, 6, 6, 6}};
  problem.setting.seq_len = 128;
  const auto peaks_of = [&](const layout::Layout& layout) {
    const auto built = schedule::BuildLayoutStep(spec, model::Inventory(spec), layout, problem.setting);
    TRAINCTL_CHECK_MSG(built.ok(), built.status().message());
    std::vector<int64_t> peaks;
    for (const schedule::Program& program : built->step.programs)
      peaks.push_back(simulate::SimulateMemory(program).peak_bytes);
    return peaks;
  };
  problem.memory_limit_bytes = int64_t{1} << 40;
  layout::Layout layout = ChosenOf(Search(problem, Wanted::kFamilies))->layout;
  EXPECT_EQ(layout.recompute, Recompute::kNone);
  const int64_t none = peaks_of(layout)[0];
  layout.recompute = Recompute::kFull;
  const int64_t all = peaks_of(layout)[0];
  ASSERT_LT(all, none);
  problem.memory_limit_bytes = all + (none - all) / 4;
  const Found found = Search(problem, Wanted::kFamilies);
  ASSERT_GE(found.chosen, 0);
  const auto full = std::find_if(
      found.candidates.begin(), found.candidates.end(),
      [](const plan::Candidate& candidate) { return candidate.layout.recompute == Recompute::kFull; });
  ASSERT_NE(full, found.candidates.end());
  EXPECT_TRUE(full->fits);
  const std::vector<int64_t>& layers = full->layout.recomputed_layers;
  ASSERT_EQ(layers.size(), 4u);
  EXPECT_GT(layers[0], 0);
  EXPECT_LT(layers[3], layers[0]);
  EXPECT_TRUE(std::is_sorted(layers.rbegin(), layers.rend()));
  for (size_t s = 0; s < layers.size(); ++s) {
    EXPECT_LE(peaks_of(full->layout)[s], problem.memory_limit_bytes);
    if (layers[s] == 0) continue;
    layout::Layout fewer = full->layout;
    --fewer.recomputed_layers[s];
    EXPECT_GT(peaks_of(fewer)[s], problem.memory_limit_bytes) << "stage " << s;
  }
  // Asked for all, all are.
  request.recompute = Recompute::kFull;
  EXPECT_TRUE(Search(problem, Wanted::kFamilies).candidates.front().layout.recomputed_layers.empty());
  request.recomputed_layers = {{2}};
  EXPECT_EQ(Search(problem, Wanted::kFamilies).candidates.front().layout.recomputed_layers,
            (std::vector<int64_t>{2, 2, 2, 2}));
}

// 16,384 workers and 126 layers, nothing fixed.
TEST(Search, ALargeSpaceIsSearchedAtOnce) {
#ifdef TRAINCTL_FEW_CASES
  GTEST_SKIP() << "half a minute, and nothing that smaller spaces do not do";
#endif
  const model::Architecture spec = *model::Preset("llama3.1-405b");
  Problem problem;
  problem.request = {
      .spec = &spec, .nodes = 2048, .devices_per_node = 8, .batch_sequences = 1 << 15, .seq_len = 8192};
  problem.setting.seq_len = 8192;
  problem.setting.types.compute = DType::kBF16;
  problem.setting.on_device = true;
  problem.memory_limit_bytes = int64_t{160} << 30;
  problem.rates = simulate::DeviceRates(
      *cluster::MachineOf({.device = "h100-sxm-80gb", .nodes = 2048, .devices_per_node = 8}), DType::kBF16);
  const auto start = std::chrono::steady_clock::now();
  const Found found = Search(problem, Wanted::kFamilies);
  const double seconds = Since(start);
  ASSERT_GE(found.chosen, 0);
  EXPECT_LE(found.counts.whole, 200);
  EXPECT_LE(found.counts.tried, 500);
  std::printf("%d strategies, %d layouts bounded, %d folded, %d whole, %d tried: %.3f s\n",
              static_cast<int>(found.counts.strategies), static_cast<int>(found.counts.bounded),
              static_cast<int>(found.counts.folded), static_cast<int>(found.counts.whole),
              static_cast<int>(found.counts.tried), seconds);
}

}  // namespace
}  // namespace trainctl::planner
