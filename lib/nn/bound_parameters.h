// Where parameters lie while a segment runs.
#pragma once

#include <map>

namespace trainctl::nn {

// Where one parameter lies just now. `data` is in the compute dtype, `gradient` holds its accumulators (null
// when no gradient is wanted). With accumulate false the first write replaces what is there.
struct BoundParameter {
  void* data = nullptr;
  void* gradient = nullptr;
  bool accumulate = true;
};
using BoundParameters = std::map<int, BoundParameter>;  // by inventory index

}  // namespace trainctl::nn
