// What a piece of a step asks of a machine, in units of a few resources. Operators state their work in these
// units; seconds per unit are the machine's (simulate::Rates). What a device prices by shape, and not by the
// sum of its parts, is listed beside them. Pure; thread safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "base/collective.h"
#include "base/dtype_id.h"

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

// A product of matrices, [rows, inner] x [inner, columns]. Its FLOPs and operands are units too.
struct Product {
  DType dtype = DType::kF32;
  double rows = 0;
  double inner = 0;
  double columns = 0;
  double result_bytes = 0;  // read and written per element of the result
  double batch = 1;         // products of this shape in one launch
  bool operator==(const Product&) const = default;
};

// One fused kernel of causal attention, forward or backward.
struct AttentionKernel {
  double tokens = 0;
  double seq_len = 0;
  double heads = 0;
  double head_dim = 0;
  bool backward = false;
  bool operator==(const AttentionKernel&) const = default;
};

// One collective. The group's neighbours are `stride` ranks apart.
struct Exchange {
  Collective collective = Collective::kAllReduce;
  double bytes = 0;  // as cluster/collectives.h counts them
  int ranks = 1;
  int stride = 1;
  bool operator==(const Exchange&) const = default;
};

double SentBytes(const Exchange& exchange);  // by one of its ranks

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
