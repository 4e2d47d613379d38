// The fields of a recipe that describe the model.

#include <algorithm>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "model/families.h"
#include "recipe/schema.h"
#include "recipe/schema_builder.h"
#include "recipe/values.h"

namespace trainctl::recipe {

void AddModelFields(Builder& b) {
  b.Add(
       "model.preset", "Name of a built-in model; docs/reference/models.md and `trainctl models` list them.",
       [](Recipe & r, size_t) -> auto& { return r.model.preset; })
      .OmitEmpty()
      .Default("one of preset, from and family is required")
      .Group("model", "preset");
  b.Add(
       "model.from", "Folder of a Hugging Face model, whose config.json defines the architecture.",
       [](Recipe & r, size_t) -> auto& { return r.model.from; })
      .Path()
      .OmitEmpty()
      .Default("one of preset, from and family is required")
      .Group("model", "from");
  b.AddInput("model.family", "Architecture family of a model defined by the dimensions below.", Kind::kString)
      .Accessors([](const Recipe& r, size_t) -> std::optional<Value> { return Value(r.model.spec.family); },
                 [](Recipe& r, size_t, const Value& value) {
                   r.model.spec.family = std::get<std::string>(value);
                   model::ApplyFamily(*model::FindFamily(r.model.spec.family), r.model.spec);
                 })
      .Choices(model::NamedFamilies())
      .Default("one of preset, from and family is required")
      .Group("model", "family");
  const char* inherited = "from the preset or folder";
  const auto dimension = [&](const char* name, const char* doc, auto member) {
    return b.Add(name, doc, member).Range(1, 1e9).Default(inherited);
  };
  const auto computed = [&](const char* name, const char* doc, auto get, auto set) {
    using T = std::decay_t<decltype(get(std::declval<const model::Architecture&>()))>;
    Row row =
        b.AddInput(name, doc, KindOf<T>())
            .Accessors(
                [get](const Recipe& r, size_t) -> std::optional<Value> { return ToValue(get(r.model.spec)); },
                [set](Recipe& r, size_t, const Value& value) { set(r.model.spec, std::get<T>(value)); })
            .Default(inherited);
    if (KindOf<T>() == Kind::kInt) row.Range(1, 1e9);
    return row;
  };
  computed("model.layers", "Number of transformer layers.", model::NumLayers, model::SetNumLayers)
      .AtMost(10000);
  // A field that every layer's attention or MLP has.
  const auto of_each = [&](const char* name, const char* doc, auto of, auto field) {
    return computed(
        name, doc, [of, field](const model::Architecture& spec) { return of(spec).*field; },
        [field](model::Architecture& spec, auto value) { SetEach(spec, field, value); });
  };
  dimension(
      "model.hidden", "Width of the residual stream.",
      [](Recipe & r, size_t) -> auto& { return r.model.spec.hidden; });
  of_each("model.heads", "Number of query heads.", model::AttentionOf, &model::Attention::heads);
  of_each("model.kv_heads", "Number of key and value heads; must divide heads.", model::AttentionOf,
          &model::Attention::kv_heads)
      .Default("from the preset or folder; with family, same as heads");
  of_each("model.head_dim", "Dimension of each head.", model::AttentionOf, &model::Attention::head_dim)
      .Default("from the preset or folder, otherwise hidden / heads");
  of_each("model.ffn", "Inner width of the MLP.", model::MlpOf, &model::Mlp::ffn);
  dimension(
      "model.vocab", "Number of rows in the embedding table.",
      [](Recipe & r, size_t) -> auto& { return r.model.spec.vocab; });
  computed(
      "model.max_position", "Longest sequence the model supports.",
      [](const model::Architecture& spec) { return spec.max_position; }, model::SetMaxPosition)
      .Unit("tokens");
  b.Add(
       "model.tie_embeddings", "Reuse the embedding matrix as the output projection.",
       [](Recipe & r, size_t) -> auto& { return r.model.spec.tie_embeddings; })
      .Default(inherited);
  of_each("model.qkv_bias", "Add biases to the query, key and value projections.", model::AttentionOf,
          &model::Attention::qkv_bias);
  of_each("model.attention_out_bias", "Add a bias to the attention output projection.", model::AttentionOf,
          &model::Attention::out_bias);
  of_each("model.mlp_bias", "Add biases to the MLP.", model::MlpOf, &model::Mlp::bias);
  b.AddInput("model.activation",
             "Activation function of the MLP, under its name in transformers: of the gate or, in families "
             "without a gate, of the inner width.",
             Kind::kString)
      .Choices(model::ActivationNames())
      .Default("from the preset or folder; with family, the family's")
      .Accessors(
          [](const Recipe& r, size_t) -> std::optional<Value> {
            const kernels::Activation activation = MlpOf(r.model.spec).activation;
            const model::Family* const family = model::FindFamily(r.model.spec.family);
            if (family == nullptr || activation == family->activation) return std::nullopt;
            return Value(std::string(model::NamesOf(activation)[0]));
          },
          [](Recipe& r, size_t, const Value& value) {
            SetEach(r.model.spec, &model::Mlp::activation,
                    *model::FindActivation(std::get<std::string>(value)));
          });
  b.Add(
       "model.norm_eps", "Epsilon of the norms (RMSNorm or LayerNorm).",
       [](Recipe & r, size_t) -> auto& { return r.model.spec.norm.eps; })
      .Above(0)
      .AtMost(1)
      .Default(inherited);
  b.Add(
       "model.rope_theta", "Base of the rotary embedding (RoPE) frequencies.",
       [](Recipe & r, size_t) -> auto& { return r.model.spec.rope.theta; })
      .Above(1)
      .AtMost(1e15)
      .Default(inherited);
  b.AddInput("model.sliding_window",
             "Number of tokens that each query attends to, including its own, in the layers that have a "
             "sliding window. Only for families whose layers can have one, such as mistral and gemma3_text.",
             Kind::kInt)
      .Range(1, 1e9)
      .Unit("tokens")
      .Default(inherited)
      .Accessors(
          [](const Recipe& r, size_t) -> std::optional<Value> {
            const int64_t window = model::WindowOf(r.model.spec);
            if (window == 0) return std::nullopt;
            return Value(window);
          },
          [](Recipe& r, size_t, const Value& value) {
            model::ChangeWindow(r.model.spec, std::get<int64_t>(value));
          });
  b.AddInput("model.layer_types",
             "Attention of the layers, a list that is repeated for all layers: `full_attention`, or "
             "`sliding_attention` for a layer with a sliding window, as in transformers; with `_nope` "
             "appended for a layer without rotary positions. Only for families whose layers can differ, such "
             "as gemma3_text and smollm3.",
             Kind::kStringList)
      .Default(inherited)
      .NeverEmpty()
      .Accessors(
          [](const Recipe& r, size_t) -> std::optional<Value> {
            std::vector<std::string> types = model::LayerTypesOf(r.model.spec);
            if (types.empty()) return std::nullopt;
            return Value(std::move(types));
          },
          // ResolveModel reports the errors.
          [](Recipe& r, size_t, const Value& value) {
            model::SetLayerTypes(r.model.spec, std::get<std::vector<std::string>>(value)).IgnoreError();
          });
  // A number that has a default for each family. Stored recipes omit it only if it equals both that default
  // and the default of Architecture, because a stored recipe is read without the family's defaults.
  const auto of_family = [&](const char* name, const char* doc, auto get, auto set) {
    return b.AddInput(name, doc, Kind::kDouble)
        .Default(inherited)
        .Accessors(
            [get](const Recipe& r, size_t) -> std::optional<Value> {
              const model::Architecture& spec = r.model.spec;
              const double value = get(spec);
              const bool is_usual =
                  value == get(model::Architecture()) && value == get(model::BaseOfFamily(spec.family));
              return is_usual ? std::nullopt : std::make_optional(Value(value));
            },
            [set](Recipe& r, size_t, const Value& value) { set(r.model.spec, std::get<double>(value)); });
  };
  const auto of_model = [&](const char* name, const char* doc, double model::Architecture::*field) {
    return of_family(
        name, doc, [field](const model::Architecture& spec) { return spec.*field; },
        [field](model::Architecture& spec, double value) { spec.*field = value; });
  };
  const auto of_attention = [&](const char* name, const char* doc, double model::Attention::*field) {
    return of_family(
        name, doc, [field](const model::Architecture& spec) { return AttentionOf(spec).*field; },
        [field](model::Architecture& spec, double value) { SetEach(spec, field, value); });
  };
  of_model("model.window_rope_theta",
           "Base of the RoPE frequencies in layers with a sliding window (`rope_local_base_freq` in "
           "transformers). Only for gemma3_text.",
           &model::Architecture::window_rope_theta)
      .Above(1)
      .AtMost(1e15);
  of_attention("model.attention_scale",
               "Factor of the attention scores. Only for families that state it, such as granite "
               "(`attention_multiplier`) and gemma2 (1 / sqrt(`query_pre_attn_scalar`)).",
               &model::Attention::scale)
      .Above(0)
      .AtMost(1e6);
  of_attention(
      "model.attention_softcap",
      "Attention scores are capped softly at this value: cap * tanh(score / cap). 0 for no cap. Only "
      "for gemma2 and vaultgemma.",
      &model::Attention::softcap)
      .AtLeast(0)
      .AtMost(1e6);
  of_model("model.logit_softcap",
           "Logits are capped softly at this value: cap * tanh(logit / cap). 0 for no cap. Only for gemma2, "
           "vaultgemma and gemma3_text.",
           &model::Architecture::logit_softcap)
      .AtLeast(0)
      .AtMost(1e6);
  of_model("model.embedding_multiplier", "Factor of the embedding's output. Only for granite.",
           &model::Architecture::embedding_multiplier)
      .Above(0)
      .AtMost(1e6);
  of_model("model.residual_multiplier",
           "Factor of what attention and the MLP add to the residual stream. Only for granite.",
           &model::Architecture::residual_multiplier)
      .Above(0)
      .AtMost(1e6);
  of_model("model.logit_multiplier",
           "Factor of the logits. Only for granite (1 / `logits_scaling`), cohere and cohere2 "
           "(`logit_scale`).",
           &model::Architecture::logit_multiplier)
      .Above(0)
      .AtMost(1e6);
  b.AddInput(
       "model.rope_share",
       "Fraction of each head that RoPE rotates (`partial_rotary_factor` in transformers). Other values "
       "than 1 require a family that has it, such as nemotron and stablelm.",
       Kind::kDouble)
      .Above(0)
      .AtMost(1)
      .Default(inherited)
      .Accessors(
          [](const Recipe& r, size_t) -> std::optional<Value> {
            // As in recipes stored before it existed.
            if (r.model.spec.rope.share == 1 && model::BaseOfFamily(r.model.spec.family).rope.share == 1)
              return std::nullopt;
            return Value(r.model.spec.rope.share);
          },
          [](Recipe& r, size_t, const Value& value) { r.model.spec.rope.share = std::get<double>(value); });
  b.Add(
       "model.init_std", "Standard deviation of the initial weights.",
       [](Recipe & r, size_t) -> auto& { return r.model.spec.init_std; })
      .AtLeast(0)
      .AtMost(10)
      .Default(inherited);
  b.Add(
       "model.weights",
       "Initial weights: `\"random\"`, `\"from\"` (load the weights in the model.from folder, in fp32, bf16 "
       "or fp16), or the path of a checkpoint folder.",
       [](Recipe & r, size_t) -> auto& { return r.model.weights; })
      .Path({"random", "from"});
  b.AddInput("model.rope_scaling", "`\"none\"` disables the RoPE scaling of the preset or folder.",
             Kind::kString)
      .Choices({"none"})
      .Default(inherited)
      .Group("rope_scaling", "none")
      .Accessors(
          [](const Recipe& r, size_t) -> std::optional<Value> {
            if (r.model.spec.rope.scaling.has_value()) return std::nullopt;
            return Value(std::string("none"));
          },
          [](Recipe& r, size_t, const Value&) { r.model.spec.rope.scaling.reset(); });
  // A field of the scalings `kinds`. It is neither shown nor stored for others, or if it is 0.
  using Scaling = model::RopeScalingKind;
  const auto scaling = [&](const char* name, const char* doc, std::vector<Scaling> kinds, auto member) {
    using T = std::remove_reference_t<decltype(member(std::declval<model::RopeScaling&>()))>;
    Row row = b.AddInput(name, doc, KindOf<T>());
    if constexpr (!std::is_same_v<T, bool>) row.Above(0).AtMost(1e9);
    return row.Default(inherited)
        .Group("rope_scaling", "table")
        .Accessors(
            [member, kinds = std::move(kinds)](const Recipe& r, size_t) -> std::optional<Value> {
              if (!r.model.spec.rope.scaling.has_value()) return std::nullopt;
              model::RopeScaling scaling = *r.model.spec.rope.scaling;
              if (std::find(kinds.begin(), kinds.end(), scaling.kind) == kinds.end()) return std::nullopt;
              const Value value = ToValue(member(scaling));
              return value == Value(0.0) ? std::nullopt : std::make_optional(value);
            },
            [member](Recipe& r, size_t, const Value& value) {
              std::optional<model::RopeScaling>& scaling = r.model.spec.rope.scaling;
              if (!scaling.has_value()) scaling.emplace();
              FromValue(value, member(*scaling));
            });
  };
  b.AddInput(
       "model.rope_scaling.type",
       "How RoPE frequencies are scaled: `llama3` and `yarn` divide the low ones by the factor, `linear` "
       "all, and `longrope` each by its own. `dynamic` scales only sequences longer than the model allows "
       "here, and `ntk_alpha` changes the base.",
       Kind::kString)
      .Choices({"dynamic", "linear", "llama3", "longrope", "ntk_alpha", "yarn"})
      .Default("from the preset or folder, otherwise \"llama3\"")
      .Group("rope_scaling", "table")
      .Accessors(
          [](const Recipe& r, size_t) -> std::optional<Value> {
            const std::optional<model::RopeScaling>& scaling = r.model.spec.rope.scaling;
            if (!scaling || scaling->kind == Scaling::kLlama3) return std::nullopt;
            return Value(std::string(model::NameOf(scaling->kind)));
          },
          [](Recipe& r, size_t, const Value& value) {
            std::optional<model::RopeScaling>& scaling = r.model.spec.rope.scaling;
            if (!scaling.has_value()) scaling.emplace();
            scaling->kind = *model::FindRopeScalingKind(std::get<std::string>(value));
          });
  scaling(
      "model.rope_scaling.factor", "RoPE scaling: factor by which the scaled frequencies are divided.",
      {Scaling::kDynamic, Scaling::kLinear, Scaling::kLlama3, Scaling::kYarn},
      [](model::RopeScaling & s) -> auto& { return s.factor; });
  scaling(
      "model.rope_scaling.low_freq_factor", "Llama 3 RoPE scaling: lower end of the blended frequency band.",
      {Scaling::kLlama3}, [](model::RopeScaling & s) -> auto& { return s.low_freq_factor; });
  scaling(
      "model.rope_scaling.high_freq_factor", "Llama 3 RoPE scaling: upper end of the blended frequency band.",
      {Scaling::kLlama3}, [](model::RopeScaling & s) -> auto& { return s.high_freq_factor; });
  scaling(
      "model.rope_scaling.original_max_position",
      "RoPE scaling except `linear` and `ntk_alpha`: context length of the unscaled model. With `longrope`, "
      "longer sequences (data.seq_len) use long_factor. With `dynamic` it must equal model.max_position.",
      {Scaling::kDynamic, Scaling::kLlama3, Scaling::kLongRope, Scaling::kYarn},
      [](model::RopeScaling & s) -> auto& { return s.original_max_position; })
      .Unit("tokens");
  scaling(
      "model.rope_scaling.beta_fast",
      "YaRN: frequencies with more rotations than this in original_max_position tokens are not divided.",
      {Scaling::kYarn}, [](model::RopeScaling & s) -> auto& { return s.beta_fast; })
      .Default("from the folder, otherwise 32");
  scaling(
      "model.rope_scaling.beta_slow",
      "YaRN: frequencies with fewer rotations than this in original_max_position tokens are divided by the "
      "factor.",
      {Scaling::kYarn}, [](model::RopeScaling & s) -> auto& { return s.beta_slow; })
      .Default("from the folder, otherwise 1");
  scaling(
      "model.rope_scaling.truncate",
      "YaRN: round the ends of the frequency band, given by beta_fast and beta_slow, to whole frequencies.",
      {Scaling::kYarn}, [](model::RopeScaling & s) -> auto& { return s.truncate; })
      .Default("from the folder, otherwise true");
  scaling(
      "model.rope_scaling.attention_factor",
      "YaRN and LongRoPE: factor of the rotated elements of queries and keys.",
      {Scaling::kLongRope, Scaling::kYarn},
      [](model::RopeScaling & s) -> auto& { return s.attention_factor; })
      .Default("from the folder; otherwise, with YaRN, 0.1 ln(factor) + 1");
  scaling(
      "model.rope_scaling.short_factor",
      "LongRoPE: divisor of each frequency, for sequences of at most original_max_position tokens.",
      {Scaling::kLongRope}, [](model::RopeScaling & s) -> auto& { return s.short_factor; });
  scaling(
      "model.rope_scaling.long_factor", "LongRoPE: divisor of each frequency, for longer sequences.",
      {Scaling::kLongRope}, [](model::RopeScaling & s) -> auto& { return s.long_factor; });
  scaling(
      "model.rope_scaling.alpha",
      "NTK-aware scaling: the base is multiplied by alpha^(d / (d - 2)) for d rotated elements of a head.",
      {Scaling::kNtkAlpha}, [](model::RopeScaling & s) -> auto& { return s.alpha; });
}

}  // namespace trainctl::recipe
