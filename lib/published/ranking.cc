#include "published/ranking.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "frameworks/cluster_plan.h"

namespace trainctl::published {
namespace {

constexpr double kOutOfMemoryPercent = 100;

// One row of the file with all that a sweep compares.
struct Entry {
  const PublishedRun* run = nullptr;
  const ScoredRow* row = nullptr;
  const frameworks::Workload& w() const { return *run->workload; }
};

bool SameSweep(SweepKind kind, const Entry& a, const Entry& b) {
  const frameworks::Workload& v = a.w();
  const frameworks::Workload& w = b.w();
  if (SourceRepository(a.row->source) != SourceRepository(b.row->source) || !(v.model == w.model) ||
      v.device != w.device || v.node != w.node || v.seq_len != w.seq_len || v.precision != w.precision ||
      v.framework != w.framework) {
    return false;
  }
  return kind == SweepKind::kEfficiency ||
         (v.mesh.world_size() == w.mesh.world_size() && v.global_batch == w.global_batch);
}

// Seconds of a step, or GPU-seconds per token.
double Measure(SweepKind kind, const frameworks::Workload& w, double step_seconds) {
  if (kind == SweepKind::kMapping) return step_seconds;
  return step_seconds * static_cast<double>(w.mesh.world_size()) /
         (static_cast<double>(w.global_batch) * static_cast<double>(w.seq_len));
}

// Names and values of what may tell candidates apart, in the order in which they are told.
std::vector<std::pair<const char*, std::string>> MappingWords(const frameworks::Workload& w) {
  return {
      {"GPUs", absl::StrCat(w.mesh.world_size())},
      {"tp", absl::StrCat(w.mesh.tp)},
      {"pp", absl::StrCat(w.mesh.pp)},
      {"v", absl::StrCat(w.virtual_stages)},
      {"cp", absl::StrCat(w.mesh.cp)},
      {"ep", absl::StrCat(w.mesh.ep)},
      {"zero", absl::StrCat(w.zero_stage)},
      {"group", absl::StrCat(w.mesh.dp_shard)},
      {"micro-batch", absl::StrCat(w.micro_batch)},
      {"batch", absl::StrCat(w.global_batch)},
      {"recompute", std::string(frameworks::RecomputeName(w.recompute))},
      {"modules", absl::StrCat(w.recompute_modules)},
      {"dispatch", w.expert_dispatch == frameworks::ExpertDispatch::kNodeAware ? "node-aware" : "all-to-all"},
      {"overlap of experts", w.overlap_experts ? "yes" : "no"},
      {"optimizer bytes", absl::StrCat(w.OptimizerBytes())},
      {"loss chunks", absl::StrCat(w.loss_chunks)}};
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::string Describe(SweepKind kind, const frameworks::Workload& w) {
  std::string what =
      absl::StrCat(NumLayers(w.model), " layers of ", w.model.hidden, ", ", AttentionOf(w.model).heads,
                   " heads, sequences of ", w.seq_len, ", ", w.device->name);
  if (kind == SweepKind::kMapping)
    absl::StrAppend(&what, " x ", w.mesh.world_size(), ", batch ", w.global_batch);
  return what;
}

// Candidates of one sweep from its rows; rows with the same mapping are one.
Sweep BuildSweep(SweepKind kind, const std::vector<Entry>& entries) {
  std::vector<std::vector<Entry>> groups;
  for (const Entry& entry : entries) {
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const std::vector<Entry>& group) {
      return group[0].w() == entry.w();
    });
    (same == groups.end() ? groups.emplace_back() : *same).push_back(entry);
  }
  std::set<std::string> differs;
  for (const std::vector<Entry>& group : groups) {
    const auto first = MappingWords(groups[0][0].w());
    const auto words = MappingWords(group[0].w());
    for (size_t i = 0; i < words.size(); ++i) {
      if (words[i].second != first[i].second) differs.insert(words[i].first);
    }
  }
  Sweep sweep;
  sweep.kind = kind;
  sweep.source = SourceRepository(entries[0].row->source);
  sweep.what = Describe(kind, entries[0].w());
  for (const std::vector<Entry>& group : groups) {
    SweepCandidate candidate;
    std::vector<std::string> words;
    for (const auto& [name, value] : MappingWords(group[0].w())) {
      if (differs.contains(name)) words.push_back(absl::StrCat(name, " ", value));
    }
    candidate.mapping = absl::StrJoin(words, " ");
    const frameworks::Workload& w = group[0].w();
    candidate.predicted = Measure(kind, w, group[0].row->predicted_step_seconds);
    candidate.fits = group[0].row->status == ScoreStatus::kScored;
    std::vector<double> measured;
    for (const Entry& entry : group) {
      candidate.ids.push_back(entry.row->id);
      if (entry.run->measured_step_seconds > 0) measured.push_back(entry.run->measured_step_seconds);
    }
    candidate.out_of_memory = measured.empty();
    if (!measured.empty()) candidate.measured = Measure(kind, w, Median(measured));
    sweep.candidates.push_back(std::move(candidate));
  }
  return sweep;
}

void Judge(Sweep& sweep) {
  const std::vector<SweepCandidate>& all = sweep.candidates;
  const bool any_fits = std::any_of(all.begin(), all.end(), [](const SweepCandidate& c) { return c.fits; });
  const double never = std::numeric_limits<double>::infinity();
  double least_predicted = never, least_measured = never;
  for (size_t i = 0; i < all.size(); ++i) {
    if ((all[i].fits || !any_fits) && all[i].predicted < least_predicted) {
      least_predicted = all[i].predicted;
      sweep.chosen = i;
    }
    if (!all[i].out_of_memory && all[i].measured < least_measured) {
      least_measured = all[i].measured;
      sweep.best = i;
    }
  }
  const SweepCandidate& chosen = all[sweep.chosen];
  sweep.regret_percent =
      chosen.out_of_memory ? kOutOfMemoryPercent : 100 * (chosen.measured / least_measured - 1);
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = i + 1; j < all.size(); ++j) {
      if (all[i].out_of_memory || all[j].out_of_memory) continue;
      const double low = std::min(all[i].measured, all[j].measured);
      if (std::max(all[i].measured, all[j].measured) <= low * (1 + kPairsDifferBy)) continue;
      ++sweep.pairs;
      const double order = (all[i].measured - all[j].measured) * (all[i].predicted - all[j].predicted);
      sweep.concordant += order > 0;
      sweep.discordant += order < 0;
    }
  }
}

