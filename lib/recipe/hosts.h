// Reads the machines of launch.backend = "ssh" from launch.ssh.hosts or a hosts file. Host names become
// arguments of ssh, so any name that ssh could parse as an option is rejected. Pure except for `Access`;
// thread-safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(std::vector<std::string> hosts, ReadHosts(recipe, RealAccess()));
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "recipe/access.h"
#include "recipe/recipe.h"

namespace trainctl::recipe {

// Checks that each host has the form "name" or "user@name" and that no machine is listed twice (names are
// case-insensitive). Returns UsageError, beginning with `what`, otherwise.
absl::Status CheckHosts(const std::vector<std::string>& hosts, absl::string_view what);
// Checks that there are at least `nodes` hosts. Returns UsageError, beginning with `what`, otherwise.
absl::Status CheckEnoughHosts(const std::vector<std::string>& hosts, int64_t nodes, absl::string_view what);
// Checks the options passed to ssh before the host. Returns UsageError if ssh could mistake one for the host,
// or if one would keep ssh from running a program with our pipes as its standard streams.
absl::Status CheckSshOptions(const std::vector<std::string>& options);

// Parses a file with one host per line. Ignores empty lines and comments, which begin with '#'. Returns
// UsageError with the file name and line number if a line is invalid.
absl::StatusOr<std::vector<std::string>> ParseHostsFile(absl::string_view text, absl::string_view file);

// Returns the hosts of a recipe whose backend is ssh, in rank order. Returns at least cluster.nodes hosts and
// possibly more. Reads launch.ssh.hosts_file if it is set.
absl::StatusOr<std::vector<std::string>> ReadHosts(const Recipe& recipe, const Access& access);

}  // namespace trainctl::recipe
