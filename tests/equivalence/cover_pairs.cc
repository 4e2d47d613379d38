#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/counter_rng.h"
#include "schedule/layout_step.h"
#include "schedule/pipeline.h"
#include "tests/equivalence/pairwise.h"

namespace trainctl::equivalence {
namespace {

enum Factor {
  kReplicate,
  kShard,
  kStage,
  kTensor,
  kSequence,
  kPipeline,
  kOrder,
  kVirtual,
  kCut,
  kAccumulation,
  kRecompute,
  kPacking,
  kVariant,
  kPrecision,
  kPrefetch,
  kNumFactors
};
constexpr int kNone = -1;  // there is nothing to choose: an order without a pipeline
using Levels = std::array<int, kNumFactors>;

constexpr int64_t kAccumulations[] = {1, 2, 8};
// Everything of some layers is one more.
constexpr int64_t kNumRecomputes = std::ssize(layout::kRecomputes) + 1;
constexpr std::array<int64_t, kNumFactors> kNumLevels = {4,
                                                         4,
                                                         4,
                                                         3,
                                                         2,
                                                         3,
                                                         schedule::kNumPipelineKinds,
                                                         2,
                                                         2,
                                                         std::ssize(kAccumulations),
                                                         kNumRecomputes,
                                                         2,
                                                         kNumVariants,
                                                         2,
                                                         2};

// A layer of the largest stage goes to the smallest that may have one more.
void CutUnevenly(std::vector<int64_t>& layers) {
  const auto largest = std::max_element(layers.begin(), layers.end());
  const auto smallest = std::min_element(layers.begin(), layers.end());
  --*largest;
  ++*(smallest == largest ? layers.end() - 1 : smallest);
}

class Drawer {
 public:
  Drawer(const model::Architecture& spec, int workers, int64_t sequences)
      : spec_(spec), workers_(workers), sequences_(sequences) {}

  Levels Draw(uint64_t number) const {
    Levels levels;
    for (int factor = 0; factor < kNumFactors; ++factor) {
      levels[static_cast<size_t>(factor)] =
          static_cast<int>(RandomBelow(/*seed=*/1, static_cast<uint64_t>(factor) + 1, number,
                                       static_cast<uint64_t>(kNumLevels[static_cast<size_t>(factor)])));
    }
    if (levels[kTensor] == 0) levels[kSequence] = kNone;
    if (levels[kPipeline] == 0) levels[kOrder] = levels[kVirtual] = levels[kCut] = kNone;
    return levels;
  }

  // nullopt: no layout has these choices.
  std::optional<PairCell> CellOf(const Levels& levels) const {
    PairCell cell{.is_packed = levels[kPacking] == 1,
                  .variant = static_cast<Variant>(levels[kVariant]),
                  .is_bf16 = levels[kPrecision] == 1,
                  .has_prefetch = levels[kPrefetch] == 1};
    layout::Layout& layout = cell.layout;
    layout.mesh = {.pp = 1 << levels[kPipeline],
                   .dp_replicate = 1 << levels[kReplicate],
                   .dp_shard = 1 << levels[kShard],
                   .tp = 1 << levels[kTensor]};
    layout.zero_stage = levels[kStage];
    if (layout.mesh.world_size() != workers_ || (layout.zero_stage == 0) != (layout.mesh.dp_shard == 1))
      return std::nullopt;
    layout.sequence_parallel = levels[kSequence] != 0;
    layout.num_micro_batches = kAccumulations[levels[kAccumulation]];
    const bool some_layers = levels[kRecompute] > static_cast<int>(layout::Recompute::kFull);
    layout.recompute =
        some_layers ? layout::Recompute::kFull : static_cast<layout::Recompute>(levels[kRecompute]);
    const int64_t shares = layout.mesh.data_degree() * layout.num_micro_batches;
    if (sequences_ % shares != 0) return std::nullopt;
    layout.micro_batch = sequences_ / shares;
    if (layout.mesh.pp > 1 && !AddPipeline(levels, layout)) return std::nullopt;
    if (some_layers) layout.recomputed_layers = SomeLayers(spec_, layout);
    return cell;
  }

