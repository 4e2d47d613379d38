#include "model/parameter_names.h"

namespace trainctl::model {
namespace {

constexpr ParameterNames kNames[] = {
    {.family = "llama",
     .embedding = "model.embed_tokens",
     .layers = "model.layers.",
     .attention_norm = "input_layernorm",
     .query = "self_attn.q_proj",
     .key = "self_attn.k_proj",
     .value = "self_attn.v_proj",
     .attention_output = "self_attn.o_proj",
     .mlp_norm = "post_attention_layernorm",
     .gate = "mlp.gate_proj",
     .up = "mlp.up_proj",
     .down = "mlp.down_proj",
     .final_norm = "model.norm",
     .head = "lm_head"},
};

}  // namespace

const ParameterNames* FindParameterNames(absl::string_view family) {
  for (const ParameterNames& names : kNames) {
    if (family == names.family) return &names;
  }
  return nullptr;
}

std::vector<std::string> NamedFamilies() {
  std::vector<std::string> families;
  for (const ParameterNames& names : kNames) families.emplace_back(names.family);
  return families;
}

}  // namespace trainctl::model
