// Fuzzes lists of hosts: a list is refused with its words, or stands for names that are one each, not too
// many and not too long, and that written one by one stand for themselves.

#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "cluster/hostlist.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  using namespace trainctl;
  const absl::string_view text(reinterpret_cast<const char*>(data), size_bytes);
  const auto hosts = cluster::ExpandHostlist(text);
  if (!hosts.ok()) {
    TRAINCTL_CHECK(absl::StartsWith(hosts.status().message(), "host list "));
    return 0;
  }
  TRAINCTL_CHECK(!hosts->empty() && static_cast<int64_t>(hosts->size()) <= cluster::kMaxHosts);
  for (const std::string& host : *hosts) {
    TRAINCTL_CHECK(!host.empty() && host.size() <= cluster::kMaxHostName);
    TRAINCTL_CHECK(host.find_first_of("[],") == std::string::npos);
  }
  const auto again = cluster::ExpandHostlist(absl::StrJoin(*hosts, ","));
  TRAINCTL_CHECK(again.ok() && *again == *hosts);
  return 0;
}
