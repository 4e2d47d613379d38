#include "apps/trainctl/plan_table.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "apps/trainctl/text_table.h"
#include "base/units.h"
#include "layout/family.h"
#include "plan/utilization.h"
#include "planner/run_estimate.h"

namespace trainctl::cli {
namespace {

using plan::Candidate;

bool IsBetter(const Candidate* a, const Candidate* b) {
  if (a->chosen != b->chosen) return a->chosen;
  if (a->fits != b->fits) return a->fits;
  return a->fits ? a->step_seconds < b->step_seconds : a->memory.peak_bytes < b->memory.peak_bytes;
}

std::vector<const Candidate*> BestOfFamilies(const plan::Plan& plan) {
  std::map<layout::Family, const Candidate*> best;
  for (const Candidate& candidate : plan.candidates) {
    const auto [it, is_new] = best.try_emplace(layout::FamilyOf(candidate.layout), &candidate);
    if (!is_new && IsBetter(&candidate, it->second)) it->second = &candidate;
  }
  std::vector<const Candidate*> rows;
  for (const auto& [family, candidate] : best) rows.push_back(candidate);
  return rows;
}

std::vector<const Candidate*> All(const plan::Plan& plan) {
  std::vector<const Candidate*> rows;
  for (const Candidate& candidate : plan.candidates) rows.push_back(&candidate);
  return rows;
}

// "full", "full 3,1": layers of each stage; of many stages "full of 40".
std::string WhatAgain(const layout::Layout& layout) {
  constexpr size_t kMostShown = 4;
  const std::vector<int64_t>& layers = layout.recomputed_layers;
  const absl::string_view name = layout::RecomputeName(layout.recompute);
  if (layers.empty()) return std::string(name);
  if (layers.size() <= kMostShown) return absl::StrCat(name, " ", absl::StrJoin(layers, ","));
  return absl::StrCat(name, " of ", std::accumulate(layers.begin(), layers.end(), int64_t{0}));
}

// "DDP", "HSDP ZeRO-3", or "-" without data parallelism.
std::string StrategyOf(const layout::Layout& layout) {
  if (layout.mesh.data_degree() == 1 && layout.mesh.world_size() > 1) return "-";
  const std::string name(layout::StrategyName(layout.zero_stage));
  const bool is_hybrid = layout.mesh.dp_replicate > 1 && layout.mesh.dp_shard > 1;
  return is_hybrid ? absl::StrCat("HSDP ", name) : name;
}

// "8 1f1b", "4 interleaved-1f1b x2", or "1" without a pipeline.
std::string PipelineOf(const layout::Layout& layout) {
  if (layout.mesh.pp == 1) return "1";
  const std::string stages =
      layout.pipeline.virtual_stages == 1 ? "" : absl::StrCat(" x", layout.pipeline.virtual_stages);
  return absl::StrCat(layout.mesh.pp, " ", layout.pipeline.order, stages);
}

}  // namespace

void PrintPlanTable(const plan::Plan& plan, const recipe::Recipe& recipe, const PlanTableOptions& options) {
  const std::vector<const Candidate*> rows = options.all ? All(plan) : BestOfFamilies(plan);
  const bool has_tensor =
      std::any_of(rows.begin(), rows.end(), [](const Candidate* row) { return row->layout.mesh.tp > 1; });
  const bool has_pipeline =
      std::any_of(rows.begin(), rows.end(), [](const Candidate* row) { return row->layout.mesh.pp > 1; });
  const bool has_times = plan::HasTimes(plan);
  const bool has_mfu = has_times && plan.peak_flops > 0;
  std::vector<std::string> head = {"", "strategy", "replicate", "shard"};
  if (has_tensor) head.emplace_back("tp");
  if (has_pipeline) head.emplace_back("pp");
  head.insert(head.end(), {"micro", "recompute", "memory"});
  if (has_times) head.insert(head.end(), {"step", "tok/s each"});
  if (has_mfu) head.emplace_back("MFU");
  head.emplace_back("");
  std::vector<size_t> left;
  for (size_t i = 0; i < head.size(); ++i) {
    if (head[i].empty() || head[i] == "strategy" || head[i] == "recompute") left.push_back(i);
  }
  TextTable table(head, left);
  for (const Candidate* row : rows) {
    const layout::Layout& layout = row->layout;
    std::vector<std::string> cells = {row->chosen ? "*" : "", StrategyOf(layout),
                                      absl::StrCat(layout.mesh.dp_replicate),
                                      absl::StrCat(layout.mesh.dp_shard)};
    if (has_tensor) cells.push_back(absl::StrCat(layout.mesh.tp));
    if (has_pipeline) cells.push_back(PipelineOf(layout));
    cells.insert(cells.end(),
                 {absl::StrCat(layout.micro_batch), WhatAgain(layout), FormatBytes(row->memory.peak_bytes)});
    const planner::RunEstimate estimate = planner::EstimateRun(plan, *row, recipe);
    const double workers = static_cast<double>(plan.layout.mesh.world_size());
    const auto if_fits = [&](std::string text) { return row->fits ? std::move(text) : std::string("-"); };
    if (has_times) {
      cells.push_back(if_fits(planner::FormatSeconds(estimate.step_seconds)));
      cells.push_back(if_fits(planner::FormatRate(estimate.tokens_per_second / workers)));
    }
    if (has_mfu) cells.push_back(if_fits(absl::StrFormat("%.1f %%", estimate.mfu * 100)));
    cells.push_back(row->reason);
    table.Add(std::move(cells), row->chosen);
  }
  table.Print(options.color);
}

}  // namespace trainctl::cli
