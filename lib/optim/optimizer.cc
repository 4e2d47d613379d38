#include "optim/optimizer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace trainctl::optim {

extern const Optimizer kLion;
extern const Optimizer kSgd;

namespace {

constexpr const Optimizer* kAll[] = {&kAdamW, &kLion, &kSgd};

}  // namespace

absl::Span<const Optimizer* const> All() { return kAll; }

const Optimizer* Find(absl::string_view name) {
  for (const Optimizer* optimizer : kAll) {
    if (optimizer->name == name) return optimizer;
  }
  return nullptr;
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const Optimizer* optimizer : kAll) names.emplace_back(optimizer->name);
  return names;
}

std::string StateKind::TensorPrefix() const { return absl::StrCat("optimizer.", name, "/"); }

bool Optimizer::Reads(absl::string_view field) const {
  return std::find(fields.begin(), fields.end(), field) != fields.end();
}

int64_t Optimizer::StateBytes() const {
  int64_t bytes = 0;
  for (const StateKind& state : states) bytes += DTypeBytes(state.dtype);
  return bytes;
}

int64_t Optimizer::MovedBytes(DType master) const {
  // The gradient is read, the rest is written too.
  return DTypeBytes(DType::kF32) + 2 * (DTypeBytes(master) + StateBytes());
}

kernels::UpdateRange RangeOf(const Optimizer& optimizer, DType master, const Parts& parts,
                             const void* gradient, int64_t first, int64_t count) {
  const int64_t offset = first * DTypeBytes(AccumulatorOf(master));
  kernels::UpdateRange range = {.master = static_cast<char*>(parts.master) + first * DTypeBytes(master),
                                .gradient = static_cast<const char*>(gradient) + offset,
                                .count = count};
  for (size_t k = 0; k < optimizer.states.size(); ++k) {
    TRAINCTL_CHECK_MSG(optimizer.states[k].dtype == DType::kF32, "the kernels' states are accumulators");
    range.states[k] = static_cast<char*>(parts.states[k]) + offset;
  }
  if (parts.copy != nullptr) range.copy = static_cast<char*>(parts.copy) + first * DTypeBytes(DType::kBF16);
  return range;
}

}  // namespace trainctl::optim
