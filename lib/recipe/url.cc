#include "recipe/url.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/shell_quote.h"
#include "base/status.h"

namespace trainctl::recipe {
namespace {

// Commands that download a URL. `fetch` writes it to a file or folder, and `print` writes it to standard
// output. Each is empty if there is no such command.
struct Download {
  std::string fetch;
  std::string print;
};

// Returns whether a part of a Hub path is a keyword that precedes the revision, as in
// OWNER/NAME/resolve/REVISION/FILE.
bool IsView(absl::string_view part) {
  return part == "resolve" || part == "blob" || part == "raw" || part == "tree";
}

// Returns the command that downloads from the Hub. `path` is the part of the URL after the host, such as
// "datasets/OWNER/NAME/resolve/main/a.jsonl". Returns an empty string if `path` does not name a repository.
std::string HubDownload(absl::string_view path) {
  std::vector<std::string> parts =
      absl::StrSplit(path.substr(0, path.find_first_of("?#")), '/', absl::SkipEmpty());
  const bool is_dataset = !parts.empty() && parts[0] == "datasets";
  if (!parts.empty() && (is_dataset || parts[0] == "models")) parts.erase(parts.begin());
  for (const char* page : {"spaces", "docs", "api", "papers", "blog", "collections"}) {
    if (parts.empty() || parts[0] == page) return "";
  }
  // Some old repositories, such as gpt2, have no owner.
  const size_t name_parts = parts.size() > 1 && !IsView(parts[1]) ? 2 : 1;
  // The name may include the revision: hf://OWNER/NAME@REVISION/FILE.
  const std::pair<std::string, std::string> last =
      absl::StrSplit(parts[name_parts - 1], absl::MaxSplits('@', 1));
  std::string revision = last.second;
  const std::string repository = name_parts == 2 ? absl::StrCat(parts[0], "/", last.first) : last.first;
  parts.erase(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(name_parts));
  const bool is_folder = !parts.empty() && parts[0] == "tree";
  if (parts.size() >= 2 && IsView(parts[0])) {
    revision = parts[1];
    parts.erase(parts.begin(), parts.begin() + 2);
  }
  std::string command = absl::StrCat("hf download ", ShellQuote(repository));
  if (const std::string file = absl::StrJoin(parts, "/"); !file.empty()) {
    absl::StrAppend(&command, is_folder ? " --include " : " ", ShellQuote(is_folder ? file + "/*" : file));
  }
  if (is_dataset) absl::StrAppend(&command, " --repo-type dataset");
  if (!revision.empty() && revision != "main") {
    absl::StrAppend(&command, " --revision ", ShellQuote(revision));
  }
  return absl::StrCat(command, " --local-dir ", ShellQuote(last.first));
}

// Returns the command that downloads from Azure. `rest` is the part of the URL after the scheme:
// CONTAINER@ACCOUNT.dfs.core.windows.net/PATH for abfs, and CONTAINER/PATH for az.
std::string AzureDownload(absl::string_view rest) {
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(rest, absl::MaxSplits('/', 1));
  const size_t at = parts.first.find('@');
  std::string account = "ACCOUNT";
  if (at != absl::string_view::npos) {
    account = ShellQuote(parts.first.substr(at + 1, parts.first.find('.', at) - at - 1));
  }
  return absl::StrCat("az storage blob download --account-name ", account, " --container-name ",
                      ShellQuote(parts.first.substr(0, at)), " --name ", ShellQuote(parts.second), " --file ",
                      ShellQuote(parts.second.substr(parts.second.rfind('/') + 1)));
}

Download DownloadOf(const std::string& scheme, absl::string_view rest) {
  const std::string url = ShellQuote(absl::StrCat(scheme, "://", rest));
  const bool is_folder = absl::EndsWith(rest, "/");
  if (scheme == "http" || scheme == "https") {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(rest, absl::MaxSplits('/', 1));
    const std::string lower = absl::AsciiStrToLower(parts.first);
    const absl::string_view host = absl::StripPrefix(lower, "www.");
    const bool is_hub = host == "huggingface.co" || host == "hf.co";
    if (std::string hub = is_hub ? HubDownload(parts.second) : ""; !hub.empty()) return {.fetch = hub};
  }
  if (scheme == "http" || scheme == "https" || scheme == "ftp" || scheme == "ftps") {
    return {.fetch = absl::StrCat("curl -LO ", url), .print = absl::StrCat("curl -L ", url)};
  }
  if (scheme == "s3" || scheme == "s3a" || scheme == "s3n" || scheme == "r2") {
    const std::string object = ShellQuote(absl::StrCat("s3://", rest));
    const char* const endpoint =
        scheme == "r2" ? " --endpoint-url https://ACCOUNT_ID.r2.cloudflarestorage.com" : "";
    if (is_folder) return {.fetch = absl::StrCat("aws s3 cp --recursive ", object, " .", endpoint)};
    return {.fetch = absl::StrCat("aws s3 cp ", object, " .", endpoint),
            .print = absl::StrCat("aws s3 cp ", object, " -", endpoint)};
  }
  if (scheme == "gs" || scheme == "gcs") {
    const std::string object = ShellQuote(absl::StrCat("gs://", rest));
    if (is_folder) return {.fetch = absl::StrCat("gcloud storage cp --recursive ", object, " .")};
    return {.fetch = absl::StrCat("gcloud storage cp ", object, " ."),
            .print = absl::StrCat("gcloud storage cat ", object)};
  }
  if (scheme == "az" || scheme == "abfs" || scheme == "abfss") return {.fetch = AzureDownload(rest)};
  if (scheme == "hdfs") {
    return {.fetch = absl::StrCat("hdfs dfs -get ", url, " ."), .print = absl::StrCat("hdfs dfs -cat ", url)};
  }
  if (scheme == "hf") return {.fetch = HubDownload(rest)};
  return {};
}

}  // namespace

absl::Status RefuseUrl(absl::string_view text, absl::string_view reader) {
  const size_t end = text.find("://");
  if (end == absl::string_view::npos || end == 0) return absl::OkStatus();
  const std::string scheme = absl::AsciiStrToLower(text.substr(0, end));
  if (!std::all_of(scheme.begin(), scheme.end(), [](char c) { return absl::ascii_isalnum(c); })) {
    return absl::OkStatus();
  }
  const absl::string_view rest = text.substr(end + 3);
  const std::string refusal = absl::StrCat(text, " is a URL, but only local files can be read; ");
  if (scheme == "file") return UsageError(absl::StrCat(refusal, "use the path: ", rest));
  const Download download = DownloadOf(scheme, rest);
  if (download.fetch.empty()) {
    return UsageError(absl::StrCat(refusal, "download it with a tool for ", scheme, ":// addresses"));
  }
  const bool can_pipe = !reader.empty() && !download.print.empty();
  return UsageError(
      absl::StrCat(refusal, "download it: ", download.fetch,
                   can_pipe ? absl::StrCat(", or pipe it in: ", download.print, " | ", reader) : ""));
}

}  // namespace trainctl::recipe
