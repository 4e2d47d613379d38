#include "apps/trainctl/run_numbers.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "absl/strings/strip.h"
#include "apps/trainctl/progress_json.h"
#include "base/json.h"
#include "telemetry/log_reader.h"

namespace trainctl::cli {
namespace {

using telemetry::LogKind;

// Up to the end, or the first line that cannot be read.
void ForEachScalar(const std::string& path, LogKind kind,
                   const std::function<void(int64_t step, const telemetry::Scalar& scalar)>& see) {
  absl::StatusOr<telemetry::LogReader> log = telemetry::LogReader::Open(path, kind);
  if (!log.ok()) return;
  telemetry::LoggedStep line;
  while (log->Next(line).value_or(false)) {
    for (const telemetry::Scalar& scalar : line.scalars) see(line.step, scalar);
  }
}

}  // namespace

Json NumbersOf(const run::RunFolder& run) {
  int64_t last_step = -1;
  std::optional<double> loss, tokens_per_second, peak_bytes;
  Json eval = Json::object();
  ForEachScalar(run.metrics_path(), LogKind::kMetrics, [&](int64_t step, const telemetry::Scalar& scalar) {
    absl::string_view tag = scalar.tag;
    if (absl::ConsumePrefix(&tag, "eval/")) eval[std::string(tag)] = NumberOrNull(scalar.value);
    if (tag == "train/loss" && step > 0) {
      last_step = step;
      loss = scalar.value;
    }
  });
  ForEachScalar(run.timings_path(), LogKind::kTimings, [&](int64_t, const telemetry::Scalar& scalar) {
    if (scalar.tag == "speed/tokens_per_second") tokens_per_second = scalar.value;
    if (scalar.tag == "memory_bytes/tensor_peak") {
      peak_bytes = std::max(peak_bytes.value_or(0), scalar.value);
    }
  });
  return {{"step", StepOrNull(last_step)},
          {"loss", NumberOrNull(loss)},
          {"eval", eval.empty() ? Json(nullptr) : eval},
          {"tokens_per_second", NumberOrNull(tokens_per_second)},
          {"peak_bytes", peak_bytes.has_value() ? Json(static_cast<int64_t>(*peak_bytes)) : Json(nullptr)}};
}

}  // namespace trainctl::cli
