// Assigns each sequence of the training mix to a source. The source is a fixed function of the sequence
// number, so any step can be computed directly. Of the first n sequences, n * w come from a source with share
// w, with an error of less than 1 for up to three sources and less than 2 for any number. Immutable;
// thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace trainctl::data {

class Mixture {
 public:
  // Requires at least one weight. The weights must not all be zero, and their sum must be below 2^63. A
  // source with weight 0 is never drawn.
  explicit Mixture(absl::Span<const int64_t> weights);

  struct Draw {
    int source = 0;
    int64_t index = 0;  // number of earlier sequences from the same source
  };
  Draw At(int64_t sequence) const;

 private:
  // A Huffman tree over the sources. Each node divides its sequences evenly between its two sides, in
  // proportion to their weights. A side >= 0 is a node; a side < 0 is the source ~side.
  struct Node {
    int64_t left_weight;
    int64_t weight;
    int left;
    int right;
  };
  std::vector<Node> nodes_;
  int root_ = 0;
};

// Converts shares to integers whose sum is about 2^52. Positive shares become at least 1. The shares and
// their sum must be finite, and no share may be negative.
std::vector<int64_t> IntegerWeights(absl::Span<const double> shares);

}  // namespace trainctl::data
