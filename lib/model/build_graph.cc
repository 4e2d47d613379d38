// Builds the graph of a Llama-like model: the operators of each block and their sizes.

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/base/casts.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "model/graph.h"
#include "model/parameter_names.h"
#include "model/peepholes.h"

namespace trainctl::model {
namespace {

float RoundToBf16(float value) {
  const uint32_t bits = absl::bit_cast<uint32_t>(value);
  return absl::bit_cast<float>((bits + 0x7FFFU + ((bits >> 16) & 1U)) & 0xFFFF0000U);
}

class BlockBuilder {
 public:
  BlockBuilder(const Architecture& spec, const Layer& layer, const std::vector<Parameter>& inventory,
               const SegmentOptions& options)
      : spec_(spec),
        attention_(layer.attention),
        mlp_(layer.mlp),
        norms_(layer.norms),
        names_(*FindParameterNames(spec.family)),
        inventory_(inventory) {
    segment_.shape = options.shape;
    segment_.dtype = options.dtype;
    segment_.threads = options.threads;
    segment_.on_device = options.on_device;
    segment_.tensor = options.tensor;
    border_rows_ = options.border_rows();
    forms_again_ = options.forms_again;
    forms_attention_again_ = options.forms_attention_again;
  }

  void BuildEmbedding() {
    const TensorShare tokens = Share(names_.embedding);
    const int looked_up =
        Add({.attributes =
                 EmbeddingAttributes{.vocab = tokens.count, .hidden = spec_.hidden, .first = tokens.begin},
             .weights = {Read(absl::StrCat(names_.embedding, ".weight"))}},
            "hidden");
    const int hidden = AddPositions(LeaveProducts(looked_up));
    segment_.outputs = {AddScale(hidden, EmbeddingFactor(), "hidden_scaled")};
  }

  // `number` is the index of a layer of this kind.
  void BuildLayer(int64_t number) {
    const std::string prefix = absl::StrCat(names_.layers, number, ".");
    const int input = AddInput();
    const int attention_input = AddNormBefore(input, prefix, names_.attention_norm, "attention_input");
    const int attended = AddAttention(attention_input, prefix);
    const int projected = AddLastProduct(attended, prefix, names_.attention_output, attention_.out_bias,
                                         EvenShare(prefix + names_.attention_output), "attention_output");
    const int middle = AddUpdate(input, projected, prefix, names_.after_attention_norm, "middle");
    const int read_by_mlp = norms_ == NormPlaces::kParallel ? input : middle;
    const int mlp_input = norms_ == NormPlaces::kShared
                              ? attention_input
                              : AddNormBefore(read_by_mlp, prefix, names_.mlp_norm, "mlp_input");
    const int64_t ffn = EvenShare(prefix + names_.up);
    const int activated = mlp_.gated ? AddGatedUp(mlp_input, prefix, ffn) : AddUp(mlp_input, prefix, ffn);
    const int down = AddLastProduct(activated, prefix, names_.down, mlp_.bias, ffn, "mlp_output");
    segment_.outputs = {AddUpdate(middle, down, prefix, names_.after_mlp_norm, "output")};
  }

  // Forms nothing again, because it keeps nothing for a later backward.
  void BuildHead() {
    const int normed = AddNorm(AddInput(), names_.final_norm, "head_input");
    // Scales the input of the product instead of the logits, because it is smaller.
    const int scaled = EnterProducts(AddScale(normed, spec_.logit_multiplier, "head_input_scaled"));
    const std::string matrix = spec_.tie_embeddings ? names_.embedding : names_.head;
    const TensorShare tokens = Share(matrix);
    // The first rank has the most rows of the matrix. Every rank computes the same number of
    // rows of logits at a time.
    const int64_t most =
        ShareOf(inventory_[static_cast<size_t>(Find(matrix + ".weight"))], 0, segment_.tensor.ranks).count;
    const LinearCrossEntropyAttributes attributes{
        .hidden = spec_.hidden,
        .vocab = tokens.count,
        .rows_at_once = LogitRowsAtOnce(segment_.shape, most, segment_.dtype, segment_.on_device),
        .first = tokens.begin,
        .softcap = spec_.logit_softcap};
    Operator loss{.attributes = attributes, .inputs = {scaled}, .weights = {Read(matrix + ".weight")}};
    if (spec_.head_bias) loss.biases = {Read(matrix + ".bias")};
    Add(std::move(loss), "loss");
  }

