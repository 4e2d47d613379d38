#include "comm/host_links.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_format.h"
#include "base/status.h"

namespace trainctl::comm {
namespace {

constexpr double kSlow = 0.5;  // of the usual speed
// Two speeds are those of one cable's directions, each measured once: the first message of a connection may
// take twice as long as the next.
constexpr size_t kFewestToCompare = 3;

// Nodes of one turn send at once. Of an odd number the last one needs a turn of its own: it sends to the
// first.
int TurnOf(int node, int nodes) { return node == nodes - 1 && nodes % 2 != 0 ? 2 : node % 2; }

absl::Status Send(Group& world, std::vector<uint8_t>& message, int to) {
  TRAINCTL_RETURN_IF_ERROR(world.Send("link", message.data(), 1, to));
  return world.Send("link", message.data(), static_cast<int64_t>(message.size()), to);
}

// Bytes per second from the moment that the sender is there.
absl::StatusOr<double> Receive(Group& world, std::vector<uint8_t>& message, int from) {
  TRAINCTL_RETURN_IF_ERROR(world.Receive("link", message.data(), 1, from));
  const auto begin = std::chrono::steady_clock::now();
  TRAINCTL_RETURN_IF_ERROR(world.Receive("link", message.data(), static_cast<int64_t>(message.size()), from));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return static_cast<double>(message.size()) / std::max(seconds.count(), 1e-9);
}

}  // namespace

absl::StatusOr<std::vector<double>> MeasureHostLinks(Group& world, int ranks_per_node, int64_t bytes) {
  const int nodes = world.size() / ranks_per_node;
  if (nodes < 2) return std::vector<double>();
  const int node = world.index() / ranks_per_node;
  const int before = (node + nodes - 1) % nodes, after = (node + 1) % nodes;
  const bool takes_part = world.index() % ranks_per_node == 0;
  std::vector<uint8_t> message(takes_part ? static_cast<size_t>(bytes) : 0);
  std::vector<double> speeds(static_cast<size_t>(nodes));
  for (int turn = 0; turn < (nodes % 2 != 0 ? 3 : 2); ++turn) {
    if (takes_part && TurnOf(node, nodes) == turn) {
      TRAINCTL_RETURN_IF_ERROR(Send(world, message, after * ranks_per_node));
    }
    if (takes_part && TurnOf(before, nodes) == turn) {
      TRAINCTL_ASSIGN_OR_RETURN(speeds[static_cast<size_t>(node)],
                                Receive(world, message, before * ranks_per_node));
    }
  }
  TRAINCTL_RETURN_IF_ERROR(world.AllReduceScalars("links", absl::MakeSpan(speeds)));
  return speeds;
}

std::vector<std::string> DescribeHostLinks(absl::Span<const double> bytes_per_second, int ranks_per_node) {
  if (bytes_per_second.empty()) return {};
  std::vector<double> sorted(bytes_per_second.begin(), bytes_per_second.end());
  std::sort(sorted.begin(), sorted.end());
  const double usual = sorted[sorted.size() / 2];
  std::vector<std::string> lines = {
      absl::StrFormat("between nodes: %.3g to %.3g GB/s", sorted.front() / 1e9, sorted.back() / 1e9)};
  if (bytes_per_second.size() < kFewestToCompare) return lines;
  for (size_t node = 0; node < bytes_per_second.size(); ++node) {
    if (bytes_per_second[node] >= kSlow * usual) continue;
    const size_t before = (node + bytes_per_second.size() - 1) % bytes_per_second.size();
    lines.push_back(absl::StrFormat(
        "warning: from the node of rank %d to that of rank %d it is %.3g GB/s, where %.3g are usual: look at "
        "their network",
        before * static_cast<size_t>(ranks_per_node), node * static_cast<size_t>(ranks_per_node),
        bytes_per_second[node] / 1e9, usual / 1e9));
  }
  return lines;
}

}  // namespace trainctl::comm
