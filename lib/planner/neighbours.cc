#include "planner/neighbours.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/units.h"

namespace trainctl::planner {
namespace {

using layout::Layout;
using layout::Recompute;
using plan::Candidate;

// `relaxed`: what was asked with what may be other.
std::string SettingsOf(const Problem& asked, const Problem& relaxed, const Candidate& candidate) {
  std::vector<std::string> settings;
  const Layout& layout = candidate.layout;
  const auto set = [&](const char* name, const std::string& value) {
    settings.push_back(absl::StrCat(name, " = ", value));
  };
  if (!asked.request.pp.has_value() && layout.mesh.pp > 1) set("parallel.pp", absl::StrCat(layout.mesh.pp));
  if (!asked.request.tp.has_value() && layout.mesh.tp > 1) set("parallel.tp", absl::StrCat(layout.mesh.tp));
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
  if (asked.request.recompute.has_value() && !relaxed.request.recompute.has_value()) {
    // Of its own accord "full" is all layers.
    const bool is_chosen = !layout.recomputed_layers.empty();
    const absl::string_view name = is_chosen ? "auto" : layout::RecomputeName(layout.recompute);
    if (is_chosen || *asked.request.recompute != layout.recompute)
      set("parallel.recompute", absl::StrCat("\"", name, "\""));
    if (asked.request.recomputed_layers.has_value()) set("parallel.recomputed_layers", "\"auto\"");
  }
  return absl::StrJoin(settings, ", ");
}

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
  const std::string settings = SettingsOf(asked, problem, candidate);
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
                        "): ", SettingsOf(asked, problem, candidate));
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
  problem.request.pp = asked.request.pp.value_or(1);
  problem.request.tp = asked.request.tp.value_or(1);
  FreeLayout(problem);
  problem.request.micro_batch = 1;
  FreeRecompute(problem);
  const Found found = Search(problem, Wanted::kAll, passes);
  const Candidate* smallest = Smallest(found.candidates);
  if (smallest == nullptr) return "no layout is possible";
  const bool is_cut_free = !asked.request.pp.has_value() || !asked.request.tp.has_value();
  return absl::StrCat("no layout fits even on more workers; the least", is_cut_free ? " without a cut" : "",
                      " is ", FormatBytes(smallest->memory.peak_bytes), " with ", smallest->layout.ToString(),
                      ": raise cluster.memory_limit, or lower data.seq_len or the model's size", alone);
}

}  // namespace trainctl::planner