 private:
  bool AddPipeline(const Levels& levels, layout::Layout& layout) const {
    const auto order = static_cast<schedule::PipelineKind>(levels[kOrder]);
    layout.pipeline.order = std::string(schedule::PipelineKindName(order));
    layout.pipeline.virtual_stages = 1 + levels[kVirtual];
    const int64_t num_stages = layout.mesh.pp * layout.pipeline.virtual_stages;
    if (num_stages > NumLayers(spec_) + 2 || !schedule::CheckPipelineLayout(layout).ok()) return false;
    layout.pipeline.stage_layers = layout::EvenStageLayers(NumLayers(spec_), num_stages);
    if (levels[kCut] == 1) CutUnevenly(layout.pipeline.stage_layers);
    const std::vector<int64_t>& layers = layout.pipeline.stage_layers;
    return std::all_of(layers.begin() + 1, layers.end() - 1, [](int64_t count) { return count > 0; });
  }

  const model::Architecture& spec_;
  const int workers_;
  const int64_t sequences_;
};

using Pair = std::array<int, 4>;  // a factor and its level, another one and its

std::vector<Pair> PairsOf(const Levels& levels) {
  std::vector<Pair> pairs;
  for (int a = 0; a < kNumFactors; ++a) {
    for (int b = a + 1; b < kNumFactors; ++b) {
      const int one = levels[static_cast<size_t>(a)], other = levels[static_cast<size_t>(b)];
      if (one != kNone && other != kNone) pairs.push_back({a, one, b, other});
    }
  }
  return pairs;
}

}  // namespace

std::string PairCell::ToString() const {
  std::vector<std::string> parts = {layout.ToString(),
                                    absl::StrCat("accumulation=", layout.num_micro_batches)};
  if (layout.mesh.pp > 1)
    parts.push_back(absl::StrCat("stage_layers=", absl::StrJoin(layout.pipeline.stage_layers, ",")));
  parts.emplace_back(kVariantNames[static_cast<size_t>(variant)]);
  for (const auto& [has, name] :
       {std::pair{is_packed, "packed"}, {is_bf16, "bf16"}, {has_prefetch, "prefetch"}}) {
    if (has) parts.emplace_back(name);
  }
  return absl::StrJoin(parts, " ");
}

// The cell that covers most of what is left, again and again, out of more than enough of them.
PairCells CoverPairs(const model::Architecture& spec, int workers, int64_t sequences) {
  constexpr uint64_t kDrawn = 400000;
  const Drawer drawer(spec, workers, sequences);
  struct Candidate {
    PairCell cell;
    std::vector<Pair> pairs;
  };
  std::vector<Candidate> candidates;
  std::set<Pair> left;
  for (uint64_t number = 0; number < kDrawn; ++number) {
    const Levels levels = drawer.Draw(number);
    std::optional<PairCell> cell = drawer.CellOf(levels);
    if (!cell.has_value()) continue;
    Candidate& candidate = candidates.emplace_back(Candidate{*std::move(cell), PairsOf(levels)});
    left.insert(candidate.pairs.begin(), candidate.pairs.end());
  }
  PairCells cover{.num_pairs = static_cast<int>(left.size()), .num_choices = kNumFactors};
  while (!left.empty()) {
    const auto gain = [&](const Candidate& candidate) {
      return std::count_if(candidate.pairs.begin(), candidate.pairs.end(),
                           [&](const Pair& pair) { return left.contains(pair); });
    };
    const Candidate* best = nullptr;
    int64_t most = 0;
    for (const Candidate& candidate : candidates) {
      const int64_t own = gain(candidate);
      if (own > most) best = &candidate, most = own;
    }
    cover.cells.push_back(best->cell);
    for (const Pair& pair : best->pairs) left.erase(pair);
  }
  return cover;
}

}  // namespace trainctl::equivalence
