#include "monitor/open_metrics.h"

#include <gmock/gmock.h>

#include <limits>

namespace trainctl::monitor {
namespace {

std::vector<MetricFamily> Families() {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return {
      {.name = "x_tokens",
       .type = MetricType::kCounter,
       .unit = "tokens",
       .help = "Tokens.",
       .samples = {{.labels = {{"run", "a\\\"b\x1b\n"}}, .value = 4096}}},
      {.name = "x_loss", .help = "A \\ and a \".", .samples = {{.value = 0.1}, {{{"set", "n"}}, -kInfinity}}},
      {.name = "x_run", .type = MetricType::kInfo, .help = "Run.", .samples = {{{{"v", "1"}}, 1}}},
      {.name = "x_state",
       .type = MetricType::kStateSet,
       .help = "State.",
       .samples = {{{{"x_state", "on"}}, 1}, {{{"x_state", "off"}}, 0}}},
      {.name = "x_unknown", .help = "Not known yet."}};
}

// The expected texts follow from the standards: OpenMetrics 1.0, and Prometheus's text format 0.0.4.
TEST(OpenMetrics, FamiliesAreDescribedByTheirNames) {
  EXPECT_EQ(FormatMetrics(Families(), MetricFormat::kOpenMetrics),
            "# TYPE x_tokens counter\n# UNIT x_tokens tokens\n# HELP x_tokens Tokens.\n"
            "x_tokens_total{run=\"a\\\\\\\"b\xEF\xBF\xBD\xEF\xBF\xBD\"} 4096\n"
            "# TYPE x_loss gauge\n# HELP x_loss A \\\\ and a \\\".\nx_loss 0.1\nx_loss{set=\"n\"} -Inf\n"
            "# TYPE x_run info\n# HELP x_run Run.\nx_run_info{v=\"1\"} 1\n"
            "# TYPE x_state stateset\n# HELP x_state State.\nx_state{x_state=\"on\"} "
            "1\nx_state{x_state=\"off\"} 0\n"
            "# EOF\n");
}

TEST(OpenMetrics, TheOlderFormatDescribesSamples) {
  EXPECT_EQ(
      FormatMetrics(Families(), MetricFormat::kPrometheus),
      "# TYPE x_tokens_total counter\n# HELP x_tokens_total Tokens.\n"
      "x_tokens_total{run=\"a\\\\\\\"b\xEF\xBF\xBD\xEF\xBF\xBD\"} 4096\n"
      "# TYPE x_loss gauge\n# HELP x_loss A \\\\ and a \".\nx_loss 0.1\nx_loss{set=\"n\"} -Inf\n"
      "# TYPE x_run_info gauge\n# HELP x_run_info Run.\nx_run_info{v=\"1\"} 1\n"
      "# TYPE x_state gauge\n# HELP x_state State.\nx_state{x_state=\"on\"} 1\nx_state{x_state=\"off\"} 0\n");
}

TEST(OpenMetrics, TheFormatIsTheOneThatTheClientPrefers) {
  // What Prometheus 2.50 sends.
  constexpr char kPrometheus[] =
      "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
      "text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
  EXPECT_EQ(FormatForAccept(kPrometheus), MetricFormat::kOpenMetrics);
  EXPECT_EQ(FormatForAccept("Application/OpenMetrics-Text"), MetricFormat::kOpenMetrics);
  for (const char* plain :
       {"", "*/*", "text/html, */*;q=0.8", "text/plain", "application/openmetrics-text;q=0",
        "application/openmetrics-text;version=0.0.1", "application/openmetrics-text;q=x",
        "text/plain, application/openmetrics-text;q=0.9", ";;,=;q", "application/json"}) {
    EXPECT_EQ(FormatForAccept(plain), MetricFormat::kPrometheus) << plain;
  }
}

}  // namespace
}  // namespace trainctl::monitor
