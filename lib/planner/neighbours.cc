#include "planner/neighbours.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/units.h"
#include "planner/settings.h"

namespace trainctl::planner {
namespace {

using plan::Candidate;

// The one with the least memory, or nullptr.
const Candidate* Smallest(const std::vector<Candidate>& candidates) {
  const auto smallest = std::min_element(
      candidates.begin(), candidates.end(),
      [](const Candidate& a, const Candidate& b) { return a.memory.peak_bytes < b.memory.peak_bytes; });
  return smallest == candidates.end() ? nullptr : &*smallest;
}

void FreeLayout(Problem& problem) {
  problem.request.dp_replicate.reset(), problem.request.dp_shard.reset(), problem.request.zero_stage.reset();
}
void FreeCut(Problem& problem) {
  layout::Request& request = problem.request;
  if (!request.passes.empty()) return;  // they are of so many ranks
  request.pp.reset(), request.tp.reset(), request.sequence_parallel.reset();
  request.pipeline_order.reset(), request.virtual_stages.reset(), request.stage_layers.reset();
}
void FreeRecompute(Problem& problem) {
  problem.request.recompute.reset(), problem.request.recomputed_layers.reset();
}

// What fits on these workers without fp32 masters: "; or ..."; empty where nothing does. A run that goes on
// keeps its type of masters. Degrees that cut the model are left as they were asked for, or 1.
std::string WithWeightsInBf16Alone(const Problem& asked, const SearchPasses& passes) {
  const schedule::Types& types = asked.setting.types;
  if (types.compute != DType::kBF16 || types.master == DType::kBF16) return "";
  Problem problem = asked;
  problem.setting.types.master = DType::kBF16;
  problem.request.pp = asked.request.pp.value_or(1);
  problem.request.tp = asked.request.tp.value_or(1);
  problem.request.micro_batch.reset();
  FreeRecompute(problem);
  FreeLayout(problem);
  const Found found = Search(problem, Wanted::kChoice, passes);
  if (found.chosen < 0) return "";
  const Candidate& candidate = found.candidates[static_cast<size_t>(found.chosen)];
  const std::string settings = Rewrite(asked.request, problem.request, candidate.layout).settings;
  return absl::StrCat(
      "; or, in a new run with weights in bf16 alone (", FormatBytes(candidate.memory.peak_bytes),
      "): train.precision = \"bf16\", train.master_dtype = \"bf16\"", settings.empty() ? "" : ", ", settings);
}

}  // namespace

std::string NearestThatFits(const Problem& asked, const SearchPasses& passes) {
  // From the smallest change to the largest; each keeps what the ones before it freed.
  struct Relaxation {
    bool micro_batch, recompute, layout, cut;
  };
  for (const Relaxation& free : {Relaxation{true, false, false, false}, Relaxation{false, true, false, false},
                                 Relaxation{true, true, false, false}, Relaxation{false, false, true, false},
                                 Relaxation{true, true, true, false}, Relaxation{true, true, true, true}}) {
    Problem problem = asked;
    if (free.micro_batch) problem.request.micro_batch.reset();
    if (free.recompute) FreeRecompute(problem);
    if (free.layout) FreeLayout(problem);
    if (free.cut) FreeCut(problem);
    const Found found = Search(problem, Wanted::kChoice, passes);
    if (found.chosen < 0) continue;
    const Candidate& candidate = found.candidates[static_cast<size_t>(found.chosen)];
    return absl::StrCat("this fits (", FormatBytes(candidate.memory.peak_bytes),
                        "): ", Rewrite(asked.request, problem.request, candidate.layout).settings);
  }
  const std::string alone = WithWeightsInBf16Alone(asked, passes);
  // Nothing on these workers: more of them.
  Problem problem = asked;
  FreeLayout(problem);
  FreeRecompute(problem);
  FreeCut(problem);
  problem.request.micro_batch.reset();
  const int64_t asked_workers = asked.request.num_workers();
  for (int factor = 2; factor <= 1024 && asked_workers <= (1 << 14) / factor; factor *= 2) {
    const int64_t workers = asked_workers * factor;
    // One machine takes as many workers as are started, a node of devices those that it has; where there are
    // several machines, more of them bring memory of their own.
    const bool on_nodes = asked.setting.on_device || asked.request.nodes > 1;
    problem.request.nodes = asked.request.nodes * (on_nodes ? factor : 1);
    problem.request.devices_per_node = asked.request.devices_per_node * (on_nodes ? 1 : factor);
    if (asked.limit_is_shared && !on_nodes) {
      problem.memory_limit_bytes =
          (asked.memory_limit_bytes + kWorkerOverheadBytes) / factor - kWorkerOverheadBytes;
    }
    problem.request.batch_sequences = asked.request.batch_sequences;
    if (!layout::FindViolations(problem.request).empty()) problem.request.batch_sequences = workers;
    if (!layout::FindViolations(problem.request).empty()) continue;
    const Found found = Search(problem, Wanted::kChoice, passes);
    if (found.chosen < 0) continue;
    const Candidate& candidate = found.candidates[static_cast<size_t>(found.chosen)];
    const std::string settings = Rewrite(asked.request, problem.request, candidate.layout).settings;
    return absl::StrCat(
        "this fits (", FormatBytes(candidate.memory.peak_bytes), "), on ", workers, " workers: ",
        on_nodes ? absl::StrCat("cluster.nodes = ", problem.request.nodes)
                 : absl::StrCat("cluster.devices_per_node = ", problem.request.devices_per_node),
        settings.empty() ? "" : ", ", settings,
        problem.request.batch_sequences == asked.request.batch_sequences
            ? ""
            : absl::StrCat(", train.batch_sequences = ", problem.request.batch_sequences),
        alone);
  }
  // Every layout without a cut is simulated: bounds do not say which is the smallest.
  problem = asked;
  FreeLayout(problem);
  problem.request.pp = asked.request.pp.value_or(1);
  problem.request.tp = asked.request.tp.value_or(1);
  problem.request.micro_batch = 1;
  FreeRecompute(problem);
  SearchPasses exact = passes;
  exact.prune_memory = exact.prune_time = false;
  const Found found = Search(problem, Wanted::kFamilies, exact);
  const Candidate* const smallest = Smallest(found.candidates);
  const std::string remedy = ": raise cluster.memory_limit, or lower data.seq_len or the model's size";
  if (smallest == nullptr) return absl::StrCat("no layout fits even on more workers", remedy, alone);
  const bool is_cut_free = !asked.request.pp.has_value() || !asked.request.tp.has_value();
  return absl::StrCat("no layout fits even on more workers; the least", is_cut_free ? " without a cut" : "",
                      " is ", FormatBytes(smallest->memory.peak_bytes), " with ", smallest->layout.ToString(),
                      remedy, alone);
}

}  // namespace trainctl::planner
