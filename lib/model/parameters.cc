#include "model/parameters.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "model/families.h"
#include "model/folder_form.h"
#include "model/parameter_names.h"

namespace trainctl::model {
namespace {

enum class Role : uint8_t {
  kMatrix,    // multiplies every token
  kRouter,    // also multiplies every token; present on every rank
  kExpert,    // one matrix per routed expert
  kNorm,      // a scale, and a shift if the norm has one
  kHeadNorm,  // the same for heads; each tensor-parallel rank reads it for its own heads
  kVector
};

bool IsNorm(Role role) { return role == Role::kNorm || role == Role::kHeadNorm; }

// Megatron's cuts (Shoeybi et al. 2019, arXiv 1909.08053). They cut widening matrices by rows, narrowing
// matrices by columns, attention by whole heads, and the vocabulary by tokens.
enum class Cut : uint8_t { kNone, kRows, kColumns };

// The size of a module in one model.
struct Module {
  int64_t out = 0;   // rows of a matrix or elements of a vector; 0 if the model has no such module
  int64_t in = 0;    // columns of a matrix, which is [out, in]
  int64_t unit = 1;  // indices of the cut dimension that stay together
  bool bias = false;
};

struct Slot {
  const char* ParameterNames::*name;  // null if no family that can be trained has this module
  Role role;
  Cut cut;
  Module (*module)(const Architecture& spec, const Layer& layer);
  bool is_fused_with_next = false;  // whether the weights are adjacent, followed by the biases
};

constexpr Slot kEmbeddingSlots[] = {
    {&ParameterNames::embedding, Role::kMatrix, Cut::kRows,
     [](const Architecture& spec, const Layer&) {
       return Module{spec.vocab, spec.hidden};
     }},
    {&ParameterNames::positions, Role::kMatrix, Cut::kNone,
     [](const Architecture& spec, const Layer&) {
       return Module{spec.learned_positions, spec.hidden};
     }},
    {nullptr, Role::kNorm, Cut::kNone,
     [](const Architecture& spec, const Layer&) { return Module{spec.embedding_norm ? spec.hidden : 0}; }},
};

Module QueryModule(const Architecture& spec, const Layer& layer) {
  const Attention& a = layer.attention;
  if (!a.latent.has_value()) return {a.heads * a.head_dim, spec.hidden, a.head_dim, a.qkv_bias};
  const int64_t in = a.latent->query_rank > 0 ? a.latent->query_rank : spec.hidden;
  const int64_t head_dim = a.latent->nope_dim + a.latent->rope_dim;
  return {a.heads * head_dim, in, head_dim};
}

// The module of keys or of values. Latent attention has other modules instead.
Module KeyValueModule(const Architecture& spec, const Layer& layer) {
  const Attention& a = layer.attention;
  if (a.latent.has_value()) return {};
  return {a.kv_heads * a.head_dim, spec.hidden, a.head_dim, a.qkv_bias};
}

LatentAttention LatentOf(const Layer& layer) { return layer.attention.latent.value_or(LatentAttention{}); }

// The norm of queries or of keys that each head has for itself.
Module HeadNormModule(const Attention& a) {
  const bool of_heads = a.qk_norm == QkNorm::kHead || a.qk_norm == QkNorm::kHeadAfterRope;
  return {of_heads ? a.head_dim : 0};
}

// The norm of queries or of keys over all of their `heads`.
Module WholeNormModule(const Attention& a, int64_t heads) {
  return {a.qk_norm == QkNorm::kWhole ? heads * a.head_dim : 0, 0, a.head_dim};
}

// The modules of an MLP's products into and out of its inner width `ffn`.
Module Widening(const Architecture& spec, int64_t ffn, bool bias) { return {ffn, spec.hidden, 1, bias}; }
Module Narrowing(const Architecture& spec, int64_t ffn, bool bias) {
  return ffn > 0 ? Module{spec.hidden, ffn, 1, bias} : Module{};
}
int64_t MlpWidth(const Layer& layer) { return layer.experts.has_value() ? 0 : layer.mlp.ffn; }
int64_t GateWidth(const Layer& layer, int64_t ffn) { return layer.mlp.gated ? ffn : 0; }
Experts ExpertsIn(const Layer& layer) { return layer.experts.value_or(Experts{}); }

// Slots in the order of the parameters in a block's flat buffer.
constexpr Slot kLayerSlots[] = {
    {&ParameterNames::attention_norm, Role::kNorm, Cut::kNone,
     [](const Architecture& spec, const Layer& layer) {
       return Module{HasNormsBefore(layer.norms) ? spec.hidden : 0};
     }},
    {nullptr, Role::kMatrix, Cut::kRows,  // latent queries
     [](const Architecture& spec, const Layer& layer) {
       return Module{LatentOf(layer).query_rank, spec.hidden};
     }},
    {nullptr, Role::kNorm, Cut::kNone,
     [](const Architecture&, const Layer& layer) { return Module{LatentOf(layer).query_rank}; }},
    {&ParameterNames::query, Role::kMatrix, Cut::kRows, QueryModule, /*is_fused_with_next=*/true},
    {&ParameterNames::key, Role::kMatrix, Cut::kRows, KeyValueModule, /*is_fused_with_next=*/true},
    {&ParameterNames::value, Role::kMatrix, Cut::kRows, KeyValueModule},
    {nullptr, Role::kMatrix, Cut::kRows,  // latent keys and values
     [](const Architecture& spec, const Layer& layer) {
       const LatentAttention l = LatentOf(layer);
       return Module{l.key_value_rank + l.rope_dim, spec.hidden};
     }},
    {nullptr, Role::kNorm, Cut::kNone,
     [](const Architecture&, const Layer& layer) { return Module{LatentOf(layer).key_value_rank}; }},
    {nullptr, Role::kMatrix, Cut::kRows,
     [](const Architecture&, const Layer& layer) {
       const LatentAttention l = LatentOf(layer);
       return Module{layer.attention.heads * (l.nope_dim + l.value_dim), l.key_value_rank};
     }},
    {&ParameterNames::query_norm, Role::kHeadNorm, Cut::kNone,
     [](const Architecture&, const Layer& layer) { return HeadNormModule(layer.attention); }},
    {&ParameterNames::key_norm, Role::kHeadNorm, Cut::kNone,
     [](const Architecture&, const Layer& layer) { return HeadNormModule(layer.attention); }},
    {&ParameterNames::query_norm, Role::kNorm, Cut::kRows,
     [](const Architecture&, const Layer& layer) {
       return WholeNormModule(layer.attention, layer.attention.heads);
     }},
    {&ParameterNames::key_norm, Role::kNorm, Cut::kRows,
     [](const Architecture&, const Layer& layer) {
       return WholeNormModule(layer.attention, layer.attention.kv_heads);
     }},
    {nullptr, Role::kVector, Cut::kRows,  // sinks
     [](const Architecture&, const Layer& layer) {
       return Module{layer.attention.sinks ? layer.attention.heads : 0};
     }},
    {&ParameterNames::attention_output, Role::kMatrix, Cut::kColumns,
     [](const Architecture& spec, const Layer& layer) {
       const Attention& a = layer.attention;
       const int64_t head_dim = a.latent.has_value() ? a.latent->value_dim : a.head_dim;
       return Module{spec.hidden, a.heads * head_dim, head_dim, a.out_bias};
     }},
    {&ParameterNames::after_attention_norm, Role::kNorm, Cut::kNone,
     [](const Architecture& spec, const Layer& layer) {
       return Module{HasNormsAfter(layer.norms) ? spec.hidden : 0};
     }},
    {&ParameterNames::mlp_norm, Role::kNorm, Cut::kNone,
     [](const Architecture& spec, const Layer& layer) {
       return Module{HasNormBeforeMlp(layer.norms) ? spec.hidden : 0};
     }},
    {&ParameterNames::gate, Role::kMatrix, Cut::kRows,
     [](const Architecture& spec, const Layer& layer) {
       return Widening(spec, GateWidth(layer, MlpWidth(layer)), layer.mlp.bias);
     },
     /*is_fused_with_next=*/true},
    {&ParameterNames::up, Role::kMatrix, Cut::kRows,
     [](const Architecture& spec, const Layer& layer) {
       return Widening(spec, MlpWidth(layer), layer.mlp.bias);
     }},
    {&ParameterNames::down, Role::kMatrix, Cut::kColumns,
     [](const Architecture& spec, const Layer& layer) {
       return Narrowing(spec, MlpWidth(layer), layer.mlp.bias);
     }},
    {nullptr, Role::kRouter, Cut::kNone,
     [](const Architecture& spec, const Layer& layer) {
       const Experts e = ExpertsIn(layer);
       return Module{e.num_experts, spec.hidden, 1, e.bias};
     }},
    {nullptr, Role::kExpert, Cut::kRows,  // gates of routed experts
     [](const Architecture& spec, const Layer& layer) {
       const Experts e = ExpertsIn(layer);
       return Widening(spec, GateWidth(layer, e.ffn), e.bias);
     }},
    {nullptr, Role::kExpert, Cut::kRows,
     [](const Architecture& spec, const Layer& layer) {
       const Experts e = ExpertsIn(layer);
       return Widening(spec, e.ffn, e.bias);
     }},
    {nullptr, Role::kExpert, Cut::kColumns,
     [](const Architecture& spec, const Layer& layer) {
       const Experts e = ExpertsIn(layer);
       return Narrowing(spec, e.ffn, e.bias);
     }},
    {nullptr, Role::kMatrix, Cut::kRows,  // the gate of the shared experts
     [](const Architecture& spec, const Layer& layer) {
       return Widening(spec, GateWidth(layer, ExpertsIn(layer).shared_ffn), false);
     }},
    {nullptr, Role::kMatrix, Cut::kRows,
     [](const Architecture& spec, const Layer& layer) {
       return Widening(spec, ExpertsIn(layer).shared_ffn, false);
     }},
    {nullptr, Role::kMatrix, Cut::kColumns,
     [](const Architecture& spec, const Layer& layer) {
       return Narrowing(spec, ExpertsIn(layer).shared_ffn, false);
     }},
    {nullptr, Role::kVector, Cut::kNone,  // gate of the shared experts' output
     [](const Architecture& spec, const Layer& layer) {
       return Module{ExpertsIn(layer).gated_shared ? spec.hidden : 0};
     }},
    {&ParameterNames::after_mlp_norm, Role::kNorm, Cut::kNone,
     [](const Architecture& spec, const Layer& layer) {
       return Module{HasNormsAfter(layer.norms) ? spec.hidden : 0};
     }},
};

constexpr Slot kHeadSlots[] = {
    {&ParameterNames::final_norm, Role::kNorm, Cut::kNone,
     [](const Architecture& spec, const Layer&) { return Module{spec.hidden}; }},
    {&ParameterNames::head, Role::kMatrix, Cut::kRows,
     [](const Architecture& spec, const Layer&) {
       return spec.tie_embeddings ? Module{} : Module{spec.vocab, spec.hidden, 1, spec.head_bias};
     }},
    {nullptr, Role::kVector, Cut::kRows,  // bias of a tied head
     [](const Architecture& spec, const Layer&) {
       return Module{spec.head_bias && spec.tie_embeddings ? spec.vocab : 0};
     }},
};

// Number of elements in one module.
struct Count {
  int64_t weights = 0;
  int64_t biases = 0;
  int64_t total() const { return weights + biases; }
};

Count CountOf(const Slot& slot, const Architecture& spec, const Layer& layer) {
  const Module module = slot.module(spec, layer);
  switch (slot.role) {
    case Role::kVector:
      return {module.out, 0};
    case Role::kNorm:
    case Role::kHeadNorm:
      return {module.out, spec.norm.has_bias() ? module.out : 0};
    case Role::kMatrix:
    case Role::kRouter:
      return {module.out * module.in, module.bias ? module.out : 0};
    case Role::kExpert: {
      const int64_t count = ExpertsIn(layer).num_experts;
      return {count * module.out * module.in, module.bias ? count * module.out : 0};
    }
  }
  return {};
}

int64_t ElementsOf(absl::Span<const Slot> slots, const Architecture& spec) {
  int64_t elements = 0;
  for (const Slot& slot : slots) elements += CountOf(slot, spec, spec.kinds[0]).total();
  return elements;
}

// Returns how many of the `routed` elements of a layer's routed experts one token uses.
int64_t Active(const Layer& layer, int64_t routed) {
  return layer.experts.has_value() ? routed / layer.experts->num_experts * layer.experts->top_k : 0;
}

// Appends parameters block by block in the order of the flat buffers.
class InventoryBuilder {
 public:
  explicit InventoryBuilder(const Architecture& spec)
      : spec_(spec), names_(*FindParameterNames(spec.family)) {}

