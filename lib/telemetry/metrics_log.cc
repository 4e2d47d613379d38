#include "telemetry/metrics_log.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/json.h"
#include "base/status.h"

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

std::string NumberOrNull(const std::optional<double>& value) {
  return value.has_value() ? JsonNumber(*value) : "null";
}

}  // namespace

std::string FormatFields(const StepRecord& record) {
  return absl::StrCat(
      "\"loss\":", NumberOrNull(record.loss), ",\"grad_norm\":", NumberOrNull(record.grad_norm),
      ",\"lr\":", NumberOrNull(record.lr), ",\"tokens\":", record.tokens, ",\"batch_hash\":\"",
      absl::StrFormat("%016x", record.batch_hash), "\"", record.skipped ? ",\"skipped\":true" : "",
      record.skipped_steps > 0 ? absl::StrCat(",\"skipped_steps\":", record.skipped_steps) : "",
      ObjectField("eval", record.eval, NumberOrNull), ListField("changed", record.changed));
}

absl::StatusOr<StepRecord> ParseStepRecord(absl::string_view json, absl::string_view what) {
  TRAINCTL_ASSIGN_OR_RETURN(const Json object, ParseJson(json, what));
  const auto number = [&](const char* key) -> std::optional<double> {
    return object.is_object() && object.contains(key) ? NumberOfJson(object[key]) : std::nullopt;
  };
  StepRecord record;
  TRAINCTL_ASSIGN_OR_RETURN(record.tokens, JsonInt(object, "tokens", what));
  TRAINCTL_ASSIGN_OR_RETURN(const std::string hash, JsonString(object, "batch_hash", what));
  record.loss = number("loss");
  record.grad_norm = number("grad_norm");
  record.lr = number("lr");
  record.skipped = object.contains("skipped");
  if (object.contains("skipped_steps")) {
    TRAINCTL_ASSIGN_OR_RETURN(record.skipped_steps, JsonInt(object, "skipped_steps", what));
  }
  if (!absl::SimpleHexAtoi(hash, &record.batch_hash))
    return BadDataError(absl::StrCat(what, ": field 'batch_hash' must be a hexadecimal number"));
  return record;
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
