#include "telemetry/metrics_log.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace trainctl::telemetry {
namespace {

// `,"name":{"key":value,...}`; nothing when there are none.
template <typename Pairs, typename Format>
std::string ObjectField(const char* name, const Pairs& pairs, const Format& format) {
  if (pairs.empty()) return "";
  std::string text = absl::StrCat(",\"", name, "\":{");
  const char* separator = "";
  for (const auto& [key, value] : pairs) {
    absl::StrAppend(&text, separator, JsonQuoted(key), ":", format(value));
    separator = ",";
  }
  return text + "}";
}

std::string ListField(const char* name, const std::vector<std::string>& texts) {
  if (texts.empty()) return "";
  return absl::StrCat(
      ",\"", name, "\":[",
      absl::StrJoin(texts, ",",
                    [](std::string* out, const std::string& text) { out->append(JsonQuoted(text)); }),
      "]");
}

}  // namespace

std::string FormatFields(const StepRecord& record) {
  return absl::StrCat("\"loss\":", JsonNumber(record.loss), ",\"grad_norm\":", JsonNumber(record.grad_norm),
                      ",\"lr\":", JsonNumber(record.lr), ",\"tokens\":", record.tokens, ",\"batch_hash\":\"",
                      absl::StrFormat("%016x", record.batch_hash), "\"",
                      ObjectField("eval", record.eval, JsonNumber), ListField("changed", record.changed));
}

std::string FormatFields(const TimingRecord& record) {
  return absl::StrCat("\"seconds\":", JsonNumber(record.seconds),
                      ",\"tokens_per_second\":", JsonNumber(record.tokens_per_second),
                      record.mfu > 0 ? absl::StrFormat(",\"mfu\":%.4g", record.mfu) : "",
                      ObjectField("phases", record.phases, JsonNumber),
                      ObjectField("operators", record.operators, JsonNumber),
                      ObjectField("memory_bytes", record.memory_bytes, [](int64_t value) { return value; }),
                      record.time_s > 0 ? absl::StrFormat(",\"time\":%.3f", record.time_s) : "");
}

}  // namespace trainctl::telemetry
