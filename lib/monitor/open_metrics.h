// Formats metrics for Prometheus, either as OpenMetrics 1.0 or in the older text format 0.0.4 that
// node_exporter's textfile collector reads. Pure; thread-safe.
//
//   const std::vector<MetricFamily> families = {
//       {.name = "trainctl_tokens", .type = MetricType::kCounter, .unit = "tokens",
//        .help = "Tokens trained.", .samples = {{.value = 4096}}}};
//   FormatMetrics(families, MetricFormat::kOpenMetrics);  // "... trainctl_tokens_total 4096\n# EOF\n"
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace trainctl::monitor {

enum class MetricType { kGauge, kCounter, kInfo, kStateSet };

struct MetricSample {
  std::vector<std::pair<std::string, std::string>> labels = {};  // names must be valid and unique
  double value = 0;
};

struct MetricFamily {
  std::string name;  // name without the suffix "_total" of a counter or "_info" of an info
  MetricType type = MetricType::kGauge;
  std::string unit = {};  // suffix of the name; empty if none
  std::string help = {};
  // A state set has one sample per state, identified by a label with the family's name.
  std::vector<MetricSample> samples = {};
};

enum class MetricFormat { kOpenMetrics, kPrometheus };

// Formats the families, omitting those without samples. Replaces unprintable bytes in label values by U+FFFD.
std::string FormatMetrics(absl::Span<const MetricFamily> families, MetricFormat format);

// Returns the Content-Type header for `format`.
absl::string_view ContentType(MetricFormat format);

// Returns the format preferred by the client's Accept header, which may be empty. Returns kPrometheus if the
// header names neither format.
MetricFormat FormatForAccept(absl::string_view accept);

}  // namespace trainctl::monitor
