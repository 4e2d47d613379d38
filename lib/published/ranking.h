// Whether the prices put jobs in the right order: in each published sweep the one that is chosen by price,
// how far its measured time is from the best measured one, and how many pairs are ordered as measured. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "published/runs.h"
#include "published/score.h"

namespace trainctl::published {

enum class SweepKind : uint8_t {
  // The same model, batch and GPUs under different mappings; ordered by the time of a step.
  kMapping,
  // The same model, sequence length and kind of GPU, whatever their number and the batch; ordered by
  // GPU-seconds per token.
  kEfficiency,
};
absl::string_view SweepKindName(SweepKind kind);

// Rows that are priced as the same job are one candidate, measured by their median.
struct SweepCandidate {
  std::string mapping;  // "tp 8 pp 12 dp 4 micro-batch 2", with what differs in this sweep
  std::vector<std::string> ids;
  double predicted = 0;  // by the sweep's measure
  double measured = 0;   // 0 where it ran out of memory
  bool fits = true;      // by price
  bool out_of_memory = false;
};

struct Sweep {
  SweepKind kind = SweepKind::kMapping;
  std::string source;
  std::string what;  // "80 layers of 8192, h100-sxm-80gb x 64, ..."
  std::vector<SweepCandidate> candidates;
  // Of those that fit by price the fastest by price (of all if none fits), and the fastest as measured.
  size_t chosen = 0, best = 0;
  // How much slower the chosen one was than the best; 100 where it ran out of memory.
  double regret_percent = 0;
  // Pairs whose measured times differ by more than kPairsDifferBy; of them those that the prices order as
  // measured, and the other way round (a tie is neither).
  int64_t pairs = 0, concordant = 0, discordant = 0;
};

inline constexpr double kPairsDifferBy = 0.05;
inline constexpr double kGoodRegretPercent = 3;

struct RankingSummary {
  SweepKind kind = SweepKind::kMapping;
  std::string source;  // or "all"
  int64_t sweeps = 0;
  int64_t good = 0;  // with a regret of at most kGoodRegretPercent
  double mean_regret_percent = 0, worst_regret_percent = 0;
  int64_t pairs = 0;
  // (concordant - discordant) / pairs over the pairs of all sweeps; NaN without pairs.
  double kendall_tau = 0;
};

struct Ranking {
  std::vector<Sweep> sweeps;              // of two candidates that were measured at least
  std::vector<RankingSummary> summaries;  // per kind: by source, then "all"
};

// `score` is ScoreRuns of the same runs.
Ranking RankSweeps(absl::Span<const PublishedRun> runs, const Score& score);

}  // namespace trainctl::published
