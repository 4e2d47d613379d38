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

// That pipeline and tensor parallelism cut the model in.
int64_t NumParts(const Layout& layout) { return layout.mesh.pp * layout.mesh.tp; }
int64_t NumParts(const Candidate& candidate) { return NumParts(candidate.layout); }

// 1F1B, or there is no pipeline: 0; the others as they are listed, with few stages of a rank before many.
std::pair<int, int64_t> OrderKey(const Layout& layout) {
  const absl::StatusOr<schedule::PipelineKind> kind = schedule::ParsePipelineKind(layout.pipeline.order);
  if (!kind.ok() || *kind == schedule::PipelineKind::k1F1B) return {0, 0};
  return {1 + static_cast<int>(*kind), layout.pipeline.virtual_stages};
}

// That are computed again, over all stages.
int64_t NumRecomputed(const Layout& layout) {
  const std::vector<int64_t>& layers = layout.recomputed_layers;
  if (layout.recompute != Recompute::kFull) return 0;
  if (layers.empty()) return std::numeric_limits<int64_t>::max();
  return std::accumulate(layers.begin(), layers.end(), int64_t{0});
}

bool ComputesMoreAgain(const Layout& a, const Layout& b) {
  return std::make_pair(a.recompute, NumRecomputed(a)) > std::make_pair(b.recompute, NumRecomputed(b));
}

}  // namespace

LayoutKey KeyOf(const Layout& layout) {
  return {NumParts(layout), OrderKey(layout), layout.recompute, layout.zero_stage};
}

bool Simpler(const Candidate& a, const Candidate& b) {
  const auto key = [](const Candidate& c) {
    return std::tuple_cat(KeyOf(c.layout), std::make_tuple(NumRecomputed(c.layout), c.memory.peak_bytes,
                                                           c.layout.mesh.dp_shard));
  };
  return key(a) < key(b);
}

namespace {

std::string WhatAgain(const Layout& layout) {
  if (layout.recompute == Recompute::kSelective) return "forms norms and activations twice";
  if (layout.recompute == Recompute::kAttention) return "forms norms, activations and attention twice";
  if (layout.recomputed_layers.empty()) return "computes activations twice";
  const int64_t count = NumRecomputed(layout);
  return absl::StrCat("computes the activations of ", count, count == 1 ? " layer twice" : " layers twice");
}

// Why a layout that fits was not taken.
std::string WhySlower(const Candidate& candidate, const Candidate& chosen) {
  const double ratio = candidate.step_seconds / chosen.step_seconds;
  if (ratio <= kSameTime) {
    if (NumParts(candidate) > NumParts(chosen)) {
      return ratio >= 1
                 ? "fits, but is no faster and cuts the model"
                 : absl::StrFormat("fits, but cuts the model for %.0f %% of a step", (1 - ratio) * 100);
    }
    if (OrderKey(candidate.layout) > OrderKey(chosen.layout))
      return absl::StrCat("fits, but is no faster than with ", chosen.layout.pipeline.order);
    if (candidate.layout.recompute > chosen.layout.recompute)
      return absl::StrCat("fits, but ", WhatAgain(candidate.layout));
    if (candidate.layout.zero_stage != chosen.layout.zero_stage) {
      return "fits, but is no faster, and the chosen one shards less";
    }
    if (ComputesMoreAgain(candidate.layout, chosen.layout))
      return absl::StrCat("fits, but ", WhatAgain(candidate.layout));
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
  if (ComputesMoreAgain(candidate.layout, chosen.layout)) causes.push_back(WhatAgain(candidate.layout));
  if (candidate.layout.micro_batch < chosen.layout.micro_batch) causes.push_back("smaller micro-batches");
  return absl::StrFormat("fits, but is about %.0f %% slower%s%s", (ratio - 1) * 100,
                         causes.empty() ? "" : ": ", absl::StrJoin(causes, ", "));
}

}  // namespace

int Choose(int64_t memory_limit_bytes, int64_t asked_parts, bool is_asked,
           std::vector<Candidate>& candidates) {
  const auto fastest_of = [&](const auto& takes_part) {
    double fastest = -1;
    for (const Candidate& candidate : candidates) {
      if (candidate.fits && takes_part(candidate) && (fastest < 0 || candidate.step_seconds < fastest))
        fastest = candidate.step_seconds;
    }
    return fastest;
  };
  const double uncut = fastest_of([&](const Candidate& c) { return NumParts(c) <= asked_parts; });
  const auto takes_part = [&](const Candidate& c) {
    return NumParts(c) <= asked_parts || uncut < 0 || c.step_seconds * kWorthCutting <= uncut;
  };
  const double fastest = fastest_of(takes_part);
  int chosen = -1;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (!candidates[i].fits || !takes_part(candidates[i]) || candidates[i].step_seconds > fastest * kSameTime)
      continue;
    if (chosen < 0 || Simpler(candidates[i], candidates[static_cast<size_t>(chosen)])) {
      chosen = static_cast<int>(i);
    }
  }
  for (size_t i = 0; i < candidates.size(); ++i) {
    Candidate& candidate = candidates[i];
    if (static_cast<int>(i) == chosen) {
      candidate.chosen = true;
      candidate.reason = is_asked ? "what the recipe asks for" : "the simplest of the fastest that fit";
    } else if (!candidate.fits) {
      candidate.reason = WhyNotFits(candidate.memory, memory_limit_bytes);
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

}  // namespace trainctl::planner
