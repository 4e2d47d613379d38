#include "planner/neighbours.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/units.h"
#include "planner/settings.h"

namespace trainctl::planner {
namespace {

using layout::Layout;
using layout::Recompute;
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
  const std::string settings = SettingsOf(asked.request, problem.request, candidate.layout);
  return absl::StrCat(
      "; or, in a new run with weights in bf16 alone (", FormatBytes(candidate.memory.peak_bytes),
      "): train.precision = \"bf16\", train.master_dtype = \"bf16\"", settings.empty() ? "" : ", ", settings);
}

}  // namespace

std::string NearestThatFits(const Problem& asked, const SearchPasses& passes) {
  // From the smallest change to the largest; each keeps what the ones before it freed.
  struct Relaxation {
    bool micro_batch, recompute, layout;
  };
  for (const Relaxation& free :
       {Relaxation{true, false, false}, Relaxation{false, true, false}, Relaxation{true, true, false},
        Relaxation{false, false, true}, Relaxation{true, true, true}}) {
    Problem problem = asked;
    if (free.micro_batch) problem.request.micro_batch.reset();
    if (free.recompute) FreeRecompute(problem);
    if (free.layout) FreeLayout(problem);
    const Found found = Search(problem, Wanted::kChoice, passes);
    if (found.chosen < 0) continue;
    const Candidate& candidate = found.candidates[static_cast<size_t>(found.chosen)];
    return absl::StrCat("this fits (", FormatBytes(candidate.memory.peak_bytes),
                        "): ", SettingsOf(asked.request, problem.request, candidate.layout));
  }
  const std::string alone = WithWeightsInBf16Alone(asked, passes);
  // Nothing on these workers: more of them, everything sharded.
  Problem problem = asked;
  problem.request.dp_replicate.reset(), problem.request.dp_shard.reset();
  problem.request.zero_stage = 3;
  problem.request.micro_batch = 1;
  problem.request.recompute = Recompute::kFull;
  problem.request.pp = asked.request.pp.value_or(1);
  problem.request.tp = asked.request.tp.value_or(1);
  const int64_t asked_workers = asked.request.num_workers();
  const int64_t model_workers = *problem.request.pp * *problem.request.tp;
  const int64_t per_worker_batch = asked.request.batch_sequences / asked.request.data_workers();
  for (int factor = 2; factor <= 1024 && asked_workers <= (1 << 14) / factor; factor *= 2) {
    const int64_t workers = asked_workers * factor;
    // One machine takes as many workers as are started, a node of devices those that it has; where there are
    // several machines, more of them bring memory of their own.
    const bool on_nodes = asked.setting.on_device || asked.request.nodes > 1;
    problem.request.nodes = asked.request.nodes * (on_nodes ? factor : 1);
    problem.request.devices_per_node = asked.request.devices_per_node * (on_nodes ? 1 : factor);
    problem.request.dp_shard = workers / model_workers;
    problem.request.batch_sequences =
        std::max<int64_t>(per_worker_batch / factor, 1) * (workers / model_workers);
    if (asked.limit_is_shared && !on_nodes) {
      problem.memory_limit_bytes =
          (asked.memory_limit_bytes + kWorkerOverheadBytes) / factor - kWorkerOverheadBytes;
    }
    if (!layout::FindViolations(problem.request).empty()) continue;
    const Found found = Search(problem, Wanted::kChoice, passes);
    if (found.chosen < 0) continue;
    return absl::StrCat(
        "this fits (", FormatBytes(found.candidates[static_cast<size_t>(found.chosen)].memory.peak_bytes),
        "), on ", workers, " workers: ",
        on_nodes ? absl::StrCat("cluster.nodes = ", problem.request.nodes)
                 : absl::StrCat("cluster.devices_per_node = ", problem.request.devices_per_node),
        ", parallel.zero_stage = 3, parallel.recompute = \"full\", train.micro_batch = 1",
        problem.request.batch_sequences == asked.request.batch_sequences
            ? ""
            : absl::StrCat(", train.batch_sequences = ", problem.request.batch_sequences),
        asked.request.dp_replicate.has_value() || asked.request.dp_shard.has_value()
            ? ", parallel.dp_replicate = \"auto\", parallel.dp_shard = \"auto\""
            : "",
        alone);
  }
  problem = asked;
  FreeLayout(problem);
  problem.request.micro_batch = 1;
  FreeRecompute(problem);
  const Found found = Search(problem, Wanted::kFamilies, passes);
  const Candidate* smallest = Smallest(found.candidates);
  if (smallest == nullptr) return "no layout is possible";
  return absl::StrCat("no layout fits even on more workers; the least", " is ",
                      FormatBytes(smallest->memory.peak_bytes), " with ", smallest->layout.ToString(),
                      ": raise cluster.memory_limit, or lower data.seq_len or the model's size", alone);
}

}  // namespace trainctl::planner
