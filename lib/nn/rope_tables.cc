#include "nn/rope_tables.h"

#include <ATen/ATen.h>

#include <numbers>

#include "model/graph.h"

namespace trainctl::nn {
namespace {

// Scales frequencies like modeling_rope_utils in transformers. "linear" divides all frequencies by `factor`.
// "llama3" divides low frequencies, keeps high ones, and blends those in between.
at::Tensor ScaleFrequencies(const at::Tensor& frequencies, const model::RopeScaling& scaling) {
  if (scaling.kind == model::RopeScalingKind::kLinear) return frequencies / scaling.factor;
  const at::Tensor wavelengths = frequencies.reciprocal() * (2 * std::numbers::pi);
  const double original = static_cast<double>(scaling.original_max_position);
  const double longest_kept = original / scaling.high_freq_factor;
  const double shortest_divided = original / scaling.low_freq_factor;
  const at::Tensor smooth = (wavelengths.reciprocal() * original - scaling.low_freq_factor) /
                            (scaling.high_freq_factor - scaling.low_freq_factor);
  const at::Tensor blended = (1 - smooth) * frequencies / scaling.factor + smooth * frequencies;
  const at::Tensor scaled =
      at::where(wavelengths > shortest_divided, frequencies / scaling.factor, frequencies);
  return at::where((wavelengths >= longest_kept).logical_and(wavelengths <= shortest_divided), blended,
                   scaled);
}

// By the operations of transformers, one by one in fp32: a frequency that is rounded once, from a better one,
// is another number, and at position 131,071 an angle that is 0.008 rad away from that of the published
// weights.
at::Tensor Frequencies(const model::AngleTable& table) {
  const at::Tensor exponents =
      at::arange(0, table.rotated_dim, 2, at::kLong).to(at::kFloat) / table.rotated_dim;
  const at::Tensor frequencies = at::pow(table.theta, exponents).reciprocal();
  return table.scaling ? ScaleFrequencies(frequencies, *table.scaling) : frequencies;
}

}  // namespace

RopeTables MakeRopeTables(const device::Device& device, const model::AngleTable& table,
                          int64_t max_position) {
  const at::Tensor positions = at::arange(max_position, at::kFloat);
  at::Tensor angles = positions.unsqueeze(1) * Frequencies(table).unsqueeze(0);
  const at::Tensor sin = angles.sin();
  return {angles.cos_().to(device.torch()), sin.to(device.torch())};
}

std::vector<RopeTables> MakeRopeTables(const device::Device& device,
                                       const std::vector<model::AngleTable>& tables, int64_t max_position) {
  std::vector<RopeTables> made;
  for (const model::AngleTable& table : tables) made.push_back(MakeRopeTables(device, table, max_position));
  return made;
}

}  // namespace trainctl::nn
