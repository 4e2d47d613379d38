#include "rpc/worker_lines.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/units.h"

namespace trainctl::rpc {
namespace {

constexpr size_t kMostWorkers = 16;  // with a line each
constexpr size_t kMostNodes = 64;    // likewise

std::string LineOf(const WorkerStatus& worker, bool has_nodes) {
  std::string text = absl::StrFormat("rank %-6d %s", worker.rank,
                                     has_nodes ? absl::StrCat("on ", worker.node, ": ") : std::string());
  absl::StrAppend(&text, worker.state);
  if (worker.step >= 0) absl::StrAppendFormat(&text, ", step %d, %s", worker.step, worker.phase);
  if (worker.peak_bytes) absl::StrAppend(&text, ", ", FormatBytes(*worker.peak_bytes));
  if (worker.pid > 0) absl::StrAppend(&text, ", process ", worker.pid);
  if (has_nodes) absl::StrAppend(&text, ", heard ", Age(worker.silent), " ago");
  return text;
}

// The number of workers in each state, and who it is where it is one of many: "7 running, 1 exited (rank 3)".
std::string States(const std::vector<const WorkerStatus*>& workers) {
  std::map<std::string, std::vector<int>> ranks_of;
  for (const WorkerStatus* const worker : workers) ranks_of[worker->state].push_back(worker->rank);
  std::vector<std::string> texts;
  for (const auto& [state, ranks] : ranks_of) {
    texts.push_back(absl::StrCat(ranks.size(), " ", state));
    if (ranks.size() == 1 && workers.size() > 1)
      absl::StrAppend(&texts.back(), " (rank ", ranks.front(), ")");
  }
  return absl::StrJoin(texts, ", ");
}

std::string Summary(const std::string& name, const std::vector<const WorkerStatus*>& workers) {
  const auto by_step = [](const WorkerStatus* a, const WorkerStatus* b) { return a->step < b->step; };
  const auto by_memory = [](const WorkerStatus* a, const WorkerStatus* b) {
    return a->peak_bytes < b->peak_bytes;
  };
  const auto by_silence = [](const WorkerStatus* a, const WorkerStatus* b) { return a->silent < b->silent; };
  const auto [slowest, fastest] = std::minmax_element(workers.begin(), workers.end(), by_step);
  const WorkerStatus& largest = **std::max_element(workers.begin(), workers.end(), by_memory);
  const WorkerStatus& quietest = **std::max_element(workers.begin(), workers.end(), by_silence);
  std::string text = absl::StrFormat("%-11s %s", name, States(workers));
  if ((*fastest)->step >= 0 && (*slowest)->step == (*fastest)->step) {
    absl::StrAppend(&text, ", step ", (*fastest)->step);
  } else if ((*fastest)->step >= 0) {
    absl::StrAppend(&text, ", step ", (*slowest)->step, " (rank ", (*slowest)->rank, ") to ",
                    (*fastest)->step);
  }
  if (largest.peak_bytes) {
    absl::StrAppend(&text, ", at most ", FormatBytes(*largest.peak_bytes), " (rank ", largest.rank, ")");
  }
  absl::StrAppend(&text, ", heard ", Age(quietest.silent), " ago (rank ", quietest.rank, ")");
  return text;
}

}  // namespace

std::string Age(absl::Duration age) {
  if (age < absl::Minutes(1)) return absl::StrFormat("%.1f s", absl::ToDoubleSeconds(age));
  const int64_t seconds = absl::ToInt64Seconds(age);
  if (age < absl::Hours(1)) return absl::StrFormat("%d min %d s", seconds / 60, seconds % 60);
  return absl::StrFormat("%d h %d min", seconds / 3600, seconds / 60 % 60);
}

std::vector<std::string> WorkerLines(absl::Span<const WorkerStatus> workers, bool has_nodes) {
  std::vector<std::string> lines;
  if (workers.size() <= kMostWorkers) {
    for (const WorkerStatus& worker : workers) lines.push_back(LineOf(worker, has_nodes));
    return lines;
  }
  std::vector<std::pair<std::string, std::vector<const WorkerStatus*>>> nodes;  // in the order of the ranks
  std::map<std::string, size_t> index_of;
  std::vector<const WorkerStatus*> all;
  for (const WorkerStatus& worker : workers) {
    const auto [it, is_new] = index_of.try_emplace(worker.node, nodes.size());
    if (is_new) nodes.push_back({worker.node, {}});
    nodes[it->second].second.push_back(&worker);
    all.push_back(&worker);
  }
  if (!has_nodes || nodes.size() > kMostNodes) {
    return {Summary(has_nodes ? absl::StrCat(nodes.size(), " nodes") : "workers", all)};
  }
  for (const auto& [node, of_node] : nodes) lines.push_back(Summary(node, of_node));
  return lines;
}

}  // namespace trainctl::rpc