  Segment TakeSegment() {
    MarkPeepholes(segment_);
    return std::move(segment_);
  }
  std::vector<int> TakeParameters() { return std::move(parameters_); }

 private:
  int Find(const std::string& name) const {
    for (size_t i = 0; i < inventory_.size(); ++i) {
      if (inventory_[i].name == name) return static_cast<int>(i);
    }
    TRAINCTL_CHECK_MSG(false, "no parameter named ", name);
    return -1;
  }

  // Returns the position of a parameter among those of the block. Adds it if it is not yet there.
  int Read(const std::string& name) {
    const int parameter = Find(name);
    const auto known = std::find(parameters_.begin(), parameters_.end(), parameter);
    if (known != parameters_.end()) return static_cast<int>(known - parameters_.begin());
    parameters_.push_back(parameter);
    return static_cast<int>(parameters_.size()) - 1;
  }

  // Returns this rank's share of a matrix.
  TensorShare Share(const std::string& matrix) const {
    const Parameter& parameter = inventory_[static_cast<size_t>(Find(matrix + ".weight"))];
    return ShareOf(parameter, segment_.tensor.index, segment_.tensor.ranks);
  }
  // Returns the size of this rank's share of a matrix that may be adjacent to others. Shares must be equal on
  // all ranks, because otherwise a matrix would not end where the next one begins.
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

  // Returns the operator's first output, or -1 for a loss, which has none.
  int Add(Operator op, const std::string& name) {
    op.kind = static_cast<OpKind>(op.attributes.index());
    EntryOf(op.kind).complete(segment_, op, name);
    segment_.operators.push_back(std::move(op));
    const std::vector<int>& outputs = segment_.operators.back().outputs;
    return outputs.empty() ? -1 : outputs[0];
  }

  // `forms_again` is whether the backward may compute the norm again.
  int AddNorm(int input, const std::string& module, const std::string& name, bool forms_again = false) {
    const Norm& norm = spec_.norm;
    Operator op{.inputs = {input}, .weights = {Read(module + ".weight")}, .formed_again = forms_again};
    if (norm.kind == NormKind::kLayer) {
      op.attributes = LayerNormAttributes{.hidden = spec_.hidden, .eps = norm.eps, .gain = norm.gain};
      if (norm.has_bias()) op.biases = {Read(module + ".bias")};
    } else {
      op.attributes = RmsNormAttributes{.hidden = spec_.hidden, .eps = norm.eps, .gain = norm.gain};
    }
    return Add(std::move(op), name);
  }

  // Adds the norm before attention or MLP, if there is one, and returns the input of their products.
  int AddNormBefore(int input, const std::string& prefix, const char* module, const std::string& name) {
    // Without a norm, no operator saves the input from which the exchange could be formed again.
    if (!HasNormsBefore(norms_)) return EnterProducts(input);
    return EnterProducts(AddNorm(input, prefix + module, name, forms_again_), forms_again_);
  }

  int AddPositions(int input) {
    if (spec_.learned_positions == 0) return input;
    const PositionsAttributes attributes{
        .rows = spec_.learned_positions, .hidden = spec_.hidden, .first = spec_.position_offset};
    return Add({.attributes = attributes,
                .inputs = {input},
                .weights = {Read(absl::StrCat(names_.positions, ".weight"))}},
               "hidden_positioned");
  }

  // The square root of the hidden size is rounded to the type of the weights, as transformers does.
  double EmbeddingFactor() const {
    if (!spec_.scales_embedding) return spec_.embedding_multiplier;
    const auto root = static_cast<float>(std::sqrt(static_cast<double>(spec_.hidden)));
    return spec_.embedding_multiplier * (segment_.dtype == DType::kBF16 ? RoundToBf16(root) : root);
  }

  // Returns `input` itself if the factor is 1.
  int AddScale(int input, double factor, const std::string& name) {
    if (factor == 1) return input;
    return Add({.attributes = ScaleAttributes{.cols = spec_.hidden, .factor = factor}, .inputs = {input}},
               name);
  }

  int AddGatedUp(int input, const std::string& prefix, int64_t ffn) {
    const int gate_up =
        AddLinear(input, prefix, {names_.gate, names_.up}, mlp_.bias, spec_.hidden, 2 * ffn, "gate_up");
    return Add({.attributes = SwiGluAttributes{.ffn = ffn, .activation = mlp_.activation},
                .inputs = {gate_up},
                .formed_again = forms_again_},
               "activated");
  }

