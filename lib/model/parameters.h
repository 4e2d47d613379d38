// Parameters of a model. Counts the parameters of every model, and lists those of a trainable model with
// their Hugging Face names and shapes. Both come from the same table. Allocates no tensors. Pure;
// thread-safe.
//
//   for (const model::Parameter& parameter : model::Inventory(spec)) Print(parameter.name, parameter.shape);
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/architecture.h"
#include "model/folder_form.h"

namespace trainctl::model {

enum class Init : uint8_t { kNormal, kOnes, kZeros };

// One logical tensor with its Hugging Face name.
struct Parameter {
  std::string name;            // for example, "model.layers.0.self_attn.q_proj.weight"
  std::vector<int64_t> shape;  // row-major; the weight of a linear layer is [out, in]
  int block = 0;               // block whose bucket contains the parameter
  std::vector<int> used_by;    // blocks that read the parameter; two for tied embeddings
  Init init = Init::kNormal;
  double init_std = 0.02;  // standard deviation for kNormal
  int64_t numel = 0;
  // Dimension that tensor parallelism splits, in multiples of tensor_unit (a head, for example). -1 if every
  // rank has the whole parameter.
  int tensor_dim = -1;
  int64_t tensor_unit = 1;  // divides the dimension's extent
  // Whether tensor-parallel ranks apply the whole parameter to different parts of the activations (norms of
  // heads), so that each computes only a part of the gradient.
  bool is_read_in_parts = false;
  // Place in a Hugging Face folder. Not set if the parameter is a tensor of the folder.
  std::optional<FolderPlace> folder;
  // Name of the head's tensor in such a folder if this is a tied embedding; otherwise empty.
  std::string tied_head;
};

// The part of a parameter that one of several tensor-parallel ranks has. The units are assigned to the ranks
// in order. If the number of units is not a multiple of the number of ranks, the first ranks have one unit
// more. If there are fewer units than ranks and the number of ranks is a multiple of the number of units,
// adjacent ranks have the same unit (for example, one key head for several query heads).
struct TensorShare {
  int64_t begin = 0;   // first index along tensor_dim
  int64_t count = 0;   // number of indices
  int64_t copies = 1;  // number of ranks that have this part
};
// Returns the share of the rank `index` of `ranks`. The parameter must have a tensor_dim.
TensorShare ShareOf(const Parameter& parameter, int64_t index, int64_t ranks);

// Returns all parameters of a trainable model, by block and, within a block, in the order of its flat buffer.
// Fused products (q|k|v and gate|up) rely on this order, because it makes their rows adjacent. With tied
// embeddings, there is no "lm_head.weight"; the embedding is listed only in block 0, and the head uses it
// too.
std::vector<Parameter> Inventory(const Architecture& spec);

// Numbers of elements in the parameters of a layer, as in transformers. The counts below work for every
// model. They exclude the layers for multi-token prediction, which transformers does not load.
struct LayerParameters {
  int64_t matrices = 0;        // weights that tensor parallelism splits
  int64_t vectors = 0;         // norms, biases and other vectors
  int64_t routed_experts = 0;  // weights and biases that expert parallelism splits
  int64_t router = 0;
  int64_t total() const { return matrices + vectors + routed_experts + router; }
};
LayerParameters ParametersOf(const Architecture& spec, const Layer& layer);
inline LayerParameters ParametersOfLayer(const Architecture& spec, int64_t layer) {
  return ParametersOf(spec, LayerAt(spec, layer));
}
// Includes learned positions and the embedding's norm.
int64_t EmbeddingParameters(const Architecture& spec);
// Includes the final norm, the output matrix unless it is tied, and its bias.
int64_t HeadParameters(const Architecture& spec);
int64_t NumParameters(const Architecture& spec);
// Returns the number of parameters that one token uses: of the routed experts, it counts only top_k per
// layer.
int64_t NumActiveParameters(const Architecture& spec);

// Returns the FLOPs per token of one training step: the matrix products of forward and backward, with half of
// the attention scores because of the causal mask. The formula is 6 N' + 6 L h s. N' is the number of matrix
// elements that a token is multiplied by: it excludes the input embedding and counts top_k of the routed
// experts. L is the number of layers, s is `seq_len`, and h is heads * head_dim. With latent attention,
// head_dim is the mean of the sizes of a key and a value. Sliding windows and recomputation are not taken
// into account. Appendix B of the PaLM paper instead counts all scores (12 L h s) and every parameter; see
// plan/utilization.h.
double FlopsPerToken(const Architecture& spec, int64_t seq_len);

}  // namespace trainctl::model
