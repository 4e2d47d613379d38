#include "planner/choose.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/units.h"
#include "schedule/pipeline.h"

namespace trainctl::planner {

using layout::Layout;
using layout::Recompute;
using plan::Candidate;

namespace {

// The parts that pipeline and tensor parallelism cut the model in.
int64_t NumParts(const Layout& layout) { return layout.mesh.pp * layout.mesh.tp; }

// Axes of the mesh with more than one rank.
int NumAxes(const layout::Mesh& mesh) {
  int count = 0;
  for (const int64_t degree : {mesh.pp, mesh.dp_replicate, mesh.dp_shard, mesh.tp}) count += degree > 1;
  return count;
}

// {0, 0} for 1F1B and for a layout without a pipeline. Other orders follow as they are listed, with few
// virtual stages before many.
std::pair<int, int64_t> OrderKey(const Layout& layout) {
  const absl::StatusOr<schedule::PipelineKind> kind = schedule::ParsePipelineKind(layout.pipeline.order);
  if (!kind.ok() || *kind == schedule::PipelineKind::k1F1B) return {0, 0};
  return {1 + static_cast<int>(*kind), layout.pipeline.virtual_stages};
}

// Recomputed layers of all stages.
int64_t NumRecomputed(const Layout& layout) {
  const std::vector<int64_t>& layers = layout.recomputed_layers;
  if (layout.recompute != Recompute::kFull) return 0;
  if (layers.empty()) return std::numeric_limits<int64_t>::max();
  return std::accumulate(layers.begin(), layers.end(), int64_t{0});
}

bool ComputesMoreAgain(const Layout& a, const Layout& b) {
  return std::make_pair(a.recompute, NumRecomputed(a)) > std::make_pair(b.recompute, NumRecomputed(b));
}

// With what decides between layouts of the same key.
auto FullKeyOf(const Candidate& candidate, int64_t limit_bytes) {
  const int64_t peak_bytes = candidate.memory.peak_bytes;
  return std::tuple_cat(
      KeyOf(candidate.layout, IsTight(peak_bytes, limit_bytes)),
      std::make_tuple(NumRecomputed(candidate.layout), peak_bytes, candidate.layout.mesh.dp_shard));
}

std::string WhatAgain(const Layout& layout) {
  if (layout.recompute == Recompute::kSelective) return "recomputes norms and activations";
  if (layout.recompute == Recompute::kAttention) return "recomputes norms, activations and attention";
  if (layout.recomputed_layers.empty()) return "recomputes all layers";
  const int64_t count = NumRecomputed(layout);
  return absl::StrCat("recomputes ", count, count == 1 ? " layer" : " layers");
}

// The chosen layout compared with one that is equally fast.
struct Advantage {
  const char* of_chosen;  // "which needs fewer axes of parallelism"
  const char* of_other;   // "but needs more axes of parallelism"
};
Advantage AdvantageOver(const Candidate& other, const Candidate& chosen, int64_t limit_bytes) {
  const Layout &a = chosen.layout, &b = other.layout;
  if (IsTight(other.memory.peak_bytes, limit_bytes) && !IsTight(chosen.memory.peak_bytes, limit_bytes))
    return {"leaves a tenth of the memory free", "leaves less than a tenth of the memory free"};
  if (NumAxes(b.mesh) > NumAxes(a.mesh))
    return {"needs fewer axes of parallelism", "needs more axes of parallelism"};
  if (NumParts(b) > NumParts(a)) return {"cuts the model in fewer parts", "cuts the model in more parts"};
  if (OrderKey(b) > OrderKey(a)) return {"has a simpler pipeline order", "has a more complex pipeline order"};
  if (b.zero_stage > a.zero_stage) return {"shards less", "shards more"};
  if (ComputesMoreAgain(b, a)) return {"recomputes less", "recomputes more"};
  return {"needs less memory", "needs more memory"};
}

// Why the chosen candidate was taken.
std::string WhyChosen(const Candidate& chosen, const Candidate& fastest, int64_t limit_bytes) {
  if (&chosen == &fastest) return "the fastest that fits";
  return absl::StrCat("within 1 % of the fastest, and ",
                      AdvantageOver(fastest, chosen, limit_bytes).of_chosen);
}

// Why a layout that fits was not taken.
std::string WhyNotChosen(const Candidate& candidate, const Candidate& chosen, const Candidate& fastest,
                         int64_t limit_bytes) {
  if (candidate.step_seconds <= fastest.step_seconds * kSameTime)
    return absl::StrCat("as fast, but ", AdvantageOver(candidate, chosen, limit_bytes).of_other);
  std::vector<std::string> causes;
  if (chosen.sent_bytes == 0 && candidate.sent_bytes > 0) {
    causes.push_back(absl::StrCat("moves ", FormatBytes(candidate.sent_bytes), " per step"));
  } else if (candidate.sent_bytes > chosen.sent_bytes + chosen.sent_bytes / 20) {
    causes.push_back(absl::StrFormat("moves %.1fx the bytes", static_cast<double>(candidate.sent_bytes) /
                                                                  static_cast<double>(chosen.sent_bytes)));
  }
  if (ComputesMoreAgain(candidate.layout, chosen.layout)) causes.push_back(WhatAgain(candidate.layout));
  if (candidate.layout.micro_batch < chosen.layout.micro_batch) causes.push_back("smaller micro-batches");
  return absl::StrFormat("%.3g %% slower%s%s", (candidate.step_seconds / chosen.step_seconds - 1) * 100,
                         causes.empty() ? "" : ": ", absl::StrJoin(causes, ", "));
}

}  // namespace

LayoutKey KeyOf(const Layout& layout, bool is_tight) {
  return {is_tight,         NumAxes(layout.mesh), NumParts(layout),
          OrderKey(layout), layout.zero_stage,    layout.recompute};
}

int Choose(int64_t memory_limit_bytes, bool is_asked, std::vector<Candidate>& candidates) {
  const Candidate* fastest = nullptr;
  for (const Candidate& candidate : candidates) {
    if (candidate.fits && (fastest == nullptr || candidate.step_seconds < fastest->step_seconds))
      fastest = &candidate;
  }
  Candidate* chosen = nullptr;
  for (Candidate& candidate : candidates) {
    if (!candidate.fits) {
      candidate.reason = WhyNotFits(candidate.memory, memory_limit_bytes);
    } else if (candidate.step_seconds <= fastest->step_seconds * kSameTime &&
               (chosen == nullptr ||
                FullKeyOf(candidate, memory_limit_bytes) < FullKeyOf(*chosen, memory_limit_bytes))) {
      chosen = &candidate;
    }
  }
  if (chosen == nullptr) return -1;
  for (Candidate& candidate : candidates) {
    if (candidate.fits) candidate.reason = WhyNotChosen(candidate, *chosen, *fastest, memory_limit_bytes);
  }
  chosen->chosen = true;
  chosen->reason = is_asked ? "what the recipe asks for" : WhyChosen(*chosen, *fastest, memory_limit_bytes);
  return static_cast<int>(chosen - candidates.data());
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

}  // namespace trainctl::planner
