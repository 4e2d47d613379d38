#include "planner/search.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/units.h"

namespace trainctl::planner {
namespace {

using layout::Layout;
using layout::Recompute;
using plan::Candidate;

// Two estimates closer than this are the same.
constexpr double kSameTime = 1.03;

// The ledger and options of one strategy; variants share the ledger.
class Strategy {
 public:
  Strategy(const Problem& problem, const std::vector<model::Parameter>& inventory, layout::Mesh mesh,
           int zero_stage)
      : problem_(problem), ledger_(inventory, mesh, zero_stage) {}

  // From a step of a few micro-batches: each frees what it used, so that more of them need no more.
  Candidate WeighVariant(int64_t micro_batch, Recompute recompute) const {
    Candidate candidate;
    candidate.layout = {
        .mesh = ledger_.mesh(),
        .zero_stage = ledger_.zero_stage(),
        .micro_batch = micro_batch,
        .num_micro_batches = problem_.request.batch_sequences / problem_.request.num_workers() / micro_batch,
        .recompute = recompute};
    const schedule::BuildOptions options =
        schedule::OptionsOf(candidate.layout, problem_.setting, simulate::kMicroBatchesToPrice);
    const schedule::Step step = BuildStep(*problem_.request.spec, ledger_, options);
    candidate.memory = simulate::SimulateMemory(step.programs[0]);
    candidate.fits = candidate.memory.peak_bytes <= problem_.memory_limit_bytes;
    const simulate::StepCost cost = simulate::PriceStep(step, *problem_.request.spec, ledger_, options,
                                                        candidate.layout.num_micro_batches, problem_.rates);
    candidate.step_seconds = cost.seconds;
    candidate.sent_bytes = cost.sent_bytes;
    return candidate;
  }

  // Powers of two up to the worker's share of the batch, and that share.
  std::vector<int64_t> MicroBatches() const {
    if (problem_.request.micro_batch.has_value()) return {*problem_.request.micro_batch};
    const int64_t share = problem_.request.batch_sequences / problem_.request.num_workers();
    std::vector<int64_t> sizes;
    for (int64_t size = 1; size < share; size *= 2) {
      const bool too_many = share / size > layout::kMaxBlockRuns / model::NumBlocks(*problem_.request.spec);
      if (share % size == 0 && !too_many) sizes.push_back(size);
    }
    sizes.push_back(share);
    return sizes;
  }

  std::vector<Candidate> WeighVariants() const {
    const bool may_keep = problem_.request.recompute != Recompute::kFull;
    const bool may_recompute = problem_.request.recompute != Recompute::kNone;
    std::vector<Candidate> variants;
    for (int64_t micro_batch : MicroBatches()) {
      std::vector<Candidate> found;
      if (may_keep) found.push_back(WeighVariant(micro_batch, Recompute::kNone));
      // Computing again is worth a look only where keeping does not fit.
      if (may_recompute && (found.empty() || !found.back().fits)) {
        found.push_back(WeighVariant(micro_batch, Recompute::kFull));
      }
      const Candidate& best = found.back();
      const bool fits = best.fits;
      variants.insert(variants.end(), found.begin(), found.end());
      // Larger ones fit even less. Their times are no reason to stop: one size may gain nothing and the next
      // one much, as it fills the threads or tiles.
      if (!fits) break;
    }
    return variants;
  }

