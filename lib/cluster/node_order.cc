#include "cluster/node_order.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cluster/hostlist.h"

namespace trainctl::cluster {
namespace {

// By their places in the list of nodes.
std::vector<int> MembersOf(absl::string_view line, const absl::flat_hash_map<std::string, int>& place_of) {
  std::vector<int> members;
  for (absl::string_view word : absl::StrSplit(line, ' ')) {
    if (!absl::ConsumePrefix(&word, "Nodes=")) continue;
    const auto names = ExpandHostlist(word);
    if (!names.ok()) return {};
    for (const std::string& name : *names) {
      if (const auto it = place_of.find(name); it != place_of.end()) members.push_back(it->second);
    }
  }
  return members;
}

}  // namespace

std::vector<std::string> OrderBySwitch(const std::vector<std::string>& nodes, absl::string_view topology) {
  absl::flat_hash_map<std::string, int> place_of;
  for (size_t i = 0; i < nodes.size(); ++i) place_of[nodes[i]] = static_cast<int>(i);
  std::vector<std::vector<int>> groups;
  for (const absl::string_view line : absl::StrSplit(topology, '\n'))
    groups.push_back(MembersOf(line, place_of));
  // A switch above others has all their nodes.
  absl::c_stable_sort(groups, [](const auto& a, const auto& b) { return a.size() > b.size(); });

  // Of each node: the first place of each group that it is in, from the top to the leaf, and its own.
  std::vector<std::pair<std::vector<int>, std::string>> keyed;
  for (const std::string& node : nodes) keyed.push_back({{}, node});
  for (const std::vector<int>& members : groups) {
    if (members.empty()) continue;
    const int first = *absl::c_min_element(members);
    for (const int member : members) keyed[static_cast<size_t>(member)].first.push_back(first);
  }
  for (size_t i = 0; i < keyed.size(); ++i) keyed[i].first.push_back(static_cast<int>(i));
  absl::c_sort(keyed);
  std::vector<std::string> ordered;
  for (auto& [places, node] : keyed) ordered.push_back(std::move(node));
  return ordered;
}

}  // namespace trainctl::cluster
