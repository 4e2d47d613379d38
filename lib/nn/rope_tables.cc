#include "nn/rope_tables.h"

#include "device/aten.h"
#include "model/graph.h"

namespace trainctl::nn {
namespace {

// The powers are those of PyTorch, as in transformers: a frequency that is rounded once, from a better one,
// is another number.
at::Tensor Frequencies(const model::AngleTable& table, int64_t seq_len) {
  const at::Tensor exponents =
      at::arange(0, table.rotated_dim, 2, at::kLong).to(at::kFloat) / table.rotated_dim;
  const double base = model::RopeBase(table.scaling, table.theta, table.rotated_dim);
  const at::Tensor powers = at::pow(base, exponents).contiguous();
  return at::tensor(model::RopeFrequencies(
      table.scaling, base, {powers.const_data_ptr<float>(), static_cast<size_t>(powers.numel())}, seq_len));
}

}  // namespace

RopeTables MakeRopeTables(const device::Device& device, const model::AngleTable& table, int64_t seq_len) {
  const at::Tensor positions = at::arange(seq_len, at::kFloat);
  at::Tensor angles = positions.unsqueeze(1) * Frequencies(table, seq_len).unsqueeze(0);
  at::Tensor sin = angles.sin();
  angles.cos_();
  if (table.scaling.has_value()) {
    const double factor = model::AttentionFactorOf(*table.scaling);
    angles.mul_(factor);
    sin.mul_(factor);
  }
  return {angles.to(device.torch()), sin.to(device.torch())};
}

std::vector<RopeTables> MakeRopeTables(const device::Device& device,
                                       const std::vector<model::AngleTable>& tables, int64_t seq_len) {
  std::vector<RopeTables> made;
  for (const model::AngleTable& table : tables) made.push_back(MakeRopeTables(device, table, seq_len));
  return made;
}

}  // namespace trainctl::nn
