// Collects loaded weights that are finite, but hardly those of a trained model. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "checkpoint/folder_parameters.h"

namespace trainctl::checkpoint {

// Weights of trained models rarely exceed a few hundred.
inline constexpr float kHugeWeight = 1e4F;

class OddWeights {
 public:
  // `values` are the elements as floats.
  void See(const ReadElements& elements, absl::Span<const float> values);

  // One text for each tensor with huge values, for example "lm_head.weight: row 511 contains 1e+30". Lists up
  // to five tensors, then their number.
  std::vector<std::string> HugeValues() const;
  // Returns whether any value of a parameter that was seen differs from 0.
  bool HasNonZero(const std::string& parameter) const { return nonzero_.contains(parameter); }

 private:
  struct Huge {
    int64_t row = 0;
    float value = 0;
    int64_t count = 0;  // number of huge values
  };
  std::map<std::string, Huge> huge_;  // keyed by tensor; holds the first huge value
  std::set<std::string> nonzero_;     // names of parameters with a value that is not 0
};

}  // namespace trainctl::checkpoint
