// Fuzzes the table of measured runs: its parser, what is filled in, and the prices. The input is the rows.

#include <cmath>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "published/score_report.h"

namespace trainctl::published {
namespace {

void FuzzOne(const std::string& input) {
  const std::string text = absl::StrCat(absl::StrJoin(PublishedColumns(), ","), ",",
                                        absl::StrJoin(DescribingColumns(), ","), "\n", input);
  const auto runs = ReadPublishedRuns(text, "fuzz.csv");
  if (!runs.ok()) {
    TRAINCTL_CHECK(ExitCodeFor(runs.status()) == ExitCode::kBadData && !runs.status().message().empty());
    return;
  }
  const Score score = ScoreRuns(*runs);
  TRAINCTL_CHECK(score.rows.size() == runs->size());
  for (const ScoredRow& row : score.rows) {
    TRAINCTL_CHECK(std::isfinite(row.predicted_memory_gib) && std::isfinite(row.predicted_step_seconds));
    TRAINCTL_CHECK(row.status == ScoreStatus::kScored || !row.reason.empty());
  }
  const Ranking ranking = RankSweeps(*runs, score);
  for (const Sweep& sweep : ranking.sweeps) {
    TRAINCTL_CHECK(std::isfinite(sweep.regret_percent) && sweep.regret_percent >= 0);
    TRAINCTL_CHECK(sweep.concordant + sweep.discordant <= sweep.pairs);
  }
  (void)ScoreToCsv(score);
  (void)ScoreToJson(score, &ranking);
}

}  // namespace
}  // namespace trainctl::published

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  trainctl::published::FuzzOne(std::string(reinterpret_cast<const char*>(data), size_bytes));
  return 0;
}
