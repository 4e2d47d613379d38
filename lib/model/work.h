// What a piece of a step asks of a machine, in units of a few resources. Operators state their work in these
// units; seconds per unit are the machine's (simulate::Rates). Pure; thread safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace trainctl::model {

// What time is made of, and what `trainctl calibrate` finds the seconds per unit of.
enum class Resource : uint8_t {
  kMatmulFlops,
  kAttentionFlops,          // forward, of the scores that the kernel computes
  kAttentionBackwardFlops,  // the five products of the backward
  kAttentionTiles,          // fixed cost of one product of a tile of scores
  kLogits,                  // logits through softmax, loss and gradient
  kOperandBytes,            // of products, results and sums of gradients among them
  kMovedBytes,              // read and written by passes over memory
  kOptimizerElements,       // AdamW's update and the compute copy; others by the bytes that they move
  kOperators,               // fixed cost of starting one
  kSentBytes,               // by one worker to its peers
  kCollectives,             // fixed cost of one
  kSteps,                   // fixed cost of a step: data, log
};
inline constexpr int kNumResources = 12;
absl::string_view ResourceName(Resource resource);  // "matmul_flops"

struct Work {
  std::array<double, kNumResources> units = {};
  double& operator[](Resource resource) { return units[static_cast<size_t>(resource)]; }
  double operator[](Resource resource) const { return units[static_cast<size_t>(resource)]; }
  Work& operator+=(const Work& other);
};

}  // namespace trainctl::model
