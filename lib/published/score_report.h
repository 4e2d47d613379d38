// Scores, rankings and calibrations as files for other programs. Pure.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "published/calibrate.h"
#include "published/ranking.h"
#include "published/score.h"

namespace trainctl::published {

// The columns of `trainctl score --out`, a line per row of the file that was scored.
std::string ScoreToCsv(const Score& score);

// Schema trainctl.score.v1; "ranking" and "leave_one_out" are there if they are given.
std::string ScoreToJson(const Score& score, const Ranking* ranking = nullptr,
                        absl::Span<const LeftOut> left_out = {});

// Schema trainctl.calibration.v1.
std::string CalibrationToJson(const Calibration& calibration);

}  // namespace trainctl::published
