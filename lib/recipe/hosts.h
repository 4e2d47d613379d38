// The machines of launch.backend = "ssh": from launch.ssh.hosts or a file of them. Names go onto ssh's
// command line, so what ssh could take for anything but a name is refused. Pure but for `Access`; thread
// safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(std::vector<std::string> hosts, ReadHosts(recipe, RealAccess()));
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "recipe/layers.h"
#include "recipe/recipe.h"

namespace trainctl::recipe {

// "name" or "user@name" each, no machine twice (names compare without case). UsageError that starts with
// `what`.
absl::Status CheckHosts(const std::vector<std::string>& hosts, absl::string_view what);
// As many as the run has nodes, or more.
absl::Status CheckEnoughHosts(const std::vector<std::string>& hosts, int64_t nodes, absl::string_view what);
// What ssh takes before a host: no word that it would take for the host, nothing that keeps it from running
// a program whose input and output are ours. UsageError.
absl::Status CheckSshOptions(const std::vector<std::string>& options);

// A host on each line; empty lines and what follows a '#' do not count. UsageError with the file's line.
absl::StatusOr<std::vector<std::string>> ParseHostsFile(absl::string_view text, absl::string_view file);

// The hosts of a recipe whose backend is ssh, in the order of the ranks: at least cluster.nodes of them,
// maybe more. Reads launch.ssh.hosts_file.
absl::StatusOr<std::vector<std::string>> ReadHosts(const Recipe& recipe, const Access& access);

}  // namespace trainctl::recipe