 private:
  const Problem& problem_;
  layout::Ledger ledger_;
};

bool Simpler(const Candidate& a, const Candidate& b) {
  const auto key = [](const Candidate& c) {
    return std::make_tuple(c.layout.recompute != Recompute::kNone, c.layout.zero_stage, c.memory.peak_bytes,
                           c.layout.mesh.dp_shard);
  };
  return key(a) < key(b);
}

// Why a layout that fits was not taken.
std::string WhySlower(const Candidate& candidate, const Candidate& chosen) {
  const double ratio = candidate.step_seconds / chosen.step_seconds;
  if (ratio <= kSameTime) {
    if (candidate.layout.recompute != chosen.layout.recompute) return "fits, but computes activations twice";
    if (candidate.layout.zero_stage != chosen.layout.zero_stage) {
      return "fits, but is no faster, and the chosen one shards less";
    }
    return candidate.memory.peak_bytes >= chosen.memory.peak_bytes
               ? "fits, but is no faster and needs more memory"
               : "fits, but is no faster";
  }
  std::vector<std::string> causes;
  if (chosen.sent_bytes == 0 && candidate.sent_bytes > 0) {
    causes.push_back(absl::StrCat("moves ", FormatBytes(candidate.sent_bytes), " a step"));
  } else if (candidate.sent_bytes > chosen.sent_bytes + chosen.sent_bytes / 20) {
    causes.push_back(absl::StrFormat("moves %.1fx the bytes", static_cast<double>(candidate.sent_bytes) /
                                                                  static_cast<double>(chosen.sent_bytes)));
  }
  if (candidate.layout.recompute == Recompute::kFull && chosen.layout.recompute == Recompute::kNone) {
    causes.push_back("computes activations twice");
  }
  if (candidate.layout.micro_batch < chosen.layout.micro_batch) causes.push_back("smaller micro-batches");
  return absl::StrFormat("fits, but is about %.0f %% slower%s%s", (ratio - 1) * 100,
                         causes.empty() ? "" : ": ", absl::StrJoin(causes, ", "));
}

std::string SettingsOf(const Problem& asked, const Candidate& candidate) {
  std::vector<std::string> settings;
  const Layout& layout = candidate.layout;
  const auto set = [&](const char* name, const std::string& value) {
    settings.push_back(absl::StrCat(name, " = ", value));
  };
  if (asked.request.zero_stage.has_value() && *asked.request.zero_stage != layout.zero_stage) {
    set("parallel.zero_stage", absl::StrCat(layout.zero_stage));
  }
  if (asked.request.dp_shard.has_value() && *asked.request.dp_shard != layout.mesh.dp_shard) {
    set("parallel.dp_shard", absl::StrCat(layout.mesh.dp_shard));
  }
  if (asked.request.dp_replicate.has_value() && *asked.request.dp_replicate != layout.mesh.dp_replicate) {
    set("parallel.dp_replicate", absl::StrCat(layout.mesh.dp_replicate));
  }
  if (asked.request.micro_batch.has_value() && *asked.request.micro_batch != layout.micro_batch) {
    set("train.micro_batch", absl::StrCat(layout.micro_batch));
  }
  if (asked.request.recompute.has_value() && *asked.request.recompute != layout.recompute) {
    set("parallel.recompute", absl::StrCat("\"", layout::RecomputeName(layout.recompute), "\""));
  }
  return absl::StrJoin(settings, ", ");
}

// Every mesh and stage, in the order of stages and of growing dp_shard.
template <typename Function>
void ForEachStrategy(int world_size, const Function& visit) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (int shard = 1; shard <= world_size; ++shard) {
      // Stage 0 shards nothing; the others shard over more than one worker.
      if (world_size % shard != 0 || (stage == 0) != (shard == 1)) continue;
      visit(layout::Mesh{.dp_replicate = world_size / shard, .dp_shard = shard}, stage);
    }
  }
}

// The setting of the recipe that rules a strategy out, or "".
std::string RulingSetting(const Problem& problem, const layout::Mesh& mesh, int stage) {
  if (problem.request.zero_stage.has_value() && *problem.request.zero_stage != stage) {
    return absl::StrCat("parallel.zero_stage = ", *problem.request.zero_stage);
  }
  if (problem.request.dp_shard.has_value() && *problem.request.dp_shard != mesh.dp_shard) {
    return absl::StrCat("parallel.dp_shard = ", *problem.request.dp_shard);
  }
  if (problem.request.dp_replicate.has_value() && *problem.request.dp_replicate != mesh.dp_replicate) {
    return absl::StrCat("parallel.dp_replicate = ", *problem.request.dp_replicate);
  }
  return "";
}

