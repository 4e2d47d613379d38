#include "data/mixture.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <tuple>

#include "base/status.h"

namespace trainctl::data {
namespace {

__extension__ typedef unsigned __int128 uint128;

// Of the first n sequences of a node, how many go left: n * left / weight, rounded.
int64_t LeftCount(int64_t n, int64_t left_weight, int64_t weight) {
  const uint128 scaled = static_cast<uint128>(n) * static_cast<uint64_t>(left_weight);
  return static_cast<int64_t>((scaled + static_cast<uint64_t>(weight) / 2) / static_cast<uint64_t>(weight));
}

}  // namespace

Mixture::Mixture(absl::Span<const int64_t> weights) {
  // Smallest weight first; ties by age, so that the tree is the same everywhere.
  using Entry = std::tuple<int64_t, int, int>;  // weight, order, side
  std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> open;
  int order = 0;
  for (size_t source = 0; source < weights.size(); ++source) {
    TRAINCTL_CHECK(weights[source] >= 0);
    if (weights[source] > 0) open.emplace(weights[source], order++, ~static_cast<int>(source));
  }
  TRAINCTL_CHECK(!open.empty());
  while (open.size() > 1) {
    const auto [right_weight, right_order, right] = open.top();
    open.pop();
    const auto [left_weight, left_order, left] = open.top();
    open.pop();
    nodes_.push_back({left_weight, left_weight + right_weight, left, right});
    open.emplace(left_weight + right_weight, order++, static_cast<int>(nodes_.size()) - 1);
  }
  root_ = std::get<2>(open.top());
}

Mixture::Draw Mixture::At(int64_t sequence) const {
  int side = root_;
  while (side >= 0) {
    const Node& node = nodes_[static_cast<size_t>(side)];
    const int64_t left_before = LeftCount(sequence, node.left_weight, node.weight);
    const bool goes_left = LeftCount(sequence + 1, node.left_weight, node.weight) > left_before;
    sequence = goes_left ? left_before : sequence - left_before;
    side = goes_left ? node.left : node.right;
  }
  return {~side, sequence};
}

std::vector<int64_t> IntegerWeights(absl::Span<const double> shares) {
  double sum = 0;
  for (const double share : shares) sum += share;
  std::vector<int64_t> weights;
  for (const double share : shares) {
    const int64_t weight = std::llround(share / sum * 0x1.0p52);
    weights.push_back(share > 0 ? std::max<int64_t>(weight, 1) : 0);
  }
  return weights;
}

}  // namespace trainctl::data
