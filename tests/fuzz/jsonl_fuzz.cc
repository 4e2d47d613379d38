// Fuzzes lines of JSONL: what the strict parser takes has the same text here, and nothing else ends badly.

#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "base/json.h"
#include "base/status.h"
#include "data/jsonl_line.h"

namespace trainctl {
namespace {

void FuzzOne(const std::string& line) {
  std::string text, prompt;
  const absl::Status one = data::ReadStringFields(line, "a.jsonl:7", {{"text", &text}});
  const absl::Status two = data::ReadStringFields(line, "a.jsonl:7", {{"prompt", &prompt}, {"text", &text}});
  for (const absl::Status* status : {&one, &two}) {
    TRAINCTL_CHECK(status->ok() || (ExitCodeFor(*status) == ExitCode::kBadData &&
                                    absl::StartsWith(status->message(), "a.jsonl:7:")));
  }
  TRAINCTL_CHECK(one.ok() || !two.ok());
  const absl::StatusOr<Json> strict = ParseJson(line, "line");
  // The strict parser takes a NUL for the end.
  if (!strict.ok() || absl::StrContains(line, absl::string_view("\0", 1))) return;
  const bool has_text = strict->is_object() && strict->contains("text") && (*strict)["text"].is_string();
  TRAINCTL_CHECK_MSG(one.ok() == has_text, one.ToString());
  TRAINCTL_CHECK(!has_text || (*strict)["text"] == text);
}

}  // namespace
}  // namespace trainctl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  trainctl::FuzzOne(std::string(reinterpret_cast<const char*>(data), size_bytes));
  return 0;
}
