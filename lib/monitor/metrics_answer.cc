#include "monitor/metrics_answer.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace trainctl::monitor {
namespace {

std::string Answer(absl::string_view status, absl::string_view headers, absl::string_view content_type,
                   absl::string_view body, bool with_body = true) {
  return absl::StrCat(
      "HTTP/1.1 ", status, "\r\nContent-Type: ", content_type, "\r\nContent-Length: ", body.size(),
      "\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n", headers, "\r\n", with_body ? body : "");
}

std::string Refusal(absl::string_view status, absl::string_view headers = "") {
  return Answer(status, headers, "text/plain; charset=utf-8", absl::StrCat(status, "\n"));
}

// All values of the header, joined by commas as HTTP defines.
std::string HeaderOf(const std::vector<absl::string_view>& lines, absl::string_view name) {
  std::string joined;
  for (const absl::string_view line : lines) {
    const size_t colon = line.find(':');
    if (colon == absl::string_view::npos || !absl::EqualsIgnoreCase(line.substr(0, colon), name)) continue;
    absl::StrAppend(&joined, joined.empty() ? "" : ",", absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  return joined;
}

}  // namespace

std::string AnswerMetricsRequest(absl::string_view request, const CollectMetrics& collect) {
  const std::vector<absl::string_view> lines =
      absl::StrSplit(request.substr(0, request.find("\r\n\r\n")), "\r\n");
  const std::vector<absl::string_view> words = absl::StrSplit(lines[0], ' ');
  if (words.size() != 3 || !absl::StartsWith(words[2], "HTTP/1.")) return Refusal("400 Bad Request");
  const bool is_head = words[0] == "HEAD";
  if (words[0] != "GET" && !is_head) return Refusal("405 Method Not Allowed", "Allow: GET, HEAD\r\n");
  if (words[1].substr(0, words[1].find('?')) != kMetricsPath) return Refusal("404 Not Found");
  const MetricFormat format = FormatForAccept(HeaderOf(lines, "Accept"));
  return Answer("200 OK", "Vary: Accept\r\n", ContentType(format), FormatMetrics(collect(), format),
                !is_head);
}

std::string AnswerTooLongRequest() { return Refusal("431 Request Header Fields Too Large"); }

}  // namespace trainctl::monitor