  std::vector<Parameter> Build() && {
    const int head = HeadBlock(spec_);
    AddBlock(kEmbeddingSlots, spec_.kinds[0], EmbeddingBlock(), "");
    if (spec_.tie_embeddings) {
      parameters_.front().used_by.push_back(head);
      parameters_.front().tied_head = absl::StrCat(names_.head, ".weight");
    }
    for (int64_t layer = 0; layer < NumLayers(spec_); ++layer) {
      AddBlock(kLayerSlots, LayerAt(spec_, layer), static_cast<int>(layer) + 1,
               absl::StrCat(names_.layers, layer, "."));
    }
    AddBlock(kHeadSlots, spec_.kinds[0], head, "");
    return std::move(parameters_);
  }

 private:
  void AddBlock(absl::Span<const Slot> slots, const Layer& layer, int block, const std::string& prefix) {
    for (size_t begin = 0; begin < slots.size();) {
      size_t end = begin + 1;
      while (slots[end - 1].is_fused_with_next) ++end;
      const absl::Span<const Slot> fused = slots.subspan(begin, end - begin);
      for (const Slot& slot : fused) AddWeight(slot, slot.module(spec_, layer), block, prefix);
      for (const Slot& slot : fused) AddBias(slot, slot.module(spec_, layer), block, prefix);
      begin = end;
    }
  }

