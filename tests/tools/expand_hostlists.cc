// Prints the hosts of each line of its input, a line for each list, for tests that ask Slurm the same: names
// with spaces between them, or "error".

#include <iostream>
#include <string>

#include "absl/strings/str_join.h"
#include "cluster/hostlist.h"

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto hosts = trainctl::cluster::ExpandHostlist(line);
    std::cout << (hosts.ok() ? absl::StrJoin(*hosts, " ") : "error") << "\n";
  }
  return 0;
}
