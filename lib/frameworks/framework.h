// How other trainers run a model, as data: which bytes they keep, what they fuse and what they
// overlap. Switches and buffer sizes alone; no factor of efficiency is in here. Thread safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace trainctl::frameworks {

// Rotary embeddings of queries and keys.
enum class RotaryKernel : uint8_t {
  kNone,     // other positions: learned, ALiBi
  kFused,    // one kernel
  kComplex,  // to fp32, a product of complex numbers, back: three kernels that no compiler joins
};

// Whose kernels norms are.
enum class NormKernel : uint8_t {
  kLibrary,   // a vendor's, tuned for the width (Transformer Engine, Apex)
  kPlain,     // PyTorch's own, Triton's, or operator by operator
  kCompiled,  // torch.compile
};

enum class AttentionKernel : uint8_t {
  kScores,  // the scores are written to memory: batch matrix products and a fused softmax
  kFlash1,  // the first FlashAttention, and its Triton version
  kFlash2,  // FlashAttention-2
  kVendor,  // the vendor's fused kernel for the newest devices (cuDNN, FlashAttention-3)
};

// What a reported memory figure counts.
enum class MemoryMetric : uint8_t {
  kAllocated,  // tensors: torch.cuda.max_memory_allocated
  kReserved,   // what the caching allocator holds: max_memory_reserved
  kDevice,     // what the driver shows: reserved, the CUDA context and communication buffers
  kFirstStep,  // tensors, up to the end of the first step alone
};

// Whether a figure counts tensors, not what an allocator holds.
inline bool CountsTensors(MemoryMetric metric) {
  return metric == MemoryMetric::kAllocated || metric == MemoryMetric::kFirstStep;
}

struct FrameworkProfile {
  const char* name = "";
  const char* label = "";
  // Where the switches below stand in the framework.
  const char* source = "";

  // Bytes per parameter where nothing is sharded.
  double weight_bytes = 2;
  double gradient_bytes = 4;
  double bf16_gradient_bytes = 0;  // where bf16 has another optimizer; 0: as above
  double optimizer_bytes = 12;     // master copy and two moments, fp32; what else is cut like them

