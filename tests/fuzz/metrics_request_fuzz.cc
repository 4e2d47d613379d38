// Fuzzes requests to the port for Prometheus: every request gets one well-formed answer, and only answers to
// GET and HEAD of /metrics have metrics.

#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "monitor/metrics_answer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  using namespace trainctl;
  using namespace trainctl::monitor;
  const absl::string_view request(reinterpret_cast<const char*>(data), size_bytes);
  bool is_collected = false;
  const std::string answer = AnswerMetricsRequest(request, [&] {
    is_collected = true;
    return std::vector<MetricFamily>{{.name = "x", .help = "X.", .samples = {{.value = 1}}}};
  });
  const size_t end = answer.find("\r\n\r\n");
  TRAINCTL_CHECK(absl::StartsWith(answer, "HTTP/1.1 ") && end != std::string::npos);
  const bool is_head = absl::StartsWith(request, "HEAD ");
  const bool is_get = absl::StartsWith(request, "GET ");
  TRAINCTL_CHECK(is_collected == absl::StartsWith(answer, "HTTP/1.1 200"));
  TRAINCTL_CHECK(!is_collected || ((is_get || is_head) && absl::StrContains(request, " /metrics")));
  const std::string length = absl::StrCat("\r\nContent-Length: ", answer.size() - end - 4, "\r\n");
  TRAINCTL_CHECK((is_head && is_collected) || absl::StrContains(answer, length));
  return 0;
}
