// Which source each sequence of the training mix comes from: a fixed function of the sequence's number, so
// that any step can be asked for at once. Among the first n sequences, a source of share w has drawn n * w
// of them, give or take less than 1 (at most three sources) or less than 2 (any number).
// Immutable; thread safe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace trainctl::data {

class Mixture {
 public:
  // At least one weight, not all zero, their sum below 2^63. A source of weight 0 is never drawn.
  explicit Mixture(absl::Span<const int64_t> weights);

  struct Draw {
    int source = 0;
    int64_t index = 0;  // how many sequences before this one came from the same source
  };
  Draw At(int64_t sequence) const;

 private:
  // A Huffman tree over the sources: at each node, its own sequences are dealt to the two sides evenly.
  // Side >= 0 is a node, < 0 the source ~side.
  struct Node {
    int64_t left_weight;
    int64_t weight;
    int left;
    int right;
  };
  std::vector<Node> nodes_;
  int root_ = 0;
};

// Shares as integers: a sum of about 2^52, and at least 1 for a positive share. Sum and all must be finite,
// none negative.
std::vector<int64_t> IntegerWeights(absl::Span<const double> shares);

}  // namespace trainctl::data
