#include "model/segment.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/status.h"

namespace trainctl::model {
namespace {

constexpr int64_t kFp32Bytes = 4;
// Bounds the memory of the logits; large enough that the products stay efficient.
constexpr int64_t kMaxLogitBytes = int64_t{32} << 20;

class SegmentBuilder {
 public:
  SegmentBuilder(const ModelSpec& spec, const std::vector<Parameter>& inventory, int block,
                 const SegmentOptions& options)
      : spec_(spec), inventory_(inventory) {
    segment_.block = block;
    segment_.shape = options.shape;
    segment_.dtype = options.dtype;
    segment_.threads = options.threads;
    segment_.on_device = options.on_device;
  }

  Segment BuildEmbedding() {
    Operator op{.kind = OpKind::kEmbedding, .input_gradient = InputGradient::kNone};
    op.weights = {Find("model.embed_tokens.weight")};
    const int hidden = NewValue("hidden", spec_.hidden);
    op.outputs = {hidden};
    segment_.operators.push_back(std::move(op));
    segment_.output = hidden;
    return std::move(segment_);
  }

  Segment BuildLayer() {
    const std::string prefix = absl::StrCat("model.layers.", segment_.block - 1, ".");
    const int64_t q_cols = spec_.heads * spec_.head_dim;
    const int64_t kv_cols = spec_.kv_heads * spec_.head_dim;
    segment_.input = NewValue("input", spec_.hidden);

    const int normed = AddRmsNorm(segment_.input, prefix + "input_layernorm.weight", "attention_input");
    std::vector<std::string> biases;
    if (spec_.qkv_bias) {
      biases = {prefix + "self_attn.q_proj.bias", prefix + "self_attn.k_proj.bias",
                prefix + "self_attn.v_proj.bias"};
    }
    const int qkv = AddLinear(normed,
                              {prefix + "self_attn.q_proj.weight", prefix + "self_attn.k_proj.weight",
                               prefix + "self_attn.v_proj.weight"},
                              biases, "qkv", spec_.hidden, q_cols + 2 * kv_cols);
    const int rotated = AddRope(qkv, q_cols + 2 * kv_cols);
    const int attended = AddAttention(rotated, q_cols);
    biases.clear();
    if (spec_.attention_out_bias) biases = {prefix + "self_attn.o_proj.bias"};
    const int projected = AddLinear(attended, {prefix + "self_attn.o_proj.weight"}, biases,
                                    "attention_output", q_cols, spec_.hidden);
    const int middle = AddResidual(segment_.input, projected, "middle");

    const int mlp_input = AddRmsNorm(middle, prefix + "post_attention_layernorm.weight", "mlp_input");
    biases.clear();
    if (spec_.mlp_bias) biases = {prefix + "mlp.gate_proj.bias", prefix + "mlp.up_proj.bias"};
    const int gate_up = AddLinear(mlp_input, {prefix + "mlp.gate_proj.weight", prefix + "mlp.up_proj.weight"},
                                  biases, "gate_up", spec_.hidden, 2 * spec_.ffn);
    const int activated = AddSwiGlu(gate_up);
    biases.clear();
    if (spec_.mlp_bias) biases = {prefix + "mlp.down_proj.bias"};
    const int down = AddLinear(activated, {prefix + "mlp.down_proj.weight"}, biases, "mlp_output", spec_.ffn,
                               spec_.hidden);
    segment_.output = AddResidual(middle, down, "output");
    return std::move(segment_);
  }

