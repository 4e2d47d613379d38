// ModelSpec: a decoder-only transformer as data. A family is a mapping onto these fields, not a
// class. Also the exact parameter inventory and the FLOPs. Does not allocate tensors. Pure; thread
// safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/dtype.h"

namespace trainctl::model {

// RoPE frequency scaling of Llama 3.1 (transformers `rope_type = "llama3"`).
struct RopeScaling {
  double factor = 8.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int64_t original_max_position = 8192;
  bool operator==(const RopeScaling&) const = default;
};

struct ModelSpec {
  std::string family = "llama";
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn = 0;
  int64_t vocab = 0;
  int64_t max_position = 8192;
  bool tie_embeddings = false;
  bool qkv_bias = false;
  bool attention_out_bias = false;
  bool mlp_bias = false;
  double norm_eps = 1e-5;
  double rope_theta = 10000.0;
  std::optional<RopeScaling> rope_scaling;
  double init_std = 0.02;
  bool operator==(const ModelSpec&) const = default;
};

// UsageError naming the field: heads not divisible by kv_heads, odd head_dim, non-positive sizes.
absl::Status Validate(const ModelSpec& spec);

// A block is the unit that is gathered, recomputed and scheduled: block 0 is the embedding, blocks
// 1..layers the transformer layers, block layers+1 the head (final norm, output projection, loss).
constexpr int EmbeddingBlock() { return 0; }
inline int HeadBlock(const ModelSpec& spec) { return static_cast<int>(spec.layers) + 1; }
inline int NumBlocks(const ModelSpec& spec) { return static_cast<int>(spec.layers) + 2; }

enum class Init : uint8_t { kNormal, kOnes, kZeros };

// One logical tensor under its Hugging Face name, in the order in which it lies in its block's flat
// buffer. Fused products (q|k|v, gate|up) rely on that order: their rows are adjacent.
struct Parameter {
  std::string name;            // "model.layers.0.self_attn.q_proj.weight"
  std::vector<int64_t> shape;  // row-major; a linear weight is [out, in]
  int block = 0;               // the block whose bucket holds it
  std::vector<int> used_by;    // blocks that read it; two for tied embeddings
  Init init = Init::kNormal;
  double init_std = 0.02;  // for kNormal
  int64_t numel = 0;
};

// Exact and ordered by block. With tied embeddings the embedding is listed once (block 0) and used
// by the head as well; "lm_head.weight" does not exist then.
std::vector<Parameter> Inventory(const ModelSpec& spec);
int64_t NumParameters(const ModelSpec& spec);

// Floating-point operations of one training step per token, forward plus backward, matrix products
// only, causal attention counted at half: 6 N' + 6 L h_attn s with N' the weights that multiply
// (no input embedding) and h_attn = heads * head_dim. Recompute is not counted. (PaLM's appendix B counts all
// scores, 12 L h_attn s, and every parameter: planner/utilization.h.)
double FlopsPerToken(const ModelSpec& spec, int64_t seq_len);

// Named presets, from "toy-1m" to "llama3.1-405b". PresetNames is sorted by size.
absl::StatusOr<ModelSpec> Preset(absl::string_view name);
std::vector<std::string> PresetNames();

// Hugging Face config.json of the Llama family, both ways. `what` names the file in errors. A
// field that would change the mathematics and is not known is an error, never ignored.
absl::StatusOr<ModelSpec> FromHuggingFaceConfig(absl::string_view json_text, absl::string_view what);
std::string ToHuggingFaceConfig(const ModelSpec& spec, DType dtype);

}  // namespace trainctl::model
