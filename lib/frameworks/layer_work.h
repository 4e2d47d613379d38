// What one rank does in one layer for one micro-batch: products, attention and passes over memory, with
// what each keeps for the backward, and the collectives between them. Memory and time are both
// priced from this table. Pure; thread safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "frameworks/workload.h"

namespace trainctl::frameworks {

enum class WorkKind : uint8_t { kMatmul, kAttention, kElementwise };

// What a pass over memory does, which decides how many kernels it is and what its backward moves.
enum class PassKind : uint8_t {
  kNorm,
  kResidual,
  kRotary,
  kActivation,
  kGatedActivation,
  kPermute,
  kCopy,        // read and written, and so is the gradient
  kClamp,       // of gate and product, before the activation
  kExpertBias,  // of what experts give, weighted by the token's probability
};

struct WorkItem {
  WorkKind kind = WorkKind::kElementwise;
  // kMatmul: `batch` products [rows, inner] x [inner, columns]. kAttention: rows = queries of this rank,
  // inner = keys that each sees on average, columns = heads, head_dim below.
  double batch = 1;
  double rows = 0;
  double inner = 0;
  double columns = 0;
  double head_dim = 0;
  PassKind pass = PassKind::kNorm;
  double moved_bytes = 0;  // kElementwise: read and written by the forward as one kernel
  double saved_bytes = 0;  // kept from forward to backward
  // Of saved_bytes, what the next operator keeps as its own input, dropped here or not.
  double kept_anyway_bytes = 0;
  bool fp8 = false;     // a product that low precision applies to
  bool expert = false;  // of routed experts
  // Of this product, what selective recompute as torchtitan's does again.
  double share_recomputed_by_selection = 0;
  // Modules (RecomputeModule): if one of them is done again, saved_bytes are not kept.
  uint32_t dropped_by = 0;
  // Modules that do this operator again in the backward, if they are recomputed.
  uint32_t again_by = 0;
};

struct LayerWork {
  std::vector<WorkItem> items;
  double input_bytes = 0;  // kept by full recompute: the input of the layer
  // Forward; the backward has the same again (products of weights gather their input once more).
  double tensor_parallel_bytes = 0;  // of one gathered activation; two of them a layer
  double expert_bytes = 0;           // sent to other ranks by one dispatch; the combine sends as much
};

// `layer` decides between experts and a plain MLP.
LayerWork WorkOfLayer(const Workload& workload, int64_t layer);

// What of a model its table of operators lacks, in words.
std::vector<std::string> LeftOut(const model::Architecture& model);

// Bytes that the kernels of PassKind::kExpertBias read and write of an element.
struct ExpertBiasBytes {
  double forward = 0, backward = 0;
};
ExpertBiasBytes BytesOfExpertBias(const Workload& workload);

// Bytes kept per layer and micro-batch under the workload's recompute.
double SavedBytes(const LayerWork& work, const Workload& workload);

}  // namespace trainctl::frameworks
