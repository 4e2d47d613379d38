#include "verify/shrink.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "schedule/layout_step.h"

namespace trainctl::verify {
namespace {

using layout::Mesh;

// Axes by halves, the longest first, down to two.
Mesh SmallMesh(Mesh mesh) {
  while (mesh.world_size() > kMaxRanks) {
    int64_t* longest = &mesh.dp_shard;
    for (int64_t* degree : {&mesh.dp_replicate, &mesh.pp, &mesh.tp}) {
      if (*degree > *longest) longest = degree;
    }
    *longest = std::max<int64_t>(2, *longest / 2);
  }
  return mesh;
}

int64_t RoundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Heads that tp deals out as it deals out the model's: of keys each rank has some, or several have the same.
void ShrinkHeads(int64_t tp_before, int64_t tp, model::Architecture& spec) {
  const model::Attention& before = AttentionOf(spec);
  const int64_t group = before.heads / before.kv_heads;
  const bool has_copies = tp_before > before.kv_heads;
  // A divisor of tp below it where there were copies, else one or two for each rank.
  int64_t kv_heads = before.kv_heads % (2 * tp) == 0 ? 2 * tp : tp;
  if (has_copies) {
    kv_heads = std::gcd(before.kv_heads, tp);
    if (kv_heads == tp && tp > 1) kv_heads = tp / 2;
  }
  int64_t heads = kv_heads * std::min<int64_t>(group, 4);
  if (heads % tp != 0) heads = RoundUp(heads, std::lcm(kv_heads, tp));
  SetEach(spec, &model::Attention::head_dim, std::min<int64_t>(before.head_dim, 8));
  SetEach(spec, &model::Attention::kv_heads, kv_heads);
  SetEach(spec, &model::Attention::heads, heads);
}

// Assigns the kinds to the layers in turn, so that each occurs if there are enough layers. Makes windows
// shorter than the documents.
void ShrinkKinds(model::Architecture& spec) {
  constexpr int64_t kWindow = 3;
  if (WindowOf(spec) > 0) ChangeWindow(spec, std::min(WindowOf(spec), kWindow));
  for (size_t i = 0; i < spec.layers.size(); ++i) spec.layers[i] = static_cast<int>(i % spec.kinds.size());
}

// LongRoPE has a divisor for each pair of a head, and others for sequences above the original length.
void ShrinkLongRope(int64_t seq_len_before, int64_t seq_len, model::Architecture& spec) {
  std::optional<model::RopeScaling>& scaling = spec.rope.scaling;
  if (!scaling.has_value() || scaling->kind != model::RopeScalingKind::kLongRope) return;
  const auto num_pairs = static_cast<size_t>(model::RotatedDim(spec) / 2);
  scaling->short_factor.resize(num_pairs, 1);
  scaling->long_factor.resize(num_pairs, 1);
  scaling->original_max_position = model::UsesLongFactor(*scaling, seq_len_before) ? seq_len - 1 : seq_len;
}

// One layer where there were fewest, two where there were more.
void ShrinkStages(layout::Pipeline& pipeline, int64_t pp_before, int64_t pp) {
  std::vector<int64_t>& layers = pipeline.stage_layers;
  if (pp < pp_before) {
    pipeline.virtual_stages = std::min<int64_t>(pipeline.virtual_stages, 2);
    const size_t num_stages = static_cast<size_t>(pp * pipeline.virtual_stages);
    // The ends stay, since they may be other than the rest.
    const int64_t last = layers.back();
    layers.resize(num_stages);
    layers.back() = last;
  }
  int64_t fewest = 0;
  for (const int64_t count : layers) {
    if (count > 0) fewest = fewest == 0 ? count : std::min(fewest, count);
  }
  for (int64_t& count : layers) count = count == 0 ? 0 : count > fewest ? 2 : 1;
}

// Where some of a stage's layers were recomputed, all but one are, or its one layer.
std::vector<int64_t> ShrinkRecomputed(const layout::Layout& layout, const std::vector<int64_t>& layers_before,
                                      const std::vector<int64_t>& layers) {
  if (layout.recomputed_layers.empty()) return {};
  std::vector<int64_t> recomputed;
  for (size_t s = 0; s < layers.size(); ++s) {
    // ShrinkStages keeps the first stages and the last.
    const size_t before = s + 1 == layers.size() ? layers_before.size() - 1 : s;
    const int64_t was = layout.recomputed_layers[before];
    const bool is_whole = was == layers_before[before];
    recomputed.push_back(was == 0 ? 0 : is_whole ? layers[s] : std::max<int64_t>(1, layers[s] - 1));
  }
  return layout::RecomputedLayers(recomputed, layers);
}

// Few micro-batches, at least two if there were any, that the order takes.
absl::Status ShrinkMicroBatches(layout::Layout& layout) {
  const int64_t most = layout.num_micro_batches;
  layout.micro_batch = std::min<int64_t>(layout.micro_batch, 2);
  if (layout.pipeline.HasOwnPasses()) return absl::OkStatus();  // they are of as many as they are
  layout.num_micro_batches = std::min<int64_t>(most, 2);
  if (layout.mesh.pp == 1) return absl::OkStatus();
  for (int64_t count = layout.num_micro_batches; count <= std::max<int64_t>(most, 64); ++count) {
    layout.num_micro_batches = count;
    // More than the stages, so that the order has its steady part.
    if (count >= layout.mesh.pp && schedule::CheckPipelineLayout(layout).ok()) return absl::OkStatus();
  }
  return UsageError(absl::StrCat("pipeline schedule ", layout.pipeline.order, " does not exist for ",
                                 layout.mesh.pp, " x ", layout.pipeline.virtual_stages, " stages"));
}

}  // namespace

absl::StatusOr<SmallRun> Shrink(const model::Architecture& spec, const layout::Layout& layout,
                                int64_t seq_len) {
  SmallRun small{spec, layout, 0};
  small.layout.mesh = SmallMesh(layout.mesh);
  if (layout.pipeline.HasOwnPasses()) small.layout.mesh.pp = layout.mesh.pp;
  const int64_t tp = small.layout.mesh.tp;
  ShrinkHeads(layout.mesh.tp, tp, small.spec);
  small.spec.hidden = std::min<int64_t>(spec.hidden, 40);
  SetEach(small.spec, &model::Mlp::ffn, RoundUp(std::min<int64_t>(MlpOf(spec).ffn, 48), tp));
  const bool divides = spec.vocab % layout.mesh.tp == 0;
  small.spec.vocab = 32 * tp + (divides ? 0 : 1);
  SetNumLayers(small.spec, std::min<int64_t>(NumLayers(spec), 3));
  small.spec.init_std = 0.1;  // so that activations are as large as those of wide products
  if (layout.mesh.pp > 1) {
    ShrinkStages(small.layout.pipeline, layout.mesh.pp, small.layout.mesh.pp);
    const std::vector<int64_t>& layers = small.layout.pipeline.stage_layers;
    SetNumLayers(small.spec, std::accumulate(layers.begin(), layers.end(), int64_t{0}));
  }
  ShrinkKinds(small.spec);
  const auto stages_of = [](const model::Architecture& of, const layout::Layout& cut) {
    return cut.mesh.pp > 1 ? cut.pipeline.stage_layers : std::vector<int64_t>{NumLayers(of)};
  };
  small.layout.recomputed_layers =
      ShrinkRecomputed(layout, stages_of(spec, layout), stages_of(small.spec, small.layout));
  TRAINCTL_RETURN_IF_ERROR(ShrinkMicroBatches(small.layout));
  // Sequences of two tokens at least: each is two documents.
  small.seq_len = RoundUp(std::clamp<int64_t>(seq_len, 2, 16), tp);
  ShrinkLongRope(seq_len, small.seq_len, small.spec);
  return small;
}

}  // namespace trainctl::verify
