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
    segment_.tensor = options.tensor;
    border_rows_ = options.border_rows();
    forms_again_ = options.forms_again;
    forms_attention_again_ = options.forms_attention_again;
  }

  Segment BuildEmbedding() {
    const TensorShare tokens = Share(names_.embedding);
    const int looked_up =
        Add({.attributes =
                 EmbeddingAttributes{.vocab = tokens.count, .hidden = spec_.hidden, .first = tokens.begin},
             .weights = {Find(absl::StrCat(names_.embedding, ".weight"))}},
            "hidden");
    segment_.outputs = {LeaveProducts(looked_up)};
    return std::move(segment_);
  }

  Segment BuildLayer() {
    const std::string prefix = absl::StrCat(names_.layers, segment_.block - 1, ".");
    const int input = AddInput();
    const int normed = EnterProducts(AddRmsNorm(input, prefix + names_.attention_norm, "attention_input"));
    const int attended = AddAttention(normed, prefix);
    const int projected = AddLastProduct(attended, prefix, names_.attention_output, spec_.attention_out_bias,
                                         EvenShare(prefix + names_.attention_output), "attention_output");
    const int middle = AddResidual(input, projected, "middle");
    segment_.operators.back().is_one_pass_with_next = segment_.on_device;
    const int mlp_input = EnterProducts(AddRmsNorm(middle, prefix + names_.mlp_norm, "mlp_input"));
    const int64_t ffn = EvenShare(prefix + names_.gate);
    const int gate_up = AddLinear(mlp_input, prefix, {names_.gate, names_.up}, spec_.mlp_bias, spec_.hidden,
                                  2 * ffn, "gate_up");
    const int activated =
        Add({.attributes = SwiGluAttributes{.ffn = ffn}, .inputs = {gate_up}, .formed_again = forms_again_},
            "activated");
    const int down = AddLastProduct(activated, prefix, names_.down, spec_.mlp_bias, ffn, "mlp_output");
    segment_.outputs = {AddResidual(middle, down, "output")};
    return std::move(segment_);
  }

  Segment BuildHead() {
    forms_again_ = false;  // nothing of it waits
    const int normed = EnterProducts(AddRmsNorm(AddInput(), names_.final_norm, "head_input"));
    const std::string matrix = spec_.tie_embeddings ? names_.embedding : names_.head;
    const TensorShare tokens = Share(matrix);
    // The first rank has most rows of the matrix, and all ranks have as many of logits.
    const int64_t most =
        ShareOf(inventory_[static_cast<size_t>(Find(matrix + ".weight"))], 0, segment_.tensor.ranks).count;
    const LinearCrossEntropyAttributes attributes{
        .hidden = spec_.hidden,
        .vocab = tokens.count,
        .rows_at_once = LogitRowsAtOnce(segment_.shape, most, segment_.dtype, segment_.on_device),
        .first = tokens.begin};
    Add({.attributes = attributes, .inputs = {normed}, .weights = {Find(matrix + ".weight")}}, "loss");
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

  // Of what is dealt out of a matrix: this rank's indices.
  TensorShare Share(const std::string& matrix) const {
    const Parameter& parameter = inventory_[static_cast<size_t>(Find(matrix + ".weight"))];
    return ShareOf(parameter, segment_.tensor.index, segment_.tensor.ranks);
  }
  // Of matrices that lie side by side: as many on every rank, or one would not end where the next begins.
  int64_t EvenShare(const std::string& matrix) const {
    const Parameter& parameter = inventory_[static_cast<size_t>(Find(matrix + ".weight"))];
    const auto [begin, count, copies] = Share(matrix);
    TRAINCTL_CHECK(count * segment_.tensor.ranks ==
                   parameter.shape[static_cast<size_t>(parameter.tensor_dim)] * copies);
    return count;
  }

  int AddInput() {
    segment_.values.push_back({"input", segment_.dtype, border_rows_, spec_.hidden});
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
                .weights = {Find(weight + ".weight")},
                .formed_again = forms_again_},
               name);
  }

  int AddExchange(int input, TensorExchange way, const char* what) {
    const std::string name = absl::StrCat(segment_.values[static_cast<size_t>(input)].name, what);
    const bool enters = way == TensorExchange::kGatherRows || way == TensorExchange::kSumGradients;
    return Add({.attributes = TensorExchangeAttributes{.hidden = spec_.hidden, .way = way},
                .inputs = {input},
                .formed_again = forms_again_ && enters},
               name);
  }
  // What the ranks' products are of, and what they add up to.
  int EnterProducts(int input) {
    if (segment_.tensor.ranks == 1) return input;
    return segment_.tensor.cuts_sequence ? AddExchange(input, TensorExchange::kGatherRows, "_gathered")
                                         : AddExchange(input, TensorExchange::kSumGradients, "_of_all");
  }
  int LeaveProducts(int input) {
    if (segment_.tensor.ranks == 1) return input;
    return AddExchange(
        input, segment_.tensor.cuts_sequence ? TensorExchange::kScatterSums : TensorExchange::kSumParts,
        "_summed");
  }

  // The product after which the ranks' parts are summed. Its bias is added to the sum.
  int AddLastProduct(int input, const std::string& prefix, const char* matrix, bool bias, int64_t in,
                     const std::string& name) {
    const bool apart = bias && segment_.tensor.ranks > 1;
    const int product = AddLinear(input, prefix, {matrix}, bias && !apart, in, spec_.hidden, name);
    const int summed = LeaveProducts(product);
    if (!apart) return summed;
    return Add({.attributes = BiasAttributes{.hidden = spec_.hidden},
                .inputs = {summed},
                .biases = {Find(absl::StrCat(prefix, matrix, ".bias"))}},
               name + "_biased");
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
    const int64_t heads = EvenShare(prefix + names_.query) / spec_.head_dim;
    const int64_t kv_heads = EvenShare(prefix + names_.key) / spec_.head_dim;
    const int64_t row = (heads + 2 * kv_heads) * spec_.head_dim;
    const int qkv = AddLinear(input, prefix, {names_.query, names_.key, names_.value}, spec_.qkv_bias,
                              spec_.hidden, row, "qkv");
    const int rotated = Add(
        {.attributes =
             RopeAttributes{
                 .rotated_heads = heads + kv_heads, .head_dim = spec_.head_dim, .row = row, .angle_table = 0},
         .inputs = {qkv}},
        "qkv_rotated");
    return Add(
        {.attributes = AttentionAttributes{.heads = heads, .kv_heads = kv_heads, .head_dim = spec_.head_dim},
         .inputs = {rotated},
         .formed_again = forms_attention_again_},
        "attended");
  }

  int AddResidual(int stream, int update, const std::string& name) {
    return Add({.attributes = AddAttributes{.hidden = spec_.hidden}, .inputs = {stream, update}}, name);
  }

  const ModelSpec& spec_;
  const ParameterNames& names_;
  const std::vector<Parameter>& inventory_;
  int64_t border_rows_ = 0;
  bool forms_again_ = false;
  bool forms_attention_again_ = false;
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
