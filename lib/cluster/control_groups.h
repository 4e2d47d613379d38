// Finds this process's control groups, of both cgroup versions. Reads /proc and /sys. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainctl::cluster {

// For each hierarchy, the folders of this process's group and of all groups that enclose it, from the mount
// point down. Some may not exist, because a container often sees its own group as the root of the mount while
// /proc shows the path outside the container.
struct ControlGroups {
  std::vector<std::string> unified;            // cgroup version 2
  std::vector<std::string> memory, cpu, pids;  // cgroup version 1
};
// `root` is the folder that contains proc and sys.
ControlGroups FindControlGroups(const std::string& root);

// Reads the number in a control group's file. Returns nullopt for "max" or if the file does not exist.
std::optional<int64_t> ReadGroupNumber(const std::string& path);

}  // namespace trainctl::cluster