RankingSummary Summarize(SweepKind kind, const std::string& source, bool all,
                         absl::Span<const Sweep> sweeps) {
  RankingSummary summary;
  summary.kind = kind;
  summary.source = source;
  int64_t concordant = 0, discordant = 0;
  double regrets = 0;
  for (const Sweep& sweep : sweeps) {
    if (sweep.kind != kind || (!all && sweep.source != source)) continue;
    ++summary.sweeps;
    summary.good += sweep.regret_percent <= kGoodRegretPercent;
    regrets += sweep.regret_percent;
    summary.worst_regret_percent = std::max(summary.worst_regret_percent, sweep.regret_percent);
    summary.pairs += sweep.pairs;
    concordant += sweep.concordant;
    discordant += sweep.discordant;
  }
  if (summary.sweeps > 0) summary.mean_regret_percent = regrets / static_cast<double>(summary.sweeps);
  summary.kendall_tau =
      summary.pairs > 0 ? static_cast<double>(concordant - discordant) / static_cast<double>(summary.pairs)
                        : std::numeric_limits<double>::quiet_NaN();
  return summary;
}

}  // namespace

absl::string_view SweepKindName(SweepKind kind) {
  return kind == SweepKind::kMapping ? "mapping" : "efficiency";
}

Ranking RankSweeps(absl::Span<const PublishedRun> runs, const Score& score) {
  Ranking ranking;
  for (const SweepKind kind : {SweepKind::kMapping, SweepKind::kEfficiency}) {
    std::vector<std::vector<Entry>> groups;
    for (size_t i = 0; i < runs.size() && i < score.rows.size(); ++i) {
      const Entry entry{&runs[i], &score.rows[i]};
      if (!runs[i].workload.has_value()) continue;
      if (runs[i].measured_step_seconds <= 0 && runs[i].outcome != RunOutcome::kOutOfMemory) continue;
      const auto same = std::find_if(groups.begin(), groups.end(), [&](const std::vector<Entry>& group) {
        return SameSweep(kind, group[0], entry);
      });
      (same == groups.end() ? groups.emplace_back() : *same).push_back(entry);
    }
    std::set<std::string> sources;
    for (const std::vector<Entry>& group : groups) {
      Sweep sweep = BuildSweep(kind, group);
      const auto measured = std::count_if(sweep.candidates.begin(), sweep.candidates.end(),
                                          [](const SweepCandidate& c) { return !c.out_of_memory; });
      if (measured < 2) continue;
      Judge(sweep);
      sources.insert(sweep.source);
      ranking.sweeps.push_back(std::move(sweep));
    }
    for (const std::string& source : sources)
      ranking.summaries.push_back(Summarize(kind, source, false, ranking.sweeps));
    ranking.summaries.push_back(Summarize(kind, "all", true, ranking.sweeps));
  }
  return ranking;
}

}  // namespace trainctl::published
