// Random jobs for property tests: any model, machine and framework of the catalogue under any degrees that
// are possible for it.
#pragma once

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/counter_rng.h"
#include "frameworks/workload.h"

namespace trainctl::frameworks {

class RandomJobs {
 public:
  explicit RandomJobs(uint64_t seed) : seed_(seed) {}

  int64_t Below(int64_t bound) {
    return static_cast<int64_t>(RandomBelow(seed_, 0, index_++, static_cast<uint64_t>(bound)));
  }
  int64_t PowerOfTwo(int64_t most_log2) { return int64_t{1} << Below(most_log2 + 1); }
  bool Coin() { return Below(2) == 1; }

  // A valid job; some in ten tries are not possible and are drawn again.
  Workload Next() {
    for (;;) {
      Workload w = Draw();
      if (Validate(w).ok()) return w;
    }
  }

 private:
  Workload Draw() {
    Workload w;
    model::Architecture& a = w.model;
    SetEach(a, &model::Attention::heads, PowerOfTwo(7));
    SetEach(a, &model::Attention::kv_heads,
            Coin() ? AttentionOf(a).heads : std::max<int64_t>(1, AttentionOf(a).heads / PowerOfTwo(3)));
    SetEach(a, &model::Attention::head_dim, 64 << Below(2));
    a.hidden = AttentionOf(a).heads * AttentionOf(a).head_dim;
    SetEach(a, &model::Mlp::ffn, 128 * (1 + Below(200)));
    SetNumLayers(a, 1 + Below(128));
    a.vocab = 1000 + Below(200'000);
    SetEach(a, &model::Mlp::gated, Coin());
    SetAllLinearBiases(a, Coin());
    a.norm.kind = Coin() ? model::NormKind::kLayer : model::NormKind::kRms;
    a.tie_embeddings = Coin();
    a.dropout = Below(8) == 0;
    if (Below(4) == 0) {
      model::Experts experts{.num_experts = PowerOfTwo(7), .top_k = 1, .ffn = 128 * (1 + Below(32))};
      experts.top_k = std::min<int64_t>(experts.num_experts, PowerOfTwo(3));
      experts.shared_ffn = Coin() ? experts.ffn : 0;
      SetExperts(a, experts, Coin() ? 0 : Below(NumLayers(a) + 1));
    }
    w.seq_len = PowerOfTwo(7) * 256;
    w.precision = static_cast<Precision>(Below(6));
    w.recompute = static_cast<RecomputeKind>(Below(3));
    w.device =
        &cluster::Devices()[static_cast<size_t>(Below(static_cast<int64_t>(cluster::Devices().size())))];
    w.node = &cluster::DefaultNodeFor(*w.device);
    w.framework = &Frameworks()[static_cast<size_t>(Below(static_cast<int64_t>(Frameworks().size())))];
    w.mesh.tp = PowerOfTwo(3);
    w.mesh.pp = Coin() ? 1 : 1 + Below(16);
    w.virtual_stages = w.mesh.pp > 1 && Below(3) == 0 ? 1 + Below(4) : 1;
    w.mesh.cp = Below(4) == 0 ? PowerOfTwo(3) : 1;
    const int64_t dp = PowerOfTwo(8);
    w.mesh.dp_replicate = dp;
    w.mesh.ep = FindExperts(a) != nullptr ? std::min(PowerOfTwo(5), FindExperts(a)->num_experts) : 1;
    if (!w.mesh.HasExpertView()) w.mesh.ep = 1;
    w.zero_stage = static_cast<int>(Below(4));
    w.mesh.dp_shard = Below(4) == 0 ? std::max<int64_t>(1, dp / PowerOfTwo(3)) : dp;
    w.mesh.dp_replicate = dp / w.mesh.dp_shard;
    w.micro_batch = PowerOfTwo(3);
    const int64_t micro_batches = Below(3) == 0 ? w.mesh.pp * PowerOfTwo(3) : 1 + Below(64);
    w.global_batch = w.micro_batch * dp * micro_batches;
    w.half_moments = w.framework->selects_modules && a.vocab % 4 == 0;
    return w;
  }

  uint64_t seed_;
  uint64_t index_ = 0;
};

inline std::string DescribeJob(const Workload& w) {
  return absl::StrCat(
      w.framework->name, " on ", w.device->name, ": ", NumLayers(w.model), " x ", w.model.hidden, " ffn ",
      MlpOf(w.model).ffn, " heads ", AttentionOf(w.model).heads, "/", AttentionOf(w.model).kv_heads,
      " vocab ", w.model.vocab, FindExperts(w.model) != nullptr ? " experts " : "",
      FindExperts(w.model) != nullptr ? absl::StrCat(FindExperts(w.model)->num_experts) : "", " seq ",
      w.seq_len, " precision ", static_cast<int>(w.precision), " recompute ", static_cast<int>(w.recompute),
      " tp ", w.mesh.tp, " pp ", w.mesh.pp, " v ", w.virtual_stages, " cp ", w.mesh.cp, " ep ", w.mesh.ep,
      " dp ", w.mesh.data_degree(), " zero ", w.zero_stage, " group ", w.mesh.dp_shard, " micro-batch ",
      w.micro_batch, " batch ", w.global_batch);
}

}  // namespace trainctl::frameworks
