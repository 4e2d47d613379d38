// The variants of operators that models choose between. Kernels take them as arguments, and models store them
// as data. Pure data.
#pragma once

#include <cstdint>

namespace trainctl::kernels {

// The factor of normalized rows: the weight, 1 + the weight, or none. With kNone the weight and its gradient
// are neither read nor written, and may be null.
enum class Gain : int32_t { kWeight, kOnePlusWeight, kNone };

// The elements of a head that are rotated together: i and i + half (kHalves), or 2 i and 2 i + 1 (kNeighbors;
// GPT-J, GLM, Cohere).
enum class RopePairs : int32_t { kHalves, kNeighbors };

// The activation functions of x:
//   kSiLU         x / (1 + e^-x)
//   kGelu         x * P(x), with the probability P(x) that a standard normal value is below x
//   kGeluTanh     an approximation of kGelu: x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2
//   kRelu         max(x, 0)
//   kReluSquared  max(x, 0)^2
enum class Activation : int32_t { kSiLU, kGelu, kGeluTanh, kRelu, kReluSquared };

}  // namespace trainctl::kernels