  Segment BuildHead() {
    segment_.input = NewValue("input", spec_.hidden);
    const int normed = AddRmsNorm(segment_.input, "model.norm.weight", "head_input");
    Operator op{.kind = OpKind::kLinearCrossEntropy, .inputs = {normed}};
    op.weights = {Find(spec_.tie_embeddings ? "model.embed_tokens.weight" : "lm_head.weight")};
    const int64_t rows = LogitRowsAtOnce(segment_.shape, spec_.vocab, segment_.dtype);
    op.forward_temp_bytes = rows * spec_.vocab * DTypeBytes(segment_.dtype);
    op.backward_temp_bytes = op.forward_temp_bytes + WeightGradientTemp(spec_.vocab * spec_.hidden);
    segment_.operators.push_back(std::move(op));
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

  std::vector<int> FindAll(const std::vector<std::string>& names) const {
    std::vector<int> found;
    for (const std::string& name : names) found.push_back(Find(name));
    return found;
  }

  int NewValue(std::string name, int64_t cols) {
    return NewValue(std::move(name), segment_.dtype, segment_.shape.tokens(), cols);
  }
  int NewValue(std::string name, DType dtype, int64_t rows, int64_t cols) {
    segment_.values.push_back({std::move(name), dtype, rows, cols});
    return static_cast<int>(segment_.values.size()) - 1;
  }

  // A bf16 product cannot be added to the fp32 gradient directly: it is rounded once on its way.
  int64_t WeightGradientTemp(int64_t numel) const {
    return segment_.dtype == DType::kF32 ? 0 : numel * DTypeBytes(segment_.dtype);
  }

  int AddRmsNorm(int input, const std::string& weight, std::string name) {
    Operator op{
        .kind = OpKind::kRmsNorm, .inputs = {input}, .input_gradient = InputGradient::kReuseOutputGradient};
    const int rstd = NewValue(name + "_rstd", DType::kF32, segment_.shape.tokens(), 1);
    const int output = NewValue(std::move(name), spec_.hidden);
    op.outputs = {output, rstd};
    op.weights = {Find(weight)};
    op.saved = {input, rstd};
    segment_.operators.push_back(std::move(op));
    return output;
  }

  int AddLinear(int input, const std::vector<std::string>& weights, const std::vector<std::string>& biases,
                std::string name, int64_t in, int64_t out) {
    Operator op{.kind = OpKind::kLinear, .inputs = {input}};
    op.weights = FindAll(weights);
    op.biases = FindAll(biases);
    const int output = NewValue(std::move(name), out);
    op.outputs = {output};
    op.saved = {input};
    op.backward_temp_bytes = WeightGradientTemp(in * out);
    segment_.operators.push_back(std::move(op));
    return output;
  }

  int AddRope(int input, int64_t cols) {
    Operator op{.kind = OpKind::kRope,
                .inputs = {input},
                .in_place_of = input,
                .input_gradient = InputGradient::kReuseOutputGradient};
    const int output = NewValue("qkv_rotated", cols);
    op.outputs = {output};
    segment_.operators.push_back(std::move(op));
    return output;
  }

  int AddAttention(int input, int64_t q_cols) {
    Operator op{.kind = OpKind::kAttention, .inputs = {input}};
    const int64_t n = segment_.shape.tokens();
    const int output = NewValue("attended", q_cols);
    const int lse = NewValue("attention_lse", DType::kF32, spec_.heads, n);
    op.outputs = {output, lse};
    op.saved = {input, output, lse};
    for (const bool backward : {false, true}) {
      int64_t& bytes = backward ? op.backward_temp_bytes : op.forward_temp_bytes;
      bytes = !segment_.on_device                           ? CpuAttentionTemp(backward)
              : FlashServes(segment_.dtype, spec_.head_dim) ? FlashTemp(backward)
                                                            : ScoreTilesTemp(backward);
    }
    segment_.operators.push_back(std::move(op));
    return output;
  }

  int AddSwiGlu(int input) {
    Operator op{
        .kind = OpKind::kSwiGlu, .inputs = {input}, .input_gradient = InputGradient::kReuseSavedInput};
    const int output = NewValue("activated", spec_.ffn);
    op.outputs = {output};
    op.saved = {input};
    segment_.operators.push_back(std::move(op));
    return output;
  }

  int AddResidual(int stream, int update, std::string name) {
    Operator op{.kind = OpKind::kAdd,
                .inputs = {stream, update},
                .in_place_of = update,
                .input_gradient = InputGradient::kReuseOutputGradient};
    const int output = NewValue(std::move(name), spec_.hidden);
    op.outputs = {output};
    segment_.operators.push_back(std::move(op));
    return output;
  }

  // lib/nn/attention.cc computes one kv head at a time: its outputs before they are put in place, and
  // the kernel's tiles of scores.
  int64_t CpuAttentionTemp(bool backward) const {
    const int64_t group_numel = segment_.shape.tokens() * spec_.heads / spec_.kv_heads;
    const int64_t element = DTypeBytes(segment_.dtype);
    const int64_t seq_len = segment_.shape.seq_len;
    const AttentionTiles tile = AttentionTilesOf(seq_len);
    const int64_t tiles = backward ? 2 : 1;  // scores, and their gradient
    const int64_t rounded = segment_.dtype == DType::kF32 ? 0 : element;
    const int64_t workspace =
        segment_.threads * tile.queries *
        (tiles * tile.keys * (kFp32Bytes + rounded) + (spec_.head_dim + 2) * kFp32Bytes);
    const int64_t results = group_numel * ((backward ? 3 : 1) * spec_.head_dim * element + kFp32Bytes);
    return results + workspace;
  }

  // What LibTorch's kernel returns before it is put in place, and what it takes for itself in the backward:
  // gradients of keys and values for every query head where heads share them, and those of queries once more
  // in fp32 with the sums of each row, both with room for a tile more of each sequence
  // (Dao-AILab/flash-attention csrc/flash_attn/flash_api.cpp, mha_varlen_bwd: dq_accum, softmax_d,
  // dk_expanded, dv_expanded). A sequence is taken for one document; each one more adds a tile.
  int64_t FlashTemp(bool backward) const {
    constexpr int64_t kTileRows = 128;
    const int64_t n = segment_.shape.tokens();
    const int64_t element = DTypeBytes(segment_.dtype);
    const int64_t query_bytes = n * spec_.heads * spec_.head_dim * element;
    if (!backward) return query_bytes + n * spec_.heads * kFp32Bytes;
    const int64_t key_bytes = n * spec_.kv_heads * spec_.head_dim * element;
    const int64_t expanded = spec_.kv_heads < spec_.heads ? 2 * query_bytes : 0;
    const int64_t rows = n + kTileRows * segment_.shape.batch;
    const int64_t head_dim = spec_.head_dim <= 192 ? (spec_.head_dim + 31) / 32 * 32 : 256;
    return query_bytes + 2 * key_bytes + expanded + rows * spec_.heads * (head_dim + 1) * kFp32Bytes;
  }

  // lib/nn/attention_reference.cc, one kv head at a time: keys and values in fp32 (in the backward their
  // gradients too), and three tiles of scores.
  int64_t ScoreTilesTemp(bool backward) const {
    const int64_t n = segment_.shape.tokens();
    const int64_t group = spec_.heads / spec_.kv_heads;
    const int64_t scores = std::min(kScoreTileBytes, n * segment_.shape.seq_len * group * kFp32Bytes);
    return (backward ? 4 : 2) * n * spec_.head_dim * kFp32Bytes + 3 * scores;
  }

  const ModelSpec& spec_;
  const std::vector<Parameter>& inventory_;
  Segment segment_;
};

class ByteCounter {
 public:
  void Allocate(int64_t bytes) {
    live_ += bytes;
    peak_ = std::max(peak_, live_);
  }
  void Free(int64_t bytes) { live_ -= bytes; }
  void Temporary(int64_t bytes) {
    Allocate(bytes);
    Free(bytes);
  }
  int64_t live() const { return live_; }
  int64_t peak() const { return peak_; }