// The one with the least memory, or nullptr.
const Candidate* Smallest(const std::vector<Candidate>& candidates) {
  const auto smallest = std::min_element(
      candidates.begin(), candidates.end(),
      [](const Candidate& a, const Candidate& b) { return a.memory.peak_bytes < b.memory.peak_bytes; });
  return smallest == candidates.end() ? nullptr : &*smallest;
}

}  // namespace

std::vector<Candidate> Weigh(const Problem& problem) {
  const std::vector<model::Parameter> inventory = model::Inventory(*problem.request.spec);
  std::vector<Candidate> candidates;
  ForEachStrategy(static_cast<int>(problem.request.num_workers()), [&](const layout::Mesh& mesh, int stage) {
    if (!RulingSetting(problem, mesh, stage).empty()) return;
    const std::vector<Candidate> variants = Strategy(problem, inventory, mesh, stage).WeighVariants();
    candidates.insert(candidates.end(), variants.begin(), variants.end());
  });
  return candidates;
}

std::vector<Candidate> RuledOut(const Problem& problem, const Layout& chosen) {
  const std::vector<model::Parameter> inventory = model::Inventory(*problem.request.spec);
  std::vector<Candidate> candidates;
  ForEachStrategy(static_cast<int>(problem.request.num_workers()), [&](const layout::Mesh& mesh, int stage) {
    const std::string setting = RulingSetting(problem, mesh, stage);
    if (setting.empty()) return;
    candidates.push_back(
        Strategy(problem, inventory, mesh, stage).WeighVariant(chosen.micro_batch, chosen.recompute));
    Candidate& candidate = candidates.back();
    candidate.reason = absl::StrCat("the recipe says ", setting);
    if (!candidate.fits) {
      absl::StrAppend(&candidate.reason, "; ", WhyNotFits(candidate.memory, problem.memory_limit_bytes));
    }
  });
  return candidates;
}

int Choose(const Problem& problem, std::vector<Candidate>& candidates) {
  double fastest = -1;
  for (const Candidate& candidate : candidates) {
    if (candidate.fits && (fastest < 0 || candidate.step_seconds < fastest)) fastest = candidate.step_seconds;
  }
  int chosen = -1;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (!candidates[i].fits || candidates[i].step_seconds > fastest * kSameTime) continue;
    if (chosen < 0 || Simpler(candidates[i], candidates[static_cast<size_t>(chosen)])) {
      chosen = static_cast<int>(i);
    }
  }
  for (size_t i = 0; i < candidates.size(); ++i) {
    Candidate& candidate = candidates[i];
    if (static_cast<int>(i) == chosen) {
      candidate.chosen = true;
      const bool one_strategy =
          std::all_of(candidates.begin(), candidates.end(), [&](const Candidate& other) {
            return other.layout.mesh == candidate.layout.mesh &&
                   other.layout.zero_stage == candidate.layout.zero_stage;
          });
      candidate.reason = one_strategy ? "what the recipe asks for" : "the simplest of the fastest that fit";
    } else if (!candidate.fits) {
      candidate.reason = WhyNotFits(candidate.memory, problem.memory_limit_bytes);
    } else {
      candidate.reason = WhySlower(candidate, candidates[static_cast<size_t>(chosen)]);
    }
  }
  return chosen;
}

std::string WhyNotFits(const simulate::MemoryReport& memory, int64_t limit_bytes) {
  std::vector<int> order(schedule::kNumCategories);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return memory.at_peak[static_cast<size_t>(a)] > memory.at_peak[static_cast<size_t>(b)];
  });
  std::vector<std::string> parts;
  for (int category : order) {
    const int64_t bytes = memory.at_peak[static_cast<size_t>(category)];
    if (bytes * 20 < memory.peak_bytes) continue;  // less than 5 % explains nothing
    parts.push_back(absl::StrCat(schedule::CategoryName(static_cast<schedule::Category>(category)), " ",
                                 FormatBytes(bytes)));
  }
  return absl::StrCat("needs ", FormatBytes(memory.peak_bytes), " of ", FormatBytes(limit_bytes), ": ",
                      absl::StrJoin(parts, ", "));
}

