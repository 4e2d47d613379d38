// Measures the work in a part of a step, in units of a few resources. Operators state their work in these
// units, and simulate::Rates contains the machine's time per unit. The time of matrix products, attention and
// collectives on a device depends on their shapes, so Work also lists these shapes. Pure; thread-safe.
//
//   model::Work work = model::WorkOf(segment, op, {model::Pass::kForward}, /*accumulate=*/false);
//   double seconds = rates.Seconds(work);
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "base/collective.h"
#include "base/dtype_id.h"

namespace trainctl::model {

// The resources that determine the time of a step. `trainctl calibrate` measures the seconds per unit of
// each.
enum class Resource : uint8_t {
  kMatmulFlops,
  kAttentionFlops,          // FLOPs of the forward, for the scores that the kernel computes
  kAttentionBackwardFlops,  // FLOPs of the five products of the backward
  kAttentionTiles,          // products of one tile of scores; accounts for their fixed cost
  kLogits,                  // logits that pass through softmax, loss and gradient
  kOperandBytes,            // operands of matrix products, including results and accumulated gradients
  kMovedBytes,              // bytes read and written by passes over memory
  kOptimizerElements,       // elements of AdamW updates; other updates count by their bytes (MovedBytes)
  kOperators,               // operators or kernel launches; accounts for their fixed cost
  kSentBytes,               // bytes that one worker sends to its peers
  kCollectives,             // collectives; accounts for their fixed cost
  kTensorExchanges,         // collectives between the products of a layer, which wait for them; fixed cost
  kSteps,                   // steps; accounts for their fixed cost (data and logging)
};
inline constexpr int kNumResources = 13;
absl::string_view ResourceName(Resource resource);  // for example, "matmul_flops"

// A matrix product, [rows, inner] x [inner, columns]. Work::units also includes its FLOPs and operand bytes.
struct Product {
  DType dtype = DType::kF32;
  double rows = 0;
  double inner = 0;
  double columns = 0;
  double result_bytes = 0;  // bytes read and written per element of the result
  double batch = 1;         // number of products of this shape in one kernel launch
  bool operator==(const Product&) const = default;
};

// One launch of a fused causal attention kernel, forward or backward.
struct AttentionKernel {
  double tokens = 0;
  double seq_len = 0;
  double heads = 0;
  double head_dim = 0;
  double window = 0;  // number of keys that a query sees at most; 0 if the sequence is not longer
  bool backward = false;
  bool operator==(const AttentionKernel&) const = default;
};

// One collective.
struct Exchange {
  Collective collective = Collective::kAllReduce;
  double bytes = 0;  // as defined in cluster/collectives.h
  int ranks = 1;
  int stride = 1;  // difference between the global ranks of adjacent members
  bool operator==(const Exchange&) const = default;
};

// Returns the number of bytes that one rank sends.
double SentBytes(const Exchange& exchange);

template <typename T>
struct Counted {
  T what;
  double count = 1;
};
template <typename T>
using CountedList = absl::InlinedVector<Counted<T>, 1>;

struct Work {
  std::array<double, kNumResources> units = {};
  CountedList<Product> products;
  CountedList<AttentionKernel> attention;
  CountedList<Exchange> exchanges;
  double& operator[](Resource resource) { return units[static_cast<size_t>(resource)]; }
  double operator[](Resource resource) const { return units[static_cast<size_t>(resource)]; }
  Work& operator+=(const Work& other);
};

}  // namespace trainctl::model
