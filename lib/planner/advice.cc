#include "planner/advice.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <future>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/units.h"
#include "plan/utilization.h"
#include "planner/choose.h"
#include "planner/resolve.h"
#include "planner/search.h"
#include "planner/settings.h"

namespace trainctl::planner {
namespace {

using layout::Recompute;
using layout::Request;

// Largest peak memory, relative to the plan's, for which a change is listed as a saving.
constexpr double kWorthSaving = 0.95;
// Lowest speed, relative to the plan's, for which such a change is listed.
constexpr double kWorthItsTime = 0.75;

// Each change takes a search about as long as the plan's. Of layers of whole steps that the plan's has built:
// with more of them the searches would take minutes.
constexpr int64_t kMostLayersBuilt = 200'000;

// A changed problem, and how to write the change. An empty setting is found by comparing with what was asked.
struct Trial {
  Problem problem;
  std::string setting;
  bool on_more_nodes = false;
};

// The settings that the recipe states, each left to the search.
std::vector<Trial> FreedSettings(const Problem& asked) {
  const Request& request = asked.request;
  std::vector<Trial> trials;
  const auto add = [&](bool is_stated, const std::function<void(Request&)>& free) {
    if (!is_stated) return;
    Trial trial{.problem = asked, .setting = ""};
    free(trial.problem.request);
    trials.push_back(std::move(trial));
  };
  add(request.tp.has_value(), [](Request& r) { r.tp.reset(), r.sequence_parallel.reset(); });
  // A list of recomputed layers is of the stages that the recipe states.
  const bool is_by_stage = request.recomputed_layers.has_value() && request.recomputed_layers->size() > 1;
  add(request.pp.has_value() && request.passes.empty() && !is_by_stage, [](Request& r) {
    r.pp.reset(), r.pipeline_order.reset(), r.virtual_stages.reset(), r.stage_layers.reset();
  });
  add(request.pipeline_order.has_value(),
      [](Request& r) { r.pipeline_order.reset(), r.virtual_stages.reset(), r.stage_layers.reset(); });
  add(request.zero_stage.has_value() || request.dp_shard.has_value() || request.dp_replicate.has_value(),
      [](Request& r) { r.zero_stage.reset(), r.dp_shard.reset(), r.dp_replicate.reset(); });
  add(request.micro_batch.has_value(), [](Request& r) { r.micro_batch.reset(); });
  add(request.recompute.has_value(), [](Request& r) { r.recompute.reset(), r.recomputed_layers.reset(); });
  return trials;
}

// Other values of settings that the recipe leaves to the search.
std::vector<Trial> StatedSettings(const Problem& asked, const layout::Layout& chosen) {
  const Request& request = asked.request;
  std::vector<Trial> trials;
  const auto add = [&](std::string setting, const std::function<void(Request&)>& state) {
    Trial trial{.problem = asked, .setting = std::move(setting)};
    state(trial.problem.request);
    trials.push_back(std::move(trial));
  };
  for (int64_t stage = chosen.zero_stage + 1; stage <= 3 && !request.zero_stage.has_value(); ++stage)
    add(absl::StrCat("parallel.zero_stage = ", stage), [&](Request& r) { r.zero_stage = stage; });
  for (const Recompute recompute : layout::kRecomputes) {
    if (request.recompute.has_value() || recompute <= chosen.recompute) continue;
    add(absl::StrCat("parallel.recompute = \"", layout::RecomputeName(recompute), "\""),
        [&](Request& r) { r.recompute = recompute; });
  }
  if (!request.micro_batch.has_value() && chosen.micro_batch > 1) {
    const int64_t half = chosen.micro_batch / 2;
    add(absl::StrCat("train.micro_batch = ", half), [&](Request& r) { r.micro_batch = half; });
  }
  return trials;
}

std::optional<Change> Try(const Trial& trial, const Request& asked, double step_seconds) {
  if (!layout::FindViolations(trial.problem.request).empty()) return std::nullopt;
  const Found found = Search(trial.problem, Wanted::kChoice);
  if (found.chosen < 0) return std::nullopt;
  const plan::Candidate& best = found.candidates[static_cast<size_t>(found.chosen)];
  if (trial.setting.empty()) {
    // With the settings written down less is free than in the trial, and that decides.
    Rewritten rewritten = Rewrite(asked, trial.problem.request, best.layout);
    if (rewritten.settings.empty()) return std::nullopt;
    Trial written{.problem = trial.problem, .setting = std::move(rewritten.settings)};
    written.problem.request = std::move(rewritten.request);
    return Try(written, asked, step_seconds);
  }
  return Change{trial.setting, step_seconds / best.step_seconds, best.memory.peak_bytes, best.layout};
}

// As many at once as there are cores.
std::vector<std::optional<Change>> TryAll(const std::vector<Trial>& trials, const Request& asked,
                                          double step_seconds) {
  const size_t at_once = std::max<size_t>(1, std::thread::hardware_concurrency());
  // Where the system gives no more threads, one after the other.
  constexpr auto kPolicy = std::launch::async | std::launch::deferred;
  std::vector<std::optional<Change>> changes;
  for (size_t first = 0; first < trials.size(); first += at_once) {
    std::vector<std::future<std::optional<Change>>> tried;
    for (size_t i = first; i < std::min(trials.size(), first + at_once); ++i)
      tried.push_back(std::async(kPolicy, Try, std::cref(trials[i]), std::cref(asked), step_seconds));
    for (std::future<std::optional<Change>>& future : tried) changes.push_back(future.get());
  }
  return changes;
}

}  // namespace

bool TriesChanges(const recipe::Recipe& recipe, const plan::Plan& plan) {
  return (plan.search.whole + plan.search.tried) * NumLayers(recipe.model.spec) <= kMostLayersBuilt;
}

std::vector<Change> FindChanges(const recipe::Recipe& recipe, const cluster::Host& host,
                                const simulate::MachineProfile* measured, const plan::Plan& plan) {
  if (!TriesChanges(recipe, plan)) return {};
  const plan::Candidate& chosen = plan::Chosen(plan);
  const Problem asked = ProblemOf(recipe, plan);
  std::vector<Trial> trials = FreedSettings(asked);
  for (Trial& trial : StatedSettings(asked, plan.layout)) trials.push_back(std::move(trial));
  // A recipe for this machine says nothing about others.
  recipe::Recipe larger = recipe;
  larger.cluster.nodes *= 2;
  if (recipe.cluster.device != "cpu" || recipe.cluster.nodes > 1) {
    if (const absl::StatusOr<plan::Plan> resolved = ResolvePlan(larger, host, measured); resolved.ok()) {
      trials.push_back({ProblemOf(larger, *resolved), absl::StrCat("cluster.nodes = ", larger.cluster.nodes),
                        /*on_more_nodes=*/true});
    }
  }
  const std::vector<std::optional<Change>> tried = TryAll(trials, asked.request, chosen.step_seconds);
  std::vector<Change> faster, on_more_nodes, smaller;
  for (size_t i = 0; i < trials.size(); ++i) {
    const std::optional<Change>& change = tried[i];
    if (!change.has_value()) continue;
    const double memory =
        static_cast<double>(change->peak_bytes) / static_cast<double>(chosen.memory.peak_bytes);
    if (change->speed > kSameTime) {
      (trials[i].on_more_nodes ? on_more_nodes : faster).push_back(*change);
    } else if (!trials[i].on_more_nodes && memory <= kWorthSaving && change->speed >= kWorthItsTime) {
      smaller.push_back(*change);
    }
  }
  const auto is_faster = [](const Change& a, const Change& b) { return a.speed > b.speed; };
  std::stable_sort(faster.begin(), faster.end(), is_faster);
  // The least memory times time.
  std::stable_sort(smaller.begin(), smaller.end(), [](const Change& a, const Change& b) {
    return static_cast<double>(a.peak_bytes) / a.speed < static_cast<double>(b.peak_bytes) / b.speed;
  });
  std::vector<Change> changes;
  for (std::vector<Change>* kind : {&faster, &on_more_nodes, &smaller}) {
    for (Change& change : *kind) {
      if (static_cast<int>(changes.size()) < kMaxChanges) changes.push_back(std::move(change));
    }
  }
  return changes;
}

std::vector<Change> FindChangesFor(const recipe::Recipe& recipe, const cluster::Host& host,
                                   const plan::Plan& plan) {
  std::vector<std::string> ignored;
  const absl::StatusOr<std::optional<simulate::MachineProfile>> measured =
      simulate::LoadMachineProfile(host, ignored);
  return FindChanges(recipe, host, measured.ok() && *measured ? &**measured : nullptr, plan);
}

std::string EffectOf(const Change& change, const plan::Plan& plan) {
  std::vector<std::string> effects;
  if (plan::HasTimes(plan)) {
    if (change.speed >= 1.1) {
      effects.push_back(absl::StrFormat("%.2fx as fast", change.speed));
    } else if (change.speed > kSameTime) {
      effects.push_back(absl::StrFormat("%.1f %% faster", (change.speed - 1) * 100));
    } else if (change.speed * kSameTime < 1) {
      effects.push_back(absl::StrFormat("%.1f %% slower", (1 / change.speed - 1) * 100));
    } else {
      effects.push_back("as fast");
    }
  }
  const int64_t saved = plan.predicted.peak_bytes - change.peak_bytes;
  if (std::abs(saved) * 100 >= plan.predicted.peak_bytes)
    effects.push_back(absl::StrCat(FormatBytes(std::abs(saved)), saved > 0 ? " less" : " more"));
  return absl::StrJoin(effects, ", ");
}

}  // namespace trainctl::planner
