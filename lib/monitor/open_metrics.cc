#include "monitor/open_metrics.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "launcher/printable_text.h"

namespace trainctl::monitor {
namespace {

// The shortest digits that parse back to the same double.
std::string NumberText(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  std::array<char, 32> digits;
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  TRAINCTL_CHECK(error == std::errc());
  return std::string(digits.data(), end);
}

std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(launcher::PrintableText(text), {{"\\", "\\\\"}, {"\"", "\\\""}});
}

absl::string_view SampleSuffix(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return "_total";
    case MetricType::kInfo:
      return "_info";
    case MetricType::kGauge:
    case MetricType::kStateSet:
      break;
  }
  return "";
}

absl::string_view TypeName(MetricType type, MetricFormat format) {
  const bool is_open_metrics = format == MetricFormat::kOpenMetrics;
  switch (type) {
    case MetricType::kGauge:
      break;
    case MetricType::kCounter:
      return "counter";
    case MetricType::kInfo:
      return is_open_metrics ? "info" : "gauge";
    case MetricType::kStateSet:
      return is_open_metrics ? "stateset" : "gauge";
  }
  return "gauge";
}

void AppendFamily(const MetricFamily& family, MetricFormat format, std::string& text) {
  if (family.samples.empty()) return;
  const std::string sample_name = absl::StrCat(family.name, SampleSuffix(family.type));
  const bool is_open_metrics = format == MetricFormat::kOpenMetrics;
  // OpenMetrics describes families, and the older format describes each sample name.
  const std::string& described = is_open_metrics ? family.name : sample_name;
  absl::StrAppend(&text, "# TYPE ", described, " ", TypeName(family.type, format), "\n");
  if (is_open_metrics && !family.unit.empty()) {
    TRAINCTL_CHECK(absl::EndsWith(family.name, absl::StrCat("_", family.unit)));
    absl::StrAppend(&text, "# UNIT ", described, " ", family.unit, "\n");
  }
  // The older format has no escape for a quote.
  const std::string help =
      is_open_metrics ? Escaped(family.help) : absl::StrReplaceAll(family.help, {{"\\", "\\\\"}});
  absl::StrAppend(&text, "# HELP ", described, " ", help, "\n");
  for (const MetricSample& sample : family.samples) {
    absl::StrAppend(&text, sample_name);
    if (!sample.labels.empty()) {
      const auto format_label = [](std::string* out, const std::pair<std::string, std::string>& label) {
        absl::StrAppend(out, label.first, "=\"", Escaped(label.second), "\"");
      };
      absl::StrAppend(&text, "{", absl::StrJoin(sample.labels, ",", format_label), "}");
    }
    absl::StrAppend(&text, " ", NumberText(sample.value), "\n");
  }
}

// One media range of an Accept header.
struct MediaRange {
  std::string type;
  double weight = 1;
  std::string version;
};

MediaRange ParseRange(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ';');
  MediaRange range;
  range.type = absl::AsciiStrToLower(absl::StripAsciiWhitespace(parts[0]));
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(parts[i], absl::MaxSplits('=', 1));
    const std::string name = absl::AsciiStrToLower(absl::StripAsciiWhitespace(pair.first));
    const absl::string_view value = absl::StripAsciiWhitespace(pair.second);
    if (name == "version") range.version = std::string(value);
    if (name == "q" && !absl::SimpleAtod(value, &range.weight)) range.weight = 0;
  }
  return range;
}

}  // namespace

std::string FormatMetrics(absl::Span<const MetricFamily> families, MetricFormat format) {
  std::string text;
  for (const MetricFamily& family : families) AppendFamily(family, format, text);
  if (format == MetricFormat::kOpenMetrics) text += "# EOF\n";
  return text;
}

absl::string_view ContentType(MetricFormat format) {
  return format == MetricFormat::kOpenMetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                              : "text/plain; version=0.0.4; charset=utf-8";
}

MetricFormat FormatForAccept(absl::string_view accept) {
  double open_metrics = 0, plain = 0;
  for (const absl::string_view text : absl::StrSplit(accept, ',')) {
    const MediaRange range = ParseRange(text);
    const bool has_our_version = range.version.empty() || range.version == "1.0.0";
    if (range.type == "application/openmetrics-text" && has_our_version) {
      open_metrics = std::max(open_metrics, range.weight);
    }
    if (range.type == "text/plain" || range.type == "text/*") plain = std::max(plain, range.weight);
  }
  return open_metrics > 0 && open_metrics >= plain ? MetricFormat::kOpenMetrics : MetricFormat::kPrometheus;
}

}  // namespace trainctl::monitor
