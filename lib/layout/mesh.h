// The device mesh: maps each rank to its coordinates on the axes of parallelism. Used both for trainctl's
// layouts and for estimates of jobs in other trainers. Pure; thread-safe.
//
//   const Mesh mesh = {.dp_shard = 2, .tp = 4};         // 8 ranks
//   mesh.coordinate(/*rank=*/6, Axis::kTp);             // 2
//   mesh.Group(/*rank=*/6, Axis::kDpShard);             // {2, 6}
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainctl::layout {

enum class Axis : uint8_t { kPp, kDpReplicate, kDpShard, kCp, kTp };
inline constexpr int kNumAxes = 5;
absl::string_view AxisName(Axis axis);  // "pp", "dp_replicate", ...

// The axes along which experts are distributed. Along kDp, each rank holds a copy of the same experts.
enum class ExpertAxis : uint8_t { kDp, kEp, kEtp };

// The degrees of a mesh pp x dp_replicate x dp_shard x cp x tp. Ranks are numbered in row-major order, so tp
// varies fastest.
//
// Experts use a second view of the ranks of each pp coordinate: expert dp x ep x etp, in row-major order, so
// etp varies fastest (MoE Parallel Folding, arXiv 2504.14960). The view also spans dp_replicate: without
// ZeRO, experts are distributed over ranks that replicate everything else.
//
// Degrees are int64_t because what-ifs multiply them. Ranks and strides are int.
struct Mesh {
  int64_t pp = 1;
  int64_t dp_replicate = 1;
  int64_t dp_shard = 1;
  int64_t cp = 1;
  int64_t tp = 1;
  int64_t ep = 1;   // degree of expert parallelism
  int64_t etp = 1;  // degree of tensor parallelism within each expert

  int64_t world_size() const { return pp * ranks_per_stage(); }
  int64_t ranks_per_stage() const { return dp_replicate * dp_shard * cp * tp; }  // ranks per pp coordinate
  int64_t data_degree() const { return dp_replicate * dp_shard; }

  int degree(Axis axis) const;
  int stride(Axis axis) const;  // difference in rank between neighbours on the axis
  int coordinate(int rank, Axis axis) const;
  // Returns `rank` and all ranks that differ from it only on `axis`, by their coordinate on that axis.
  std::vector<int> Group(int rank, Axis axis) const;
  // Returns the data-parallel index of a rank, which determines the sequences of a step that it trains on.
  // The dp_shard coordinate varies fastest.
  int data_index(int rank) const {
    return coordinate(rank, Axis::kDpReplicate) * degree(Axis::kDpShard) + coordinate(rank, Axis::kDpShard);
  }

  // Whether ep x etp divides ranks_per_stage(). The functions that take an ExpertAxis require it.
  bool HasExpertView() const { return ranks_per_stage() % (ep * etp) == 0; }
  int degree(ExpertAxis axis) const;
  int stride(ExpertAxis axis) const;
  int coordinate(int rank, ExpertAxis axis) const;
  std::vector<int> Group(int rank, ExpertAxis axis) const;

  // Returns the degrees above 1, such as "dp_replicate=2 dp_shard=4", or "one worker" if there are none.
  std::string ToString() const;
  bool operator==(const Mesh&) const = default;
};

}  // namespace trainctl::layout
