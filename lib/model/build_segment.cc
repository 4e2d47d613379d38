// The tables of a Llama-like model: which operators a block is made of, and their sizes.

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "model/parameter_names.h"
#include "model/segment.h"

namespace trainctl::model {
namespace {

class SegmentBuilder {
 public:
  SegmentBuilder(const ModelSpec& spec, const std::vector<Parameter>& inventory, int block,
                 const SegmentOptions& options)
      : spec_(spec), names_(*FindParameterNames(spec.family)), inventory_(inventory) {
    segment_.block = block;
    segment_.shape = options.shape;
    segment_.dtype = options.dtype;
    segment_.threads = options.threads;
    segment_.on_device = options.on_device;
  }

  Segment BuildEmbedding() {
    segment_.outputs = {Add({.attributes = EmbeddingAttributes{.vocab = spec_.vocab, .hidden = spec_.hidden},
                             .weights = {Find(absl::StrCat(names_.embedding, ".weight"))}},
                            "hidden")};
    return std::move(segment_);
  }

  Segment BuildLayer() {
    const std::string prefix = absl::StrCat(names_.layers, segment_.block - 1, ".");
    const int input = AddInput();
    const int normed = AddRmsNorm(input, prefix + names_.attention_norm, "attention_input");
    const int attended = AddAttention(normed, prefix);
    const int projected = AddLinear(attended, prefix, {names_.attention_output}, spec_.attention_out_bias,
                                    spec_.heads * spec_.head_dim, spec_.hidden, "attention_output");
    const int middle = AddResidual(input, projected, "middle");
    const int mlp_input = AddRmsNorm(middle, prefix + names_.mlp_norm, "mlp_input");
    const int gate_up = AddLinear(mlp_input, prefix, {names_.gate, names_.up}, spec_.mlp_bias, spec_.hidden,
                                  2 * spec_.ffn, "gate_up");
    const int activated =
        Add({.attributes = SwiGluAttributes{.ffn = spec_.ffn}, .inputs = {gate_up}}, "activated");
    const int down =
        AddLinear(activated, prefix, {names_.down}, spec_.mlp_bias, spec_.ffn, spec_.hidden, "mlp_output");
    segment_.outputs = {AddResidual(middle, down, "output")};
    return std::move(segment_);
  }

  Segment BuildHead() {
    const int normed = AddRmsNorm(AddInput(), names_.final_norm, "head_input");
    const LinearCrossEntropyAttributes attributes{
        .hidden = spec_.hidden,
        .vocab = spec_.vocab,
        .rows_at_once = LogitRowsAtOnce(segment_.shape, spec_.vocab, segment_.dtype, segment_.on_device)};
    Add({.attributes = attributes,
         .inputs = {normed},
         .weights = {Find(absl::StrCat(spec_.tie_embeddings ? names_.embedding : names_.head, ".weight"))}},
        "loss");
    return std::move(segment_);
  }

 private:
  int Find(const std::string& name) const {
    for (size_t i = 0; i < inventory_.size(); ++i) {
      if (inventory_[i].name == name) return static_cast<int>(i);
    }
    TRAINCTL_CHECK_MSG(false, "no parameter named ", name);
    return -1;
  }

  int AddInput() {
    segment_.values.push_back({"input", segment_.dtype, segment_.shape.tokens(), spec_.hidden});
    segment_.inputs.push_back(static_cast<int>(segment_.values.size()) - 1);
    return segment_.inputs.back();
  }

  // Returns its first output; -1 for a loss, which has none.
  int Add(Operator op, const std::string& name) {
    op.kind = static_cast<OpKind>(op.attributes.index());
    EntryOf(op.kind).complete(segment_, op, name);
    segment_.operators.push_back(std::move(op));
    const std::vector<int>& outputs = segment_.operators.back().outputs;
    return outputs.empty() ? -1 : outputs[0];
  }

  int AddRmsNorm(int input, const std::string& weight, const std::string& name) {
    return Add({.attributes = RmsNormAttributes{.hidden = spec_.hidden, .eps = spec_.norm_eps},
                .inputs = {input},
                .weights = {Find(weight + ".weight")}},
               name);
  }

  // One product by the matrices `prefix` + each of `names`, which lie side by side.
  int AddLinear(int input, const std::string& prefix, const std::vector<std::string>& names, bool bias,
                int64_t in, int64_t out, const std::string& name) {
    Operator op{.attributes = LinearAttributes{.in = in, .out = out}, .inputs = {input}};
    for (const std::string& matrix : names) {
      op.weights.push_back(Find(absl::StrCat(prefix, matrix, ".weight")));
      if (bias) op.biases.push_back(Find(absl::StrCat(prefix, matrix, ".bias")));
    }
    return Add(std::move(op), name);
  }

  // Projections, rotary positions and attention, up to the output projection.
  int AddAttention(int input, const std::string& prefix) {
    const int64_t row = (spec_.heads + 2 * spec_.kv_heads) * spec_.head_dim;
    const int qkv = AddLinear(input, prefix, {names_.query, names_.key, names_.value}, spec_.qkv_bias,
                              spec_.hidden, row, "qkv");
    const int rotated = Add({.attributes = RopeAttributes{.rotated_heads = spec_.heads + spec_.kv_heads,
                                                          .head_dim = spec_.head_dim,
                                                          .row = row,
                                                          .angle_table = 0},
                             .inputs = {qkv}},
                            "qkv_rotated");
    return Add({.attributes =
                    AttentionAttributes{
                        .heads = spec_.heads, .kv_heads = spec_.kv_heads, .head_dim = spec_.head_dim},
                .inputs = {rotated}},
               "attended");
  }

  int AddResidual(int stream, int update, const std::string& name) {
    return Add({.attributes = AddAttributes{.hidden = spec_.hidden}, .inputs = {stream, update}}, name);
  }

  const ModelSpec& spec_;
  const ParameterNames& names_;
  const std::vector<Parameter>& inventory_;
  Segment segment_;
};

}  // namespace

Segment BuildSegment(const ModelSpec& spec, const std::vector<Parameter>& inventory, int block,
                     const SegmentOptions& options) {
  SegmentBuilder builder(spec, inventory, block, options);
  if (block == EmbeddingBlock()) return builder.BuildEmbedding();
  if (block == HeadBlock(spec)) return builder.BuildHead();
  return builder.BuildLayer();
}

}  // namespace trainctl::model
