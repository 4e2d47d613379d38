#include "report/page_text.h"

#include "absl/strings/str_replace.h"
#include "base/json.h"

namespace trainctl::report {

std::string EscapedHtml(absl::string_view text) {
  const std::string quoted = FormatJson(Json(std::string(text)));
  return absl::StrReplaceAll(
      ParseValidJson(quoted).get<std::string>(),
      {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

std::string ScriptSafe(const Json& json) {
  const std::string text = FormatAsciiJson(json);
  return absl::StrReplaceAll(text, {{"<", "\\u003c"}, {">", "\\u003e"}, {"&", "\\u0026"}});
}

}  // namespace trainctl::report
