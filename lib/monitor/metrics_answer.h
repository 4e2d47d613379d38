// Responds to an HTTP request for metrics, which must be GET or HEAD of /metrics. Rejects all other requests
// and never echoes any part of the request. Pure; thread-safe.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "monitor/open_metrics.h"

namespace trainctl::monitor {

inline constexpr char kMetricsPath[] = "/metrics";

using CollectMetrics = std::function<std::vector<MetricFamily>()>;

// Returns the response to `request`, which must contain at least everything up to the empty line after its
// headers. The caller must close the connection after sending the response.
std::string AnswerMetricsRequest(absl::string_view request, const CollectMetrics& collect);

// Returns the response to a request that exceeds the server's limit.
std::string AnswerTooLongRequest();

}  // namespace trainctl::monitor