 private:
  int64_t live_ = 0;
  int64_t peak_ = 0;
};

int64_t BytesOf(const Segment& segment, int value) {
  return segment.values[static_cast<size_t>(value)].bytes();
}

void CountForward(const Segment& segment, const std::vector<std::vector<int>>& drops, ByteCounter& counter) {
  for (size_t i = 0; i < segment.operators.size(); ++i) {
    const Operator& op = segment.operators[i];
    for (size_t k = 0; k < op.outputs.size(); ++k) {
      if (k == 0 && op.in_place_of >= 0) continue;
      counter.Allocate(BytesOf(segment, op.outputs[k]));
    }
    counter.Temporary(op.forward_temp_bytes);
    for (int value : drops[i]) counter.Free(BytesOf(segment, value));
  }
}

// Gradients as reference-counted storage, exactly as the interpreter holds them.
class GradientCounter {
 public:
  GradientCounter(const Segment& segment, ByteCounter& counter) : segment_(segment), counter_(counter) {}

  void Adopt(int value) { storage_of_[value] = New(BytesOf(segment_, value), false); }
  bool Has(int value) const { return storage_of_.count(value) > 0; }

  // The gradient of `input` receives `contribution`'s rule from an operator whose output is `output`.
  void Flow(int input, int output, InputGradient rule) {
    if (Has(input)) {
      // Added to. In place when this is the only reference, else into new storage.
      if (references_[storage_of_[input]] > 1) {
        const int fresh = New(BytesOf(segment_, input), true);
        Release(input);
        storage_of_[input] = fresh;
      }
      return;
    }
    if (rule == InputGradient::kReuseOutputGradient && references_[storage_of_[output]] >= 1) {
      storage_of_[input] = storage_of_[output];
      ++references_[storage_of_[input]];
      return;
    }
    storage_of_[input] = New(BytesOf(segment_, input), rule != InputGradient::kReuseSavedInput);
  }