std::string NearestThatFits(const Problem& asked) {
  // From the smallest change to the largest; each keeps what the ones before it freed.
  struct Relaxation {
    bool micro_batch, recompute, layout;
  };
  for (const Relaxation& free :
       {Relaxation{true, false, false}, Relaxation{false, true, false}, Relaxation{true, true, false},
        Relaxation{false, false, true}, Relaxation{true, true, true}}) {
    Problem problem = asked;
    if (free.micro_batch) problem.request.micro_batch.reset();
    if (free.recompute) problem.request.recompute.reset();
    if (free.layout)
      problem.request.dp_replicate.reset(), problem.request.dp_shard.reset(),
          problem.request.zero_stage.reset();
    std::vector<Candidate> candidates = Weigh(problem);
    const int chosen = Choose(problem, candidates);
    if (chosen < 0) continue;
    const Candidate& candidate = candidates[static_cast<size_t>(chosen)];
    return absl::StrCat("this fits (", FormatBytes(candidate.memory.peak_bytes),
                        "): ", SettingsOf(asked, candidate));
  }
  // Nothing on these workers: more of them, everything sharded.
  Problem problem = asked;
  problem.request.dp_replicate.reset(), problem.request.dp_shard.reset();
  problem.request.zero_stage = 3;
  problem.request.micro_batch = 1;
  problem.request.recompute = Recompute::kFull;
  const int64_t asked_workers = asked.request.num_workers();
  const int64_t per_worker_batch = asked.request.batch_sequences / asked_workers;
  for (int factor = 2; factor <= 1024 && asked_workers <= (1 << 14) / factor; factor *= 2) {
    const int64_t workers = asked_workers * factor;
    problem.request.nodes = 1;
    problem.request.devices_per_node = workers;
    problem.request.dp_shard = workers;
    problem.request.batch_sequences = std::max<int64_t>(per_worker_batch / factor, 1) * workers;
    if (asked.limit_is_shared) {
      problem.memory_limit_bytes =
          (asked.memory_limit_bytes + kWorkerOverheadBytes) / factor - kWorkerOverheadBytes;
    }
    if (!layout::FindViolations(problem.request).empty()) continue;
    const std::vector<Candidate> candidates = Weigh(problem);
    if (candidates.empty() || !candidates.front().fits) continue;
    return absl::StrCat(
        "this fits (", FormatBytes(candidates.front().memory.peak_bytes), "): ", workers,
        " workers with parallel.zero_stage = 3, parallel.recompute = \"full\", train.micro_batch = 1",
        problem.request.batch_sequences == asked.request.batch_sequences
            ? ""
            : absl::StrCat(", train.batch_sequences = ", problem.request.batch_sequences),
        asked.request.dp_replicate.has_value() || asked.request.dp_shard.has_value()
            ? ", parallel.dp_replicate and dp_shard at \"auto\""
            : "");
  }
  problem = asked;
  problem.request.dp_replicate.reset(), problem.request.dp_shard.reset(), problem.request.zero_stage.reset();
  problem.request.micro_batch = 1;
  problem.request.recompute.reset();
  const std::vector<Candidate> candidates = Weigh(problem);
  const Candidate* smallest = Smallest(candidates);
  if (smallest == nullptr) return "no layout is possible";
  return absl::StrCat("no layout fits even on more workers; the least is ",
                      FormatBytes(smallest->memory.peak_bytes), " with ", smallest->layout.ToString(),
                      ": raise cluster.memory_limit, or lower data.seq_len or the model's size");
}

}  // namespace trainctl::planner
