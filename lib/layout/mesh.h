// The device mesh: which rank sits where on which axis, for our own layouts and for the jobs of other
// trainers. Pure; thread safe.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainctl::layout {

enum class Axis : uint8_t { kPp, kDpReplicate, kDpShard, kCp, kTp };
inline constexpr int kNumAxes = 5;
absl::string_view AxisName(Axis axis);

// Axes of the experts' view; kDp holds the copies of each expert.
enum class ExpertAxis : uint8_t { kDp, kEp, kEtp };

// pp x dp_replicate x dp_shard x cp x tp, row-major: tp varies fastest.
//
// Experts have a second view of the ranks of each pp coordinate: expert dp x ep x etp, row-major, etp varies
// fastest (MoE Parallel Folding, arXiv 2504.14960). It folds over dp_replicate too: without ZeRO, experts are
// dealt out over ranks that replicate everything else.
//
// Degrees are int64_t because what-ifs multiply them; ranks and strides are int.
struct Mesh {
  int64_t pp = 1;
  int64_t dp_replicate = 1;
  int64_t dp_shard = 1;
  int64_t cp = 1;
  int64_t tp = 1;
  int64_t ep = 1;   // expert parallelism
  int64_t etp = 1;  // tensor parallelism of each expert

  int64_t world_size() const { return pp * ranks_per_stage(); }
  int64_t ranks_per_stage() const { return dp_replicate * dp_shard * cp * tp; }  // of one pp coordinate
  int64_t data_degree() const { return dp_replicate * dp_shard; }

  int degree(Axis axis) const;
  int stride(Axis axis) const;  // ranks between neighbours on an axis
  int coordinate(int rank, Axis axis) const;
  // Ranks that differ from `rank` on `axis` only, in the axis's order.
  std::vector<int> Group(int rank, Axis axis) const;
  // Data-parallel index of a rank, dp_replicate major: which sequences of a step it trains on.
  int data_index(int rank) const {
    return coordinate(rank, Axis::kDpReplicate) * degree(Axis::kDpShard) + coordinate(rank, Axis::kDpShard);
  }

  // Whether ep x etp divides ranks_per_stage(); what follows requires it.
  bool HasExpertView() const { return ranks_per_stage() % (ep * etp) == 0; }
  int degree(ExpertAxis axis) const;
  int stride(ExpertAxis axis) const;
  int coordinate(int rank, ExpertAxis axis) const;
  std::vector<int> Group(int rank, ExpertAxis axis) const;

  std::string ToString() const;  // "dp_replicate=2 dp_shard=4"
  bool operator==(const Mesh&) const = default;
};

}  // namespace trainctl::layout