  AttentionKernel attention = AttentionKernel::kFlash2;
  bool sequence_parallel = false;       // with tensor parallelism: norms and residuals cut too
  bool fp8_saves_inputs = false;        // a linear layer keeps its input as fp8
  bool weight_gradient_buffer = false;  // a bf16 buffer for each shape of weight
  bool selects_operators = false;       // selective recompute works by operator, not the scores alone
  bool launches_operators = true;       // one by one from the host; else they are compiled, or graphs
  bool stops_recompute_early = false;   // full recompute ends when all that the backward needs is there
  bool overlap_data_parallel = true;    // gradient reductions run beside the backward
  bool overlap_tensor_parallel = false;
  // ZeRO-1 and 2: gradients are all-reduced whole rather than scattered, each rank owns whole tensors and
  // broadcasts them after the update.
  bool owners_broadcast = false;
  bool gathers_by_block = false;  // ZeRO-2 too gathers block by block beside the forward
  // ZeRO-2 and 3 under a pipeline: gradients are added up whole over the micro-batches and scattered after
  // the last one. Else, and without a pipeline everywhere, each micro-batch's are scattered (Workload).
  bool whole_gradients_in_pipeline = false;
  bool copies_gathered_blocks = false;  // a gathered block is copied into its parameters (FSDP2)
  // Read and written of a gradient that is brought into a bucket, divided there, and brought back.
  double bucket_copy_bytes = 0;
  bool flat_gradients = false;  // of a block: joined into one, cast to what is reduced, divided in place
  double overlap_bucket_elements = 0;   // of gradients that are reduced beside the backward; 0: Megatron's
  double exchanged_gradient_bytes = 0;  // bytes per gradient on the wire; 0: gradient_bytes
  double bucket_elements = 0;           // of the buffers that gradients and parameters are exchanged through
  double logit_bytes = 8;               // bytes per logit at the peak of the loss
  // Bytes that kernels read and write, of an element of what they work on.
  double logit_moved_bytes = 12;  // loss, forward and backward together
  double logit_row_bytes = 12;    // of these, by kernels that go over a row of the vocabulary twice
  NormKernel norm = NormKernel::kLibrary;
  double norm_forward_bytes = 4, norm_backward_bytes = 10;
  double quantize_bytes = 0;         // an operand brought to low precision, in both layouts
  double quantize_weight_bytes = 0;  // a weight brought there; 0: as an operand
  bool quantizes_weights = false;    // for every micro-batch, not once a step
  // The optimizer where it is not one kernel for all tensors but some for each: bytes that they read and
  // write of a parameter, and how many the host launches for each tensor.
  double update_moved_bytes = 0;
  double update_kernels = 0;
  RotaryKernel rotary = RotaryKernel::kFused;
  bool fused_residual = true;    // bias, dropout and the residual's addition are one kernel
  bool fused_activation = true;  // the gate's activation and product are one kernel
  // Products that share an input and are apart (queries, keys and values; gate and up): the gradients that
  // each makes of it are added up, so often in a layer.
  double joined_gradients = 0;
  // Rotary embeddings with stretched positions: a kernel for each step.
  bool stretched_rotary_apart = false;
  // What experts do beyond products and activation is kernels of its own: clamps, the bias of what they give,
  // and in low precision copies to and from so many rows of each expert as its scales need.
  bool expert_extras_apart = false;
  // Kernels of a layer with experts, forward and backward, that are not operators of its table: of routing,
  // of counts and indices, of sums of partial results.
  double expert_layer_kernels = 0;
  // The host waits until it knows how many tokens each expert gets before it launches what comes next.
  bool waits_for_counts = false;
  double largest_bytes = 0;  // read to find the largest value, where one scale serves a whole operand
  bool accumulates_in_product = false;  // gradients of weights are added to fp32 ones by the product itself
  // Moved per weight by kernels that add every micro-batch's gradient to fp32 ones, where bf16 has another
  // optimizer; 0: autograd adds it in place to those before it, where the product does not.
  double bf16_added_gradient_bytes = 0;
  // Moved per score where the product adds a bias of the positions to it, unless these are learned.
  double score_bias_bytes = 0;
  double expert_streams = 0;       // products of experts run side by side, each a launch; 0: all in one
  bool blocking_launches = false;  // the host waits for every kernel
  int64_t vocab_multiple = 1;      // times tp: the vocabulary is padded to it
  bool embedding_counts_as_layer = false;  // when layers are cut into stages
  // Memory: what is there beside states and activations.
  bool half_shards = false;  // fully sharded, a rank keeps its part in half precision beside the fp32 one
  double step_bytes = 0;     // per updated parameter while the optimizer runs, gone afterwards
  // The same by the blocks that it takes one after the other, too large to be cut from freed activations; 0:
  // they are cut from those.
  double flat_step_bytes = 0;
  double reduced_copy_elements = 0;    // of gradients that are copied to one flat buffer to be reduced
  double bf16_reduced_copy_bytes = 0;  // with an optimizer for bf16: the same of all gradients, bytes of each
  bool expandable_segments = false;    // asked of the allocator; AMD's devices do not have them
  bool gathers_in_own_pool = false;    // of blocks that no other stream may use, and copied out of them
  bool gradient_twice = false;         // a weight's gradient is formed beside the one that it is added to
  bool embedding_norm = false;         // a norm follows the embedding: its input is kept
  bool fills_stages = false;           // an uneven cut gives each stage the most, the last one the rest
  bool selects_modules = false;        // selective recompute names modules (RecomputeModule)
  bool gradients_stay = false;  // their buffers are there from the start; else from the first backward on
  double kept_logit_bytes = 0;  // of logit_bytes, those that a loss in chunks keeps for all tokens
  bool reports_decimal_units = false;               // its "GB" are 1e9 bytes
  double context_bytes = 0.5 * 1024 * 1024 * 1024;  // CUDA context with kernels loaded when first used
  double workspace_bytes = 0;                       // of cuBLAS, outside the caching allocator
  double nccl_channels = 16;                        // inside a machine
  bool nccl_connects_all = false;                   // trees too are connected at once
  double tensor_groups = 1;                         // communicators over the tensor-parallel ranks
  double data_groups = 1;                           // over the data-parallel ranks
  double world_groups = 1;                          // over all ranks, or one replica of the model
  MemoryMetric metric = MemoryMetric::kReserved;
  // What a missing cell means; every use is told in the row's reason.
  const char* default_precision = "bf16";
  const char* default_recompute = "none";
  bool operator==(const FrameworkProfile&) const = default;
};

absl::Span<const FrameworkProfile> Frameworks();
const FrameworkProfile* FindFramework(absl::string_view name);  // null: unknown

}  // namespace trainctl::frameworks