  void AddWeight(const Slot& slot, const Module& module, int block, const std::string& prefix) {
    if (module.out == 0) return;
    std::vector<int64_t> shape = {module.out};
    const bool is_norm = IsNorm(slot.role);
    if (!is_norm && slot.role != Role::kVector) shape.push_back(module.in);
    const Init gain = spec_.norm.gain == kernels::Gain::kOnePlusWeight ? Init::kZeros : Init::kOnes;
    const Init init = is_norm ? gain : Init::kNormal;
    const int tensor_dim = slot.cut == Cut::kNone ? -1 : slot.cut == Cut::kRows ? 0 : 1;
    Add(slot, prefix, ".weight", std::move(shape), block, init, tensor_dim, module.unit);
  }

  void AddBias(const Slot& slot, const Module& module, int block, const std::string& prefix) {
    const bool is_shift = IsNorm(slot.role) && spec_.norm.has_bias();
    if (module.out == 0 || (!module.bias && !is_shift)) return;
    const bool is_cut = slot.cut == Cut::kRows;
    Add(slot, prefix, ".bias", {module.out}, block, Init::kZeros, is_cut ? 0 : -1, is_cut ? module.unit : 1);
  }

  void Add(const Slot& slot, const std::string& prefix, const char* suffix, std::vector<int64_t> shape,
           int block, Init init, int tensor_dim, int64_t tensor_unit) {
    TRAINCTL_CHECK(slot.name != nullptr);
    Parameter& parameter = parameters_.emplace_back();
    parameter.name = absl::StrCat(prefix, names_.*slot.name, suffix);
    parameter.numel = 1;
    for (int64_t extent : shape) parameter.numel *= extent;
    parameter.shape = std::move(shape);
    parameter.block = block;
    parameter.used_by = {block};
    parameter.init = init;
    parameter.init_std = init == Init::kNormal ? spec_.init_std : 0.0;
    parameter.tensor_dim = tensor_dim;
    parameter.tensor_unit = tensor_unit;
    parameter.is_read_in_parts = slot.role == Role::kHeadNorm;
  }

