// The memory of a block's parameters and their gradients while the block runs.
#pragma once

#include <vector>

namespace trainctl::nn {

// One parameter. `data` points to its elements in the compute dtype; it may be null in a pass that does not
// read the parameter. `gradient` points to the accumulators of its gradient, or is null if no gradient is
// wanted. If `accumulate` is false, the first write replaces their contents.
struct BoundParameter {
  void* data = nullptr;
  void* gradient = nullptr;
  bool accumulate = true;
};
using BoundParameters = std::vector<BoundParameter>;  // ordered as Graph::Block::parameters

}  // namespace trainctl::nn
