#include "layout/mesh.h"

#include "absl/strings/str_cat.h"

namespace trainctl::layout {
namespace {

constexpr std::array<absl::string_view, kNumAxes> kAxisNames = {"pp", "dp_replicate", "dp_shard", "cp", "tp"};

// The degrees of a view of the ranks, the axis that varies slowest first.
std::array<int64_t, kNumAxes> DegreesOf(const Mesh& mesh, Axis) {
  return {mesh.pp, mesh.dp_replicate, mesh.dp_shard, mesh.cp, mesh.tp};
}
std::array<int64_t, 3> DegreesOf(const Mesh& mesh, ExpertAxis) {
  return {mesh.ranks_per_stage() / (mesh.ep * mesh.etp), mesh.ep, mesh.etp};
}

template <typename AnyAxis>
int DegreeOf(const Mesh& mesh, AnyAxis axis) {
  return static_cast<int>(DegreesOf(mesh, axis)[static_cast<size_t>(axis)]);
}

template <typename AnyAxis>
int StrideOf(const Mesh& mesh, AnyAxis axis) {
  const auto degrees = DegreesOf(mesh, axis);
  int64_t stride = 1;
  for (size_t i = static_cast<size_t>(axis) + 1; i < degrees.size(); ++i) stride *= degrees[i];
  return static_cast<int>(stride);
}

template <typename AnyAxis>
int CoordinateOf(const Mesh& mesh, int rank, AnyAxis axis) {
  return rank / StrideOf(mesh, axis) % DegreeOf(mesh, axis);
}

template <typename AnyAxis>
std::vector<int> GroupOf(const Mesh& mesh, int rank, AnyAxis axis) {
  const int stride = StrideOf(mesh, axis);
  const int first = rank - CoordinateOf(mesh, rank, axis) * stride;
  std::vector<int> ranks;
  for (int i = 0; i < DegreeOf(mesh, axis); ++i) ranks.push_back(first + i * stride);
  return ranks;
}

}  // namespace

absl::string_view AxisName(Axis axis) { return kAxisNames[static_cast<size_t>(axis)]; }

int Mesh::degree(Axis axis) const { return DegreeOf(*this, axis); }
int Mesh::stride(Axis axis) const { return StrideOf(*this, axis); }
int Mesh::coordinate(int rank, Axis axis) const { return CoordinateOf(*this, rank, axis); }
std::vector<int> Mesh::Group(int rank, Axis axis) const { return GroupOf(*this, rank, axis); }

int Mesh::degree(ExpertAxis axis) const { return DegreeOf(*this, axis); }
int Mesh::stride(ExpertAxis axis) const { return StrideOf(*this, axis); }
int Mesh::coordinate(int rank, ExpertAxis axis) const { return CoordinateOf(*this, rank, axis); }
std::vector<int> Mesh::Group(int rank, ExpertAxis axis) const { return GroupOf(*this, rank, axis); }

std::string Mesh::ToString() const {
  std::string text;
  const auto add = [&text](absl::string_view name, int64_t degree) {
    if (degree > 1) absl::StrAppend(&text, text.empty() ? "" : " ", name, "=", degree);
  };
  const auto degrees = DegreesOf(*this, Axis::kPp);
  for (size_t i = 0; i < kNumAxes; ++i) add(kAxisNames[i], degrees[i]);
  add("ep", ep);
  add("etp", etp);
  return text.empty() ? "one worker" : text;
}

}  // namespace trainctl::layout