  const Architecture& spec_;
  const ParameterNames& names_;
  std::vector<Parameter> parameters_;
};

}  // namespace

LayerParameters ParametersOf(const Architecture& spec, const Layer& layer) {
  LayerParameters p;
  for (const Slot& slot : kLayerSlots) {
    const Count count = CountOf(slot, spec, layer);
    switch (slot.role) {
      case Role::kMatrix:
        p.matrices += count.weights;
        p.vectors += count.biases;
        break;
      case Role::kRouter:
        p.router += count.total();
        break;
      case Role::kExpert:
        p.routed_experts += count.total();
        break;
      case Role::kNorm:
      case Role::kHeadNorm:
      case Role::kVector:
        p.vectors += count.total();
        break;
    }
  }
  return p;
}

int64_t EmbeddingParameters(const Architecture& spec) { return ElementsOf(kEmbeddingSlots, spec); }

int64_t HeadParameters(const Architecture& spec) { return ElementsOf(kHeadSlots, spec); }

int64_t NumParameters(const Architecture& spec) {
  int64_t total = EmbeddingParameters(spec) + HeadParameters(spec);
  for (int64_t layer = 0; layer < NumLayers(spec); ++layer) total += ParametersOfLayer(spec, layer).total();
  return total;
}

int64_t NumActiveParameters(const Architecture& spec) {
  int64_t total = EmbeddingParameters(spec) + HeadParameters(spec);
  for (int64_t layer = 0; layer < NumLayers(spec); ++layer) {
    const LayerParameters p = ParametersOfLayer(spec, layer);
    total += p.total() - p.routed_experts + Active(LayerAt(spec, layer), p.routed_experts);
  }
  return total;
}

double FlopsPerToken(const Architecture& spec, int64_t seq_len) {
  int64_t weights = spec.hidden * spec.vocab;  // starts with the head, tied or not
  int64_t scored = 0;                          // elements of keys and values of all layers and heads
  for (int64_t i = 0; i < NumLayers(spec); ++i) {
    const Layer& layer = LayerAt(spec, i);
    for (const Slot& slot : kLayerSlots) {
      const int64_t count = CountOf(slot, spec, layer).weights;
      if (slot.role == Role::kMatrix || slot.role == Role::kRouter) weights += count;
      if (slot.role == Role::kExpert) weights += Active(layer, count);
    }
    const Attention& a = layer.attention;
    scored += a.heads * (a.latent.has_value() ? a.latent->nope_dim + a.latent->rope_dim + a.latent->value_dim
                                              : 2 * a.head_dim);
  }
  // Each weight takes 2 FLOPs in the forward and 4 in the backward. The scores and their product with the
  // values take 2 s (key + value) in the forward and three times that with the backward, halved by the causal
  // mask.
  return 6 * static_cast<double>(weights) + 3 * (static_cast<double>(scored) * static_cast<double>(seq_len));
}

TensorShare ShareOf(const Parameter& parameter, int64_t index, int64_t ranks) {
  const int64_t extent = parameter.shape[static_cast<size_t>(parameter.tensor_dim)];
  const int64_t unit = parameter.tensor_unit;
  TRAINCTL_CHECK_MSG(unit >= 1 && extent % unit == 0, parameter.name, ": dimension ", parameter.tensor_dim,
                     " of ", extent, " is not whole units of ", unit);
  const int64_t units = extent / unit;
  const int64_t copies = units < ranks && ranks % units == 0 ? ranks / units : 1;
  const int64_t part = index / copies, parts = ranks / copies;
  const int64_t each = units / parts, one_more = units % parts;
  return {(part * each + std::min(part, one_more)) * unit, (each + (part < one_more ? 1 : 0)) * unit, copies};
}

std::vector<Parameter> Inventory(const Architecture& spec) {
  TRAINCTL_CHECK(WhyNotTrainable(spec).empty());
  std::vector<Parameter> parameters = InventoryBuilder(spec).Build();
  const Family& family = *FindFamily(spec.family);
  SetFolderPlaces(family.folder_form, *family.names, absl::MakeSpan(parameters));
  return parameters;
}

}  // namespace trainctl::model