  void Release(int value) {
    const auto it = storage_of_.find(value);
    if (it == storage_of_.end()) return;
    if (--references_[it->second] == 0) counter_.Free(bytes_[it->second]);
    storage_of_.erase(it);
  }

 private:
  int New(int64_t bytes, bool counted) {
    references_.push_back(1);
    bytes_.push_back(bytes);
    if (counted) counter_.Allocate(bytes);
    return static_cast<int>(references_.size()) - 1;
  }

  const Segment& segment_;
  ByteCounter& counter_;
  std::map<int, int> storage_of_;
  std::vector<int> references_;
  std::vector<int64_t> bytes_;
};

void CountBackward(const Segment& segment, const Lifetimes& lifetimes, GradientCounter& gradients,
                   ByteCounter& counter) {
  for (size_t i = segment.operators.size(); i-- > 0;) {
    const Operator& op = segment.operators[i];
    const auto drop = [&](int except) {
      for (int value : lifetimes.backward_drops[i]) {
        if (value != except) counter.Free(BytesOf(segment, value));
      }
    };
    switch (op.kind) {
      case OpKind::kLinear:
        counter.Temporary(op.backward_temp_bytes);
        drop(-1);
        gradients.Flow(op.inputs[0], op.outputs[0], InputGradient::kNew);
        break;
      case OpKind::kSwiGlu:
        // The saved input's bytes become the gradient's.
        gradients.Flow(op.inputs[0], op.outputs[0], InputGradient::kReuseSavedInput);
        drop(op.inputs[0]);
        break;
      case OpKind::kEmbedding:
      case OpKind::kLinearCrossEntropy:
        break;
      default:
        for (int input : op.inputs) gradients.Flow(input, op.outputs[0], op.input_gradient);
        counter.Temporary(op.backward_temp_bytes);
        drop(-1);
    }
    for (int output : op.outputs) gradients.Release(output);
  }
}

}  // namespace

std::vector<int> StorageRoots(const Segment& segment) {
  std::vector<int> root(segment.values.size());
  for (size_t i = 0; i < root.size(); ++i) root[i] = static_cast<int>(i);
  for (const Operator& op : segment.operators) {
    if (op.in_place_of >= 0)
      root[static_cast<size_t>(op.outputs[0])] = root[static_cast<size_t>(op.in_place_of)];
  }
  return root;
}

AttentionTiles AttentionTilesOf(int64_t seq_len) {
  return {std::min<int64_t>(seq_len, seq_len >= 768   ? 256
                                     : seq_len >= 192 ? 64
                                                      : 32),
          std::min<int64_t>(seq_len, 512)};
}

int64_t ScoresComputed(int64_t seq_len) {
  const AttentionTiles tile = AttentionTilesOf(seq_len);
  int64_t scores = 0;
  for (int64_t first = 0; first < seq_len; first += tile.queries) {
    const int64_t end = std::min(first + tile.queries, seq_len);
    const int64_t keys = (end + tile.keys - 1) / tile.keys * tile.keys;
    scores += (end - first) * std::min(keys, seq_len);
  }
  return scores;
}

bool FlashServes(DType dtype, int64_t head_dim) {
  return dtype == DType::kBF16 && head_dim % 8 == 0 && head_dim <= 256;
}

int64_t LogitRowsAtOnce(const MicroBatchShape& shape, int64_t vocab, DType dtype) {
  const int64_t rows = std::max<int64_t>(1, kMaxLogitBytes / (vocab * DTypeBytes(dtype)));
  return std::min(rows, shape.tokens());
}

absl::string_view OpKindName(OpKind kind) {
  static constexpr absl::string_view kNames[kNumOpKinds] = {
      "embedding", "rms norm", "linear", "rope", "attention", "swiglu", "add", "linear cross entropy"};
  return kNames[static_cast<size_t>(kind)];
}

Segment BuildSegment(const ModelSpec& spec, const std::vector<Parameter>& inventory, int block,
                     const SegmentOptions& options) {
  SegmentBuilder builder(spec, inventory, block, options);
  if (block == EmbeddingBlock()) return builder.BuildEmbedding();
  if (block == HeadBlock(spec)) return builder.BuildHead();
  return builder.BuildLayer();
}

Lifetimes ComputeLifetimes(const Segment& segment) {
  const size_t num_operators = segment.operators.size();
  const std::vector<int> root = StorageRoots(segment);
  const int input_root = segment.input >= 0 ? root[static_cast<size_t>(segment.input)] : -1;
  const int output_root = segment.output >= 0 ? root[static_cast<size_t>(segment.output)] : -1;

  std::vector<int> last_use(segment.values.size(), -1);     // forward, by root
  std::vector<int> first_saver(segment.values.size(), -1);  // lowest operator that reads it in backward
  std::vector<bool> saved(segment.values.size(), false);
  for (size_t i = 0; i < num_operators; ++i) {
    const Operator& op = segment.operators[i];
    for (const std::vector<int>* values : {&op.inputs, &op.outputs}) {
      for (int value : *values)
        last_use[static_cast<size_t>(root[static_cast<size_t>(value)])] = static_cast<int>(i);
    }
    for (int value : op.saved) {
      const size_t r = static_cast<size_t>(root[static_cast<size_t>(value)]);
      saved[r] = true;
      if (first_saver[r] < 0) first_saver[r] = static_cast<int>(i);
    }
  }
  Lifetimes lifetimes;
  lifetimes.forward_drops.resize(num_operators);
  lifetimes.inference_drops.resize(num_operators);
  lifetimes.backward_drops.resize(num_operators);
  for (size_t v = 0; v < segment.values.size(); ++v) {
    const int value = static_cast<int>(v);
    if (root[v] != value || value == input_root || last_use[v] < 0) continue;
    TRAINCTL_CHECK_MSG(!(saved[v] && value == output_root),
                       "the output of a segment cannot be saved: ", segment.values[v].name);
    if (value != output_root) lifetimes.inference_drops[static_cast<size_t>(last_use[v])].push_back(value);
    if (saved[v]) {
      lifetimes.saved.push_back(value);
      lifetimes.backward_drops[static_cast<size_t>(first_saver[v])].push_back(value);
    } else if (value != output_root) {
      lifetimes.forward_drops[static_cast<size_t>(last_use[v])].push_back(value);
    }
  }
  return lifetimes;
}

SegmentMemory Analyze(const Segment& segment) {
  const Lifetimes lifetimes = ComputeLifetimes(segment);
  SegmentMemory memory;
  if (segment.output >= 0) memory.output_bytes = BytesOf(segment, segment.output);
  for (int value : lifetimes.saved) memory.saved_bytes += BytesOf(segment, value);

  ByteCounter inference;
  CountForward(segment, lifetimes.inference_drops, inference);
  memory.inference_peak = inference.peak();
  ByteCounter forward;
  CountForward(segment, lifetimes.forward_drops, forward);
  memory.forward_peak = forward.peak();

  const bool is_head =
      !segment.operators.empty() && segment.operators.back().kind == OpKind::kLinearCrossEntropy;
  if (is_head) {
    // One pass: the gradient of the normed input is formed beside the loss, then flows back.
    ByteCounter counter;
    const Operator& loss = segment.operators.back();
    for (size_t i = 0; i + 1 < segment.operators.size(); ++i) {
      for (int output : segment.operators[i].outputs) counter.Allocate(BytesOf(segment, output));
    }
    GradientCounter gradients(segment, counter);
    gradients.Flow(loss.inputs[0], -1, InputGradient::kNew);
    counter.Temporary(loss.backward_temp_bytes);
    counter.Free(BytesOf(segment, loss.inputs[0]));
    CountBackward(segment, lifetimes, gradients, counter);
    memory.loss_peak = counter.peak();
    memory.input_gradient_bytes = counter.live();
    return memory;
  }
  ByteCounter backward;
  GradientCounter gradients(segment, backward);
  gradients.Adopt(segment.output);
  CountBackward(segment, lifetimes, gradients, backward);
  memory.backward_peak = backward.peak();
  memory.input_gradient_bytes = backward.live() + memory.saved_bytes;
  return memory;
}

}  // namespace trainctl::model
