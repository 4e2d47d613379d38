#include "layout/mesh.h"

#include "absl/strings/str_cat.h"

namespace trainctl::layout {
namespace {

constexpr std::array<absl::string_view, kNumAxes> kAxisNames = {"pp", "dp_replicate", "dp_shard", "cp", "tp"};

std::array<int, kNumAxes> Degrees(const Mesh& mesh) {
  return {mesh.pp, mesh.dp_replicate, mesh.dp_shard, mesh.cp, mesh.tp};
}

}  // namespace

absl::string_view AxisName(Axis axis) { return kAxisNames[static_cast<size_t>(axis)]; }

int Mesh::degree(Axis axis) const { return Degrees(*this)[static_cast<size_t>(axis)]; }

int Mesh::stride(Axis axis) const {
  const auto degrees = Degrees(*this);
  int stride = 1;
  for (size_t i = static_cast<size_t>(axis) + 1; i < kNumAxes; ++i) stride *= degrees[i];
  return stride;
}

int Mesh::coordinate(int rank, Axis axis) const { return rank / stride(axis) % degree(axis); }

std::vector<int> Mesh::Group(int rank, Axis axis) const {
  const int first = rank - coordinate(rank, axis) * stride(axis);
  std::vector<int> ranks;
  for (int i = 0; i < degree(axis); ++i) ranks.push_back(first + i * stride(axis));
  return ranks;
}

std::string Mesh::ToString() const {
  std::string text;
  const auto degrees = Degrees(*this);
  for (size_t i = 0; i < kNumAxes; ++i) {
    if (degrees[i] > 1) absl::StrAppend(&text, text.empty() ? "" : " ", kAxisNames[i], "=", degrees[i]);
  }
  return text.empty() ? "one worker" : text;
}

}  // namespace trainctl::layout
