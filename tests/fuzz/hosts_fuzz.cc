// Fuzzes the file of hosts: it is refused with its name, or names machines that ssh takes for nothing else,
// each once, and that written one by one stand for themselves.

#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "cluster/hostlist.h"
#include "recipe/hosts.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  using namespace trainctl;
  const auto hosts = recipe::ParseHostsFile({reinterpret_cast<const char*>(data), size_bytes}, "hosts");
  if (!hosts.ok()) {
    TRAINCTL_CHECK(ExitCodeFor(hosts.status()) == ExitCode::kUsage);
    TRAINCTL_CHECK(absl::StartsWith(hosts.status().message(), "hosts"));
    return 0;
  }
  TRAINCTL_CHECK(!hosts->empty() && static_cast<int64_t>(hosts->size()) <= cluster::kMaxHosts);
  for (const std::string& host : *hosts) {
    TRAINCTL_CHECK(!host.empty() && host[0] != '-' && host.find("@-", host.rfind('@')) == std::string::npos);
    TRAINCTL_CHECK(host.find_first_of(" \t\r\n#'\"\\$`;&|<>") == std::string::npos);
  }
  TRAINCTL_CHECK(recipe::CheckHosts(*hosts, "hosts").ok());
  TRAINCTL_CHECK(*recipe::ParseHostsFile(absl::StrJoin(*hosts, "\n"), "hosts") == *hosts);
  return 0;
}
