#include "frameworks/explore_bounder.h"

#include <algorithm>

namespace trainctl::frameworks {
namespace {

bool HasLessBound(const Waiting& a, const Waiting& b) { return a.bound < b.bound; }

LayerTermsTable::key_type KeyOf(const LayerAxes& layer) {
  return {static_cast<int64_t>(layer.precision),
          layer.tp,
          layer.cp,
          layer.ep,
          layer.etp,
          layer.micro_batch,
          layer.sequence_parallel,
          static_cast<int64_t>(layer.context),
          static_cast<int64_t>(layer.recompute),
          layer.activations_on_host};
}

}  // namespace

bool Bounder::Layer(const LayerAxes& layer) {
  const Degrees degrees = {static_cast<int64_t>(layer.precision), layer.tp, layer.cp, layer.ep, layer.etp};
  if (degrees != degrees_) {
    degrees_ = degrees;
    state_bytes_.clear();
    state_tables_.clear();
    table_ = nullptr;
  }
  workload_ = WorkloadOf(base_, {layer, {}, {}});
  const auto [known, is_new] = terms_.try_emplace(KeyOf(layer));
  if (is_new) known->second = LayerTermsOf(workload_);
  layer_terms_ = known->second;
  return true;
}

bool Bounder::Pipe(const LayerAxes& layer, const PipeAxes& pipe, const std::vector<StateAxes>& states) {
  const PipelineLoad& load = LoadFor(pipe);
  workload_.pipeline = pipe.kind;
  workload_.virtual_stages = pipe.virtual_stages;
  // Gradients are added up otherwise where they are sharded.
  const bool same = layer_terms_.accumulation[0] == layer_terms_.accumulation[1] &&
                    layer_terms_.head_accumulation[0] == layer_terms_.head_accumulation[1];
  const auto passes = [&](int zero_stage) {
    return PassSecondsBound(layer_terms_, load, pipe.kind, pipe.num_micro_batches, pipe.recomputed_layers,
                            zero_stage);
  };
  const double passes_s = passes(0);
  const double passes_of_shards_s = same ? passes_s : passes(3);
  const double cover_s = FirstRankSeconds(layer_terms_, load);
  const MemoryTerms memory =
      MemoryTermsOf(layer_terms_, load, workload_, pipe.num_micro_batches, pipe.recomputed_layers);
  const std::vector<StateTable>& table = TableFor(layer, pipe, load.own[0], states);
  const double m = static_cast<double>(pipe.num_micro_batches);
  for (size_t i = 0; i < states.size(); ++i) {
    const double seconds = (states[i].zero_stage >= 2 ? passes_of_shards_s : passes_s) +
                           StateSecondsBound(table[i].seconds, cover_s, m);
    const double bytes =
        MemoryBytesBound(layer_terms_, memory, table[i].bytes, table[i].seconds.outside_bytes);
    ++counts_.bounded;
    sink_.Consider(layer, pipe, states[i], seconds, bytes);
  }
  return true;
}

const PipelineLoad& Bounder::LoadFor(const PipeAxes& pipe) {
  const std::array<int64_t, 4> key = {pipe.pp, pipe.virtual_stages, static_cast<int64_t>(pipe.kind),
                                      static_cast<int64_t>(pipe.split)};
  const auto it = loads_.find(key);
  if (it != loads_.end()) return it->second;
  return loads_.emplace(key, LoadOf(WorkloadOf(base_, {{}, pipe, {}}))).first->second;
}

const std::vector<Bounder::StateTable>& Bounder::TableFor(const LayerAxes& layer, const PipeAxes& pipe,
                                                          const RankLoad& first,
                                                          const std::vector<StateAxes>& states) {
  const std::array<int64_t, 6> key = {pipe.pp, pipe.dp, first.dense, first.moe, first.head, pipe.num_gpus};
  if (table_ != nullptr && key == table_key_) return *table_;
  table_key_ = key;
  const auto [it, is_new] = state_tables_.try_emplace(key);
  table_ = &it->second;
  if (!is_new) return *table_;
  for (const StateAxes& state : states) {
    const Workload w = WorkloadOf(base_, {layer, pipe, state});
    const std::array<int64_t, 3> state_key = {state.zero_stage, state.shard_group, state.optimizer_on_host};
    const auto [bytes, is_new_state] = state_bytes_.try_emplace(state_key);
    if (is_new_state) bytes->second = StateBytesOf(w);
    it->second.push_back({StateTermsOf(w), bytes->second});
  }
  return *table_;
}

void WaitingList::Start(const Score& floor) {
  floor_ = floor;
  ceiling_ = {std::numeric_limits<double>::infinity(), 0};
  waiting_.clear();
}

const std::vector<Waiting>& WaitingList::Sorted() {
  std::sort(waiting_.begin(), waiting_.end(), HasLessBound);
  return waiting_;
}

// Keeps the better half; what ties with the first one that goes goes with it.
void WaitingList::Shorten() {
  const auto middle = waiting_.begin() + static_cast<std::ptrdiff_t>(capacity_);
  std::nth_element(waiting_.begin(), middle, waiting_.end(), HasLessBound);
  const Score cut = middle->bound;
  const auto end =
      std::partition(waiting_.begin(), waiting_.end(), [&](const Waiting& w) { return w.bound < cut; });
  if (end == waiting_.begin()) return;  // all the same: they stay together
  waiting_.erase(end, waiting_.end());
  ceiling_ = cut;
}

}  // namespace trainctl::frameworks