  int AddUp(int input, const std::string& prefix, int64_t ffn) {
    const int up = AddLinear(input, prefix, {names_.up}, mlp_.bias, spec_.hidden, ffn, "up");
    return Add({.attributes = ActivationAttributes{.cols = ffn, .activation = mlp_.activation},
                .inputs = {up},
                .formed_again = forms_again_},
               "activated");
  }

  // Adds the output of attention or MLP to the residual stream. `module` is the norm after it, if there is
  // one.
  int AddUpdate(int stream, int update, const std::string& prefix, const char* module,
                const std::string& name) {
    if (HasNormsAfter(norms_)) update = AddNorm(update, prefix + module, name + "_update");
    return AddResidual(stream, AddScale(update, spec_.residual_multiplier, name + "_scaled"), name);
  }

  // `forms_again` is whether the backward may repeat the exchange. Then it must be able to form its input.
  int AddExchange(int input, TensorExchange way, const char* what, bool forms_again = false) {
    const std::string name = absl::StrCat(segment_.values[static_cast<size_t>(input)].name, what);
    return Add({.attributes = TensorExchangeAttributes{.hidden = spec_.hidden, .way = way},
                .inputs = {input},
                .formed_again = forms_again},
               name);
  }
  // Return the input of the ranks' products, and the sum of the products. Add an exchange if there are
  // several ranks.
  int EnterProducts(int input, bool forms_again = false) {
    if (segment_.tensor.ranks == 1) return input;
    return segment_.tensor.cuts_sequence
               ? AddExchange(input, TensorExchange::kGatherRows, "_gathered", forms_again)
               : AddExchange(input, TensorExchange::kSumGradients, "_of_all", forms_again);
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
                .biases = {Read(absl::StrCat(prefix, matrix, ".bias"))}},
               name + "_biased");
  }

  // Adds one product with the matrices `prefix` + each of `names`, which are adjacent.
  int AddLinear(int input, const std::string& prefix, const std::vector<std::string>& names, bool bias,
                int64_t in, int64_t out, const std::string& name) {
    Operator op{.attributes = LinearAttributes{.in = in, .out = out}, .inputs = {input}};
    for (const std::string& matrix : names) {
      op.weights.push_back(Read(absl::StrCat(prefix, matrix, ".weight")));
      if (bias) op.biases.push_back(Read(absl::StrCat(prefix, matrix, ".bias")));
    }
    return Add(std::move(op), name);
  }

  // Adds the projections of queries, keys and values, their norms, RoPE and attention, but not the output
  // projection.
  int AddAttention(int input, const std::string& prefix) {
    const int64_t heads = EvenShare(prefix + names_.query) / attention_.head_dim;
    const int64_t kv_heads = EvenShare(prefix + names_.key) / attention_.head_dim;
    const int64_t row = (heads + 2 * kv_heads) * attention_.head_dim;
    const int qkv = AddLinear(input, prefix, {names_.query, names_.key, names_.value}, attention_.qkv_bias,
                              spec_.hidden, row, "qkv");
    const auto norm = [&](int value) {
      return attention_.qk_norm == QkNorm::kNone ? value : AddHeadNorm(value, prefix, heads, kv_heads);
    };
    const auto rotate = [&](int value) {
      return attention_.rope ? AddRope(value, heads + kv_heads, row) : value;
    };
    const bool rotates_first = attention_.qk_norm == QkNorm::kHeadAfterRope;
    const int finished = rotates_first ? norm(rotate(qkv)) : rotate(norm(qkv));
    return Add({.attributes = AttentionAttributes{.heads = heads,
                                                  .kv_heads = kv_heads,
                                                  .head_dim = attention_.head_dim,
                                                  .scale = attention_.scale,
                                                  .window = attention_.window,
                                                  .softcap = attention_.softcap},
                .inputs = {finished},
                .formed_again = forms_attention_again_},
               "attended");
  }

  int AddRope(int qkv, int64_t rotated_heads, int64_t row) {
    const bool has_own_table = attention_.window > 0 && spec_.window_rope_theta > 0;
    return Add({.attributes = RopeAttributes{.rotated_heads = rotated_heads,
                                             .head_dim = attention_.head_dim,
                                             .rotated_dim = RotatedDim(spec_),
                                             .pairs = spec_.rope.pairs,
                                             .row = row,
                                             .angle_table = has_own_table ? size_t{1} : size_t{0}},
                .inputs = {qkv}},
               "qkv_rotated");
  }

