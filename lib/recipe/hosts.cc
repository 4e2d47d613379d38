#include "recipe/hosts.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/names.h"
#include "base/status.h"
#include "cluster/hostlist.h"

namespace trainctl::recipe {
namespace {

bool HasOnly(absl::string_view text, absl::string_view others) {
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains(others, c);
  });
}

// Without the user; ssh splits at the last '@'.
absl::string_view MachineOf(absl::string_view host) {
  const size_t at = host.rfind('@');
  return at == absl::string_view::npos ? host : host.substr(at + 1);
}

// Why a text is no host, or "".
std::string WhyNoHost(absl::string_view host) {
  const absl::string_view machine = MachineOf(host);
  const bool has_user = machine.size() != host.size();
  const absl::string_view user = has_user ? host.substr(0, host.size() - machine.size() - 1) : "";
  if (machine.empty() || (has_user && user.empty())) return "use \"name\" or \"user@name\"";
  if (machine.size() > cluster::kMaxHostName) {
    return absl::StrCat("a name can be at most ", cluster::kMaxHostName, " bytes long");
  }
  if (machine[0] == '-' || host[0] == '-') return "ssh would treat it as an option";
  // One colon is no IPv6 address.
  if (std::count(machine.begin(), machine.end(), ':') == 1) {
    return "set a port with launch.ssh.options = [\"-p\", \"2222\"] and the number of workers with "
           "cluster.devices_per_node";
  }
  if (!HasOnly(machine, ".-_:%") || !HasOnly(user, ".-_+@")) {
    return "a name may contain only letters, digits and . - _ (list each machine separately)";
  }
  return "";
}

absl::Status CheckHost(absl::string_view host, absl::string_view what) {
  const std::string why = WhyNoHost(host);
  if (why.empty()) return absl::OkStatus();
  return UsageError(absl::StrCat(what, ": ", QuotedName(host), " is not a valid machine name: ", why));
}

}  // namespace

absl::Status CheckHosts(const std::vector<std::string>& hosts, absl::string_view what) {
  std::map<std::string, absl::string_view> seen;
  for (const std::string& host : hosts) {
    TRAINCTL_RETURN_IF_ERROR(CheckHost(host, what));
    const auto [it, is_new] = seen.emplace(absl::AsciiStrToLower(MachineOf(host)), host);
    if (is_new) continue;
    const std::string first = it->second == host ? "" : absl::StrCat(" (as ", it->second, ")");
    return UsageError(absl::StrCat(what, ": ", host, " is listed twice", first,
                                   "; set the number of workers per machine with cluster.devices_per_node"));
  }
  return absl::OkStatus();
}

absl::Status CheckEnoughHosts(const std::vector<std::string>& hosts, int64_t nodes, absl::string_view what) {
  const auto count = static_cast<int64_t>(hosts.size());
  if (count >= nodes) return absl::OkStatus();
  return UsageError(absl::StrCat(what, " has ", count, count == 1 ? " machine" : " machines",
                                 ", but cluster.nodes = ", nodes, "; list ", nodes - count, " more",
                                 count == 0 ? "" : absl::StrCat(", or set cluster.nodes = ", count)));
}

absl::Status CheckSshOptions(const std::vector<std::string>& options) {
  constexpr absl::string_view kTakeValue = "BDEFIJLPRSbceilmopw";
  // To the background, without a command or its input, with a terminal, or for another purpose.
  constexpr absl::string_view kNotOurs = "fNnstGOQVW";
  const auto fail = [](absl::string_view option, absl::string_view why) {
    return UsageError(absl::StrCat("launch.ssh.options: ", QuotedName(option), " ", why));
  };
  for (size_t i = 0; i < options.size(); ++i) {
    const std::string& option = options[i];
    if (option == "--") return fail(option, "ends the options, but trainctl adds it itself; remove it");
    if (option.size() < 2 || option[0] != '-') {
      return fail(option,
                  "would be treated as the machine's name; an option starts with '-' and is followed by its "
                  "value, for example [\"-p\", \"2222\"]");
    }
    for (size_t j = 1; j < option.size(); ++j) {
      if (absl::StrContains(kNotOurs, option[j])) {
        return fail(option, "cannot be used with a program that trainctl runs through ssh; remove it");
      }
      if (!absl::StrContains(kTakeValue, option[j])) continue;
      if (j + 1 == option.size() && ++i == options.size()) return fail(option, "is not followed by a value");
      break;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ParseHostsFile(absl::string_view text, absl::string_view file) {
  std::vector<std::string> hosts;
  int line_number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::string where = absl::StrCat(file, ":", ++line_number);
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t\v\f\r"), absl::SkipEmpty());
    if (words.size() > 1) {
      return UsageError(
          absl::StrCat(where, ": unexpected ", QuotedName(words[1]), " after the name ", QuotedName(words[0]),
                       "; put one name on each line. Set the number of workers per machine with "
                       "cluster.devices_per_node"));
    }
    TRAINCTL_RETURN_IF_ERROR(CheckHost(line, where));
    if (hosts.size() >= static_cast<size_t>(cluster::kMaxHosts)) {
      return UsageError(absl::StrCat(file, " has more than ", cluster::kMaxHosts, " machines"));
    }
    hosts.emplace_back(line);
  }
  if (hosts.empty()) return UsageError(absl::StrCat(file, " lists no machines; add one per line"));
  TRAINCTL_RETURN_IF_ERROR(CheckHosts(hosts, file));
  return hosts;
}

absl::StatusOr<std::vector<std::string>> ReadHosts(const Recipe& recipe, const Access& access) {
  const SshConfig& ssh = recipe.launch.ssh;
  std::vector<std::string> hosts = ssh.hosts;
  std::string what = "launch.ssh.hosts";
  if (!ssh.hosts_file.empty()) {
    what = ssh.hosts_file;
    absl::StatusOr<std::string> text = access.read_file(what);
    if (!text.ok()) return Annotate(text.status(), "launch.ssh.hosts_file");
    TRAINCTL_ASSIGN_OR_RETURN(hosts, ParseHostsFile(*text, what));
  }
  TRAINCTL_RETURN_IF_ERROR(CheckHosts(hosts, what));
  TRAINCTL_RETURN_IF_ERROR(CheckEnoughHosts(hosts, recipe.cluster.nodes, what));
  return hosts;
}

}  // namespace trainctl::recipe
