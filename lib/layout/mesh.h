// The device mesh: which rank sits where on which axis. Pure; thread safe.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl::layout {

enum class Axis : uint8_t { kPp, kDpReplicate, kDpShard, kCp, kTp };
inline constexpr int kNumAxes = 5;
absl::string_view AxisName(Axis axis);

// pp x dp_replicate x dp_shard x cp x tp, row-major: tp varies fastest.
struct Mesh {
  int pp = 1;
  int dp_replicate = 1;
  int dp_shard = 1;
  int cp = 1;
  int tp = 1;

  int world_size() const { return pp * dp_replicate * dp_shard * cp * tp; }
  int degree(Axis axis) const;
  int stride(Axis axis) const;  // ranks between neighbours on an axis
  int coordinate(int rank, Axis axis) const;
  // Ranks that differ from `rank` on `axis` only, in the axis's order.
  std::vector<int> Group(int rank, Axis axis) const;
  // Data-parallel index of a rank, dp_replicate major: which sequences of a step it trains on.
  int data_index(int rank) const {
    return coordinate(rank, Axis::kDpReplicate) * dp_shard + coordinate(rank, Axis::kDpShard);
  }
  int data_degree() const { return dp_replicate * dp_shard; }
  std::string ToString() const;  // "dp_replicate=2 dp_shard=4"
  bool operator==(const Mesh&) const = default;
};

}  // namespace trainctl::layout