  int AddHeadNorm(int qkv, const std::string& prefix, int64_t heads, int64_t kv_heads) {
    const HeadNormAttributes attributes{.heads = heads,
                                        .kv_heads = kv_heads,
                                        .head_dim = attention_.head_dim,
                                        .eps = spec_.norm.eps,
                                        .gain = spec_.norm.gain,
                                        .whole = attention_.qk_norm == QkNorm::kWhole};
    return Add({.attributes = attributes,
                .inputs = {qkv},
                .weights = {Read(absl::StrCat(prefix, names_.query_norm, ".weight")),
                            Read(absl::StrCat(prefix, names_.key_norm, ".weight"))}},
               "qkv_normed");
  }

  int AddResidual(int stream, int update, const std::string& name) {
    return Add({.attributes = AddAttributes{.hidden = spec_.hidden}, .inputs = {stream, update}}, name);
  }

  const Architecture& spec_;
  const Attention& attention_;
  const Mlp& mlp_;
  NormPlaces norms_;
  const ParameterNames& names_;
  const std::vector<Parameter>& inventory_;
  int64_t border_rows_ = 0;
  bool forms_again_ = false;
  bool forms_attention_again_ = false;
  Segment segment_;
  std::vector<int> parameters_;
};

// Returns the inventory index of each block's first parameter. The inventory is in the order of the blocks.
std::vector<int> FirstParameters(const Architecture& spec, const std::vector<Parameter>& inventory) {
  std::vector<int> first(static_cast<size_t>(NumBlocks(spec)), -1);
  for (size_t i = inventory.size(); i-- > 0;)
    first[static_cast<size_t>(inventory[i].block)] = static_cast<int>(i);
  return first;
}

}  // namespace

std::vector<AngleTable> AnglesOf(const Architecture& spec) {
  if (!HasRope(spec)) return {};
  const int64_t rotated_dim = RotatedDim(spec);
  std::vector<AngleTable> tables = {
      {.rotated_dim = rotated_dim, .theta = spec.rope.theta, .scaling = spec.rope.scaling}};
  if (spec.window_rope_theta > 0)
    tables.push_back({.rotated_dim = rotated_dim, .theta = spec.window_rope_theta});
  return tables;
}

int64_t Graph::border_bytes() const {
  const Segment& first = segment(0);
  return first.values[static_cast<size_t>(first.outputs[0])].bytes();
}

bool Graph::is_tied() const {
  const std::vector<int>& last = blocks.back().parameters;
  return std::any_of(blocks[0].parameters.begin(), blocks[0].parameters.end(), [&](int parameter) {
    return std::find(last.begin(), last.end(), parameter) != last.end();
  });
}

std::shared_ptr<const Graph> BuildGraph(const Architecture& spec, const std::vector<Parameter>& inventory,
                                        const SegmentOptions& options) {
  auto graph = std::make_shared<Graph>();
  graph->angles = AnglesOf(spec);
  // Equal segments are one kind, in whichever layers they occur.
  const auto add = [&](BlockBuilder builder) {
    Graph::Block& block = graph->blocks.emplace_back();
    block.parameters = builder.TakeParameters();
    Segment segment = builder.TakeSegment();
    const auto known = std::find(graph->kinds.begin(), graph->kinds.end(), segment);
    block.kind = static_cast<int>(known - graph->kinds.begin());
    if (known == graph->kinds.end()) graph->kinds.push_back(std::move(segment));
  };
  BlockBuilder embedding(spec, spec.kinds[0], inventory, options);
  embedding.BuildEmbedding();
  add(std::move(embedding));
  // Layers of one kind have their parameters in the same order.
  const std::vector<int> first = FirstParameters(spec, inventory);
  std::vector<int> first_block(spec.kinds.size(), -1);
  for (int block = 1; block < HeadBlock(spec); ++block) {
    const int64_t layer = block - 1;
    int& built = first_block[static_cast<size_t>(spec.layers[static_cast<size_t>(layer)])];
    if (built < 0) {
      BlockBuilder builder(spec, LayerAt(spec, layer), inventory, options);
      builder.BuildLayer(layer);
      add(std::move(builder));
      built = block;
      continue;
    }
    Graph::Block next = graph->blocks[static_cast<size_t>(built)];
    const int offset = first[static_cast<size_t>(block)] - first[static_cast<size_t>(built)];
    for (int& parameter : next.parameters) parameter += offset;
    graph->blocks.push_back(std::move(next));
  }
  BlockBuilder head(spec, spec.kinds[0], inventory, options);
  head.BuildHead();
  add(std::move(head));
  return graph;
}

}  // namespace trainctl::model
